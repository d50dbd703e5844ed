"""Prompt templates: what is filled, and which mismatches are errors."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.config.suggest import UnknownNameError
from verl_mas.workflow import PromptError, check_prompts, placeholders, render


def test_placeholders_are_filled_and_doubled_braces_are_literal():
    assert render("{{json}} {grid} of {turn}: {grid}", {"grid": "#.#", "turn": "2"}, "tool") == "{json} #.# of 2: #.#"


@given(st.text())
def test_values_are_inserted_as_they_are_even_with_braces(value):
    assert render("<{value}>", {"value": value}, "tool") == f"<{value}>"


@given(st.sets(st.text(string.ascii_lowercase, min_size=1), min_size=1))
def test_the_names_of_a_template_are_found(names):
    assert placeholders(" ".join(f"{{{name}}}" for name in names)) == names


def test_a_placeholder_without_a_value_names_role_placeholder_and_the_nearest_value():
    with pytest.raises(PromptError, match=r"role 'tool'.*does not observe.*'grdi'; did you mean 'grid'"):
        render("{grdi}", {"grid": "", "turn": ""}, "tool")


def test_a_value_without_a_placeholder_names_role_value_and_the_nearest_placeholder():
    with pytest.raises(PromptError, match=r"role 'tool' does not use.*'history'; did you mean 'histori'"):
        # every placeholder has a value, and one value is left over
        render("{histori}", {"histori": "", "history": ""}, "tool")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{grid", "malformed"),
        ("grid}", "malformed"),
        ("{}", "not a plain name"),
        ("{0}", "not a plain name"),
        ("{grid.size}", "not a plain name"),
        ("{grid!r}", "{grid!r} is not a plain name"),
        ("{grid:>9}", "{grid:>9} is not a plain name"),
        ('{"action": 1}', "not a plain name"),
    ],
)
def test_anything_but_plain_placeholders_is_refused_and_says_how_to_write_braces(template, message):
    with pytest.raises(PromptError, match="literal braces") as caught:
        placeholders(template)
    assert message in str(caught.value)


def test_check_prompts_returns_the_templates_of_the_roles_with_overrides(world):
    family = world.SumFamily()
    assert check_prompts(("second",), family, {"second": "Now: {history}"}) == {"second": "Now: {history}"}
    assert check_prompts(("first",), family) == {"first": family.prompts["first"]}


def test_check_prompts_refuses_an_override_for_an_unknown_role(world):
    with pytest.raises(UnknownNameError, match="'secnd'; did you mean 'second'"):
        check_prompts(("first", "second"), world.SumFamily(), {"secnd": "{history}"})


def test_check_prompts_refuses_a_role_without_a_template(world):
    with pytest.raises(PromptError, match="role 'third' has no prompt template"):
        check_prompts(("first", "third"), world.SumFamily())


def test_check_prompts_finds_mismatches_before_any_run(world):
    with pytest.raises(PromptError, match="'histroy'; did you mean 'history'"):
        check_prompts(("first",), world.SumFamily(), {"first": "{histroy}"})
