"""An unknown name is answered with the nearest valid one."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.config.suggest import UnknownNameError, nearest_name, unknown_name_error

NAMES = st.text("abcdefgh_", min_size=1, max_size=12)


def test_the_error_names_the_wrong_the_nearest_and_all_valid_names():
    error = unknown_name_error("role", "planer", ["tool", "planner"])

    assert str(error) == "unknown role 'planer'; did you mean 'planner'? (known: planner, tool)"
    assert (error.kind, error.name, error.nearest, error.known) == ("role", "planer", "planner", ("planner", "tool"))


def test_without_a_near_name_the_error_still_lists_the_valid_ones():
    assert str(unknown_name_error("role", "zzz", ["tool"])) == "unknown role 'zzz' (known: tool)"
    assert str(unknown_name_error("role", "zzz", [])) == "unknown role 'zzz' (known: none)"


def test_case_does_not_hide_the_nearest_name():
    assert nearest_name("SOKOBAN", ["Sokoban", "sudoku"]) == "Sokoban"


def test_the_error_is_a_value_error_and_survives_pickling():
    error = pickle.loads(pickle.dumps(unknown_name_error("role", "planer", ["planner"])))

    assert isinstance(error, UnknownNameError)
    assert isinstance(error, ValueError)
    assert str(error) == "unknown role 'planer'; did you mean 'planner'? (known: planner)"


@given(st.lists(NAMES, unique=True), NAMES)
def test_the_nearest_name_is_a_known_one_and_the_order_of_the_known_does_not_matter(known, name):
    nearest = nearest_name(name, known)

    assert nearest is None or nearest in known
    assert nearest == nearest_name(name, reversed(known))


@given(st.sets(NAMES, min_size=1), st.data())
def test_a_known_name_is_nearest_to_itself(known, data):
    name = data.draw(st.sampled_from(sorted(known)))

    assert nearest_name(name, known) == name


def test_unknown_name_error_can_be_raised():
    with pytest.raises(UnknownNameError, match="unknown policy 'plan'"):
        raise unknown_name_error("policy", "plan", ["planner"])
