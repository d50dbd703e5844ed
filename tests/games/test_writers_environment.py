"""Writers: the task family and its environment. Expected scores are counted by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.config.suggest import UnknownNameError
from verl_mas.rewards import RuleRewardManager
from verl_mas.workflow import Task, check_prompts
from verl_mas_games.tokenizer import CHARACTERS
from verl_mas_games.writers.environment import GOALS, Writers, WritersEnvironment
from verl_mas_games.writers.words import guessing, matching

texts = st.text("UDLRx", max_size=6)


def state(goal: str = "fit", index: int = 0, **options) -> WritersEnvironment:
    family = Writers(goal=goal, **options)  # type: ignore[arg-type]
    return family.environment(family.task("train", index))


def test_the_team_score_appears_once_both_words_are_there() -> None:
    environment = state("fit")
    first, second = environment.step("first", "UUUL"), environment.step("second", "DDDD")
    assert (first.parts.team, second.parts.team) == (0.0, 3 / 4)
    assert (dict(first.parts.local), dict(second.parts.local)) == ({}, {})
    assert (first.info["turn_over"], second.info["turn_over"]) == (False, True)
    assert not environment.success


def test_it_does_not_matter_who_writes_first() -> None:
    environment = state("fit")
    environment.step("second", "DDDD")
    assert environment.step("first", "UUUL").parts.team == 3 / 4


def test_each_role_is_paid_for_its_own_letter_and_the_team_for_both() -> None:
    environment = state("letters", letters="UL")
    first, second = environment.step("first", "UUUL"), environment.step("second", "LL")
    assert first.parts.local_score == 3 / 4
    assert second.parts.local_score == 2 / 4
    assert first.parts.team == (3 / 4) / 2
    assert second.parts.team == (3 / 4 + 2 / 4) / 2


def test_a_guess_is_paid_by_the_hidden_word_and_success_is_the_firsts_alone() -> None:
    environment = state("guess", hidden=4)
    hidden = "".join(environment.hidden)
    wrong = "".join({"U": "D", "D": "L", "L": "R", "R": "U"}[letter] for letter in hidden)
    assert environment.step("first", "UUUU").parts.local_score == 1.0
    second = environment.step("second", wrong)
    assert second.parts.local_score == 0.0
    assert second.parts.team == 1 / 2
    assert environment.success
    assert environment.done


def test_the_second_word_of_a_guess_decides_no_success() -> None:
    environment = state("guess")
    environment.step("second", "".join(environment.hidden))
    assert environment.step("first", "UUUL").parts.team == (1.0 + 3 / 4) / 2
    assert not environment.success


@pytest.mark.parametrize("text", ["", "  ", "UUUX", "uuuu", "[U,U]", "\u00dc", "UUUU" * 1000])
def test_text_that_is_no_word_is_an_outcome_without_score(text: str) -> None:
    environment = state("letters")
    outcome = environment.step("first", text)
    assert outcome.parts.local_score == 0.0
    assert outcome.info["parsed"] is (not text.strip())
    environment.step("second", "LLLL")
    assert not environment.success


@given(st.sampled_from(GOALS), texts, texts)
def test_success_is_a_full_score(goal: str, one: str, other: str) -> None:
    environment = state(goal)
    first, second = environment.step("first", one), environment.step("second", other)
    if goal == "guess":
        assert environment.success == (first.parts.local_score == 1.0)
    else:
        assert environment.success == (second.parts.team == 1.0)
    for parts in (first.parts, second.parts):
        reward = RuleRewardManager().score("first", parts)  # refuses scores and weights out of range
        assert 0.0 <= reward.value <= 2.0


@given(st.sampled_from(["letters", "guess"]), texts, texts)
def test_the_team_score_is_the_mean_of_the_own_scores_in_any_order(goal: str, one: str, other: str) -> None:
    environment = state(goal)
    swapped = environment.copy()
    environment.step("first", one)
    last = environment.step("second", other).parts.team
    swapped.step("second", other)
    assert swapped.step("first", one).parts.team == last
    read = (tuple(text.strip()) if set(text) <= set("UDLR") else None for text in (one, other))
    mine, its = read
    own = guessing(its, environment.hidden) if goal == "guess" else matching(its, "LLLL")
    assert last == (matching(mine, "UUUU") + own) / 2


def test_copies_are_independent() -> None:
    environment = state("fit")
    copied = environment.copy()
    copied.step("first", "UUUU")
    copied.step("second", "DDDD")
    assert copied.success
    assert not environment.success
    assert environment.observe("second")["partner"] == ""


def test_a_word_is_shown_to_the_partner_once_the_turn_is_over() -> None:
    environment = state("fit")
    environment.step("first", "UUUL")
    assert environment.observe("second")["partner"] == ""
    environment.step("second", "no word")
    assert environment.observe("second")["partner"] == "UUUL"
    assert environment.observe("first")["partner"] == ""
    environment.step("second", "DDDR")
    assert environment.observe("first")["partner"] == ""
    assert environment.step("first", "UUUL").parts.team == 1.0


def test_prompts_have_what_they_need_in_the_characters_of_the_embedded_model() -> None:
    family = Writers()
    check_prompts(("first", "second"), family)
    environment = family.environment(family.task("train", 0))
    for role in ("first", "second"):
        prompt = family.prompts[role].format_map(environment.observe(role))
        assert set(prompt) <= set(CHARACTERS)
        assert [len(line) for line in prompt.split("\n")] == [4, 4, 4, 4, 2]


@pytest.mark.parametrize("goal", GOALS)
def test_training_and_validation_share_no_theme(goal: str) -> None:
    train, val = (
        {Writers(goal=goal, seed=seed).task(split, index).payload["theme"] for index in range(300) for seed in (0, 1)}
        for split in ("train", "val")
    )
    assert not train & val
    assert len(train) > 590
    Writers(goal=goal).check(num_train=300, num_val=300)


def test_the_seed_and_nothing_else_decides_the_tasks() -> None:
    first, again, other = (Writers(goal="guess", seed=seed) for seed in (1, 1, 2))
    assert [first.task("train", index) for index in range(5)] == [again.task("train", index) for index in range(5)]
    assert first.task("train", 0) != other.task("train", 0)


def test_tasks_can_be_logged_and_only_a_guess_has_a_hidden_word() -> None:
    task = Writers(goal="guess", hidden=3).task("val", 2)
    assert task.id == "val-2"
    assert json.loads(json.dumps(task.payload)) == task.payload
    assert len(task.payload["hidden"]) == 3
    assert len(Writers(goal="guess").task("val", 2).payload["hidden"]) == 1
    assert set(Writers(goal="fit").task("val", 2).payload) == {"theme"}


def test_a_task_with_another_content_than_its_digest_says_is_an_error() -> None:
    task = Writers().task("train", 0)
    with pytest.raises(ValueError, match="digest"):
        Writers().environment(Task(task.id, task.digest, {"theme": "U"}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"goal": "fits"}, "fit"),
        ({"length": 0}, "length"),
        ({"hidden": 0}, "hidden"),
        ({"letters": "U"}, "letters"),
        ({"letters": "UX"}, "letters"),
    ],
)
def test_wrong_options_are_errors(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Writers(**options)


def test_a_wrong_name_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="first"):
        state().observe("frst")
    with pytest.raises(UnknownNameError, match="second"):
        state().step("secnd", "U")
    with pytest.raises(UnknownNameError, match="val"):
        Writers().task("vale", 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        Writers().task("train", -1)
