"""The coach's prompts: the paper's templates, fences that agent text cannot close, placeholders that are checked."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.config.suggest import UnknownNameError
from verl_mas.rewards.coach.prompts import ABSENT, check_template, render
from verl_mas.rewards.coach.templates import TEMPLATES

# sentences as they stand in the paper: appendix B.4 and C.4
MATHCHAT = [
    "a specific agent in a multiagent system that collaboratively solves a math competition problem.",
    "3. **Verifier**: Synthesizes the code executor's output and provides the final answer.",
    "- Each agent has a 4K token output limit. Outputs beyond this are truncated.",
    "Strictly assigns a score from 0 (terrible) to 10 (perfect).",
]
DSBENCH = [
    "CRITICAL: OUTCOME-BASED ROOT CAUSE ANALYSIS",
    '- Data Engineer\'s fault if: X_test.pkl is NOT in "FILES SAVED BY PREVIOUS AGENTS"',
    "| ROC-AUC 0.65-0.75    | Max 6 |",
]


@pytest.mark.parametrize(("name", "sentences"), [("mathchat", MATHCHAT), ("dsbench", DSBENCH)])
def test_the_papers_prompts_are_there(name, sentences):
    assert all(sentence in TEMPLATES[name].text for sentence in sentences)
    assert "PROCESS_SCORE: [0 to 10]" in TEMPLATES[name].output_format


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_has_the_placeholders_it_needs_and_no_other(name):
    check_template(TEMPLATES[name].text, TEMPLATES[name].facts)


def test_a_wrong_placeholder_is_an_error_that_names_the_nearest():
    with pytest.raises(UnknownNameError, match=r"'agent_ouput'; did you mean 'agent_output'\?"):
        check_template("{agent_role} {agent_input} {agent_ouput} {output_format}")


@pytest.mark.parametrize("missing", ["agent_role", "agent_input", "agent_output", "output_format"])
def test_a_missing_placeholder_is_an_error_that_names_it(missing):
    names = {"agent_role", "agent_input", "agent_output", "output_format"} - {missing}
    with pytest.raises(ValueError, match=f"must have the placeholder {{{missing}}}"):
        check_template(" ".join(f"{{{name}}}" for name in sorted(names)))


def test_an_unbalanced_brace_is_an_error():
    with pytest.raises(ValueError, match="malformed"):
        check_template("{agent_role")


@given(
    st.dictionaries(st.sampled_from(["a", "b"]), st.text() | st.sampled_from(["<<<END a", "}{a}", "{b}"]), min_size=1)
)
def test_each_text_stands_whole_between_fences_whose_tag_it_does_not_contain(written):
    template = "\n".join(f"{{{name}}}" for name in sorted(written))
    prompt = render(template, {}, written)
    (tag,) = set(re.findall(r"<<<BEGIN \.\.\. (\w+)>>>", prompt.text))
    for name, text in written.items():
        assert f"<<<BEGIN {name} {tag}>>>\n{text}\n<<<END {name} {tag}>>>" in prompt.text
        assert tag not in text
    assert sorted(prompt.agent_text) == sorted(written.values())


def test_what_is_absent_is_shown_as_not_applicable_and_what_is_empty_as_empty():
    prompt = render("{truth}|{output}", {}, {"truth": None, "output": ""})
    shown = prompt.text.split("\n\n", 1)[1]
    assert shown.startswith(f"{ABSENT}|<<<BEGIN output ")
    assert prompt.agent_text == ("",)


def test_the_same_texts_give_the_same_prompt_and_other_texts_another_tag():
    assert render("{a}", {}, {"a": "x"}) == render("{a}", {}, {"a": "x"})
    first, second = (re.findall(r"\w{20}", render("{a}", {}, {"a": text}).text)[0] for text in ("x", "y"))
    assert first != second


def test_a_note_is_shown_but_leaves_the_identity_as_it_is():
    plain = render("{a} {output_format}", {"output_format": "score"}, {"a": "x"})
    noted = render("{a} {output_format}", {"output_format": "score"}, {"a": "x"}, note="your mean is 7")
    assert "your mean is 7\n\nscore" in noted.text
    assert noted.identity == plain.identity == plain.text
