"""Credits: what may be omitted and what it then means, and what is refused."""

import math

import numpy as np
import pytest

from verl_mas.advantages import ESTIMATORS, Credits, get_estimator

COLUMNS = ["task", "role", "turn", "sample", "policy", "num_tokens"]
INVOCATION_LEVEL = sorted(name for name, estimator in ESTIMATORS.items() if estimator.level == "invocation")


def test_omitted_columns_make_one_group_of_one_token_each():
    credits = Credits(reward=[1, 2, 3])

    for name in ("task", "role", "turn", "policy"):
        assert credits.column(name).codes.tolist() == [0, 0, 0]
    assert credits.num_tokens.tolist() == [1, 1, 1]


def test_omitted_samples_count_the_rows_of_the_same_task_role_and_turn():
    # one trajectory of two roles and two turns, then the second one
    credits = Credits(reward=np.zeros(7), task=list("xxxxxxy"), role=list("abababa"), turn=[0, 0, 1, 1, 0, 0, 0])

    assert credits.sample.codes.tolist() == [0, 0, 0, 0, 1, 1, 0]


def test_lists_arrays_and_tuples_of_strings_or_whole_numbers_mean_the_same():
    reward = [1, 0, 5, 3]
    expected = get_estimator("rloo")(Credits(reward=reward, task=["a", "a", "b", "b"]))

    for task in (("a", "a", "b", "b"), np.array(["a", "a", "b", "b"]), np.array(["a", "a", "b", "b"], dtype=object)):
        assert get_estimator("rloo")(Credits(reward=np.array(reward), task=task)).tolist() == expected.tolist()
    for task in ([7, 7, 9, 9], [-1, -1, 10**15, 10**15], np.array([7, 7, 9, 9], dtype=np.int32), [0.0, 0.0, 1.0, 1.0]):
        assert get_estimator("rloo")(Credits(reward=tuple(reward), task=task)).tolist() == expected.tolist()
    assert expected.tolist() == [1, -1, 2, -2]  # by hand


def test_turns_are_ordered_by_value_not_by_appearance():
    # by hand: the return of turn -5 is everything, of turn 10**12 only its own
    credits = Credits(reward=[1, 10, 100], turn=[10**12, -5, 3], sample=[0, 0, 0])

    assert get_estimator("reinforce_pp_global").returns(credits).tolist() == [1, 111, 101]


def test_the_columns_are_copied():
    reward, task = np.array([1.0, 3.0]), np.array([0, 0])
    credits = Credits(reward=reward, task=task)

    reward[:], task[:] = 0, [0, 1]

    assert get_estimator("rloo")(credits).tolist() == [-2, 2]


@pytest.mark.parametrize("name", INVOCATION_LEVEL)
def test_no_rows_give_no_advantages(name):
    advantage = get_estimator(name)(Credits(reward=[], task=[], role=[], turn=[], sample=[], policy=[], num_tokens=[]))

    assert advantage.shape == (0,)
    assert advantage.dtype == np.float64


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_of_another_length_is_an_error_that_names_it(column):
    with pytest.raises(ValueError, match=rf"^{column} has 2 entries, but reward has 3"):
        Credits(reward=[1, 2, 3], **{column: [1, 1]})


@pytest.mark.parametrize("column", ["reward", *COLUMNS])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_errors_that_name_the_column_and_the_row(column, wrong):
    columns = {"reward": [1.0, 2.0, 3.0], column: [1.0, 1.0, wrong]}

    with pytest.raises(ValueError, match=rf"^{column}\[2\] is "):
        Credits(**columns)


@pytest.mark.parametrize("column", ["task", "role", "sample", "policy"])
@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_name_is_an_error_that_names_the_column_and_the_row(column, empty):
    with pytest.raises(ValueError, match=rf"^{column}\[1\] is an empty name"):
        Credits(reward=[1, 2], **{column: ["a", empty]})


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("reward", [None, 1.0]),
        ("reward", ["high", "low"]),
        ("reward", ["1", "2"]),
        ("reward", [1j, 2j]),
        ("reward", 1.0),
        ("reward", [[1.0], [2.0]]),
        ("reward", [[1.0], [2.0, 3.0]]),
        ("num_tokens", [1, -1]),
        ("num_tokens", [[1], [1]]),
        ("turn", ["0", "1"]),
        ("turn", [0.5, 1]),
        ("turn", [0, 2**70]),
        ("turn", [0, None]),
        ("turn", [True, False]),
        ("task", [1, "a"]),
        ("task", ["a", None]),
        ("task", [1.5, 2.5]),
        ("task", "ab"),
        ("task", 3),
        ("role", np.array([["a"], ["b"]])),
    ],
)
def test_a_value_of_a_wrong_kind_is_an_error_that_names_the_column(column, values):
    columns = {"reward": [1.0, 2.0], column: values}

    with pytest.raises(ValueError, match=rf"^{column}\b"):
        Credits(**columns)


def test_keys_too_large_to_multiply_still_tell_rows_apart():
    # four columns of 2**16 values each: the product of their sizes is 2**64
    n = 2**16
    index = np.arange(n)
    credits = Credits(reward=np.ones(n), task=index, role=index, turn=index, sample=index)

    assert credits.groups("task", "role", "turn", "sample").count == n
