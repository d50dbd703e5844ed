"""What words are worth. Expected numbers are counted by hand."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas_games.writers.words import OPPOSITE, fitting, guessing, matching, read_word

words = st.one_of(st.none(), st.lists(st.sampled_from("UDLR"), max_size=12).map(tuple))
lengths = st.integers(1, 6)


def word(text: str) -> tuple[str, ...] | None:
    return read_word(text)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("UDLR", "DURL", 1.0),
        ("UUUU", "DDDD", 1.0),
        ("UUUU", "UUUU", 0.0),
        ("UULL", "DDLL", 2 / 4),
        ("UUU", "DDD", 3 / 4),  # both one letter short
        ("U", "DDDD", 1 / 4),
        ("UUUUU", "DDDDD", 4 / 5),  # both one letter too long
        ("UUUUU", "DDDD", 4 / 5),
        ("UUUUUUUU", "DDDD", 4 / 8),
        ("", "DDDD", 0.0),
        ("", "", 0.0),
        ("UUUX", "DDDD", 0.0),  # another character: no word
        ("uuuu", "DDDD", 0.0),  # lower case
        ("U U", "DDDD", 0.0),  # white space within
        (" UUUU\n", "DDDD", 1.0),  # white space around
    ],
)
def test_words_fit_where_their_letters_are_opposite(first: str, second: str, expected: float) -> None:
    assert fitting(word(first), word(second), 4) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("UUUU", 1.0),
        ("UUUD", 3 / 4),
        ("UU", 2 / 4),
        ("", 0.0),
        ("LLLL", 0.0),
        ("UUUUU", 4 / 5),
        ("UUUUUUUU", 4 / 8),
        ("UUUUP", 0.0),
    ],
)
def test_a_word_matches_position_by_position_and_its_length_counts(text: str, expected: float) -> None:
    assert matching(word(text), "UUUU") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("LRUD", 1.0), ("LRUU", 3 / 4), ("LR", 3 / 4), ("", 1 / 4), ("x", 1 / 4), ("LRUDLRUD", 1.0)],
)
def test_a_guess_is_filled_with_u_and_cut(text: str, expected: float) -> None:
    # "LR" is read as LRUU, the empty word as UUUU, both against LRUD.
    assert guessing(word(text), "LRUD") == expected


@given(words, words, lengths)
def test_fitting_does_not_ask_who_wrote_which_word(one, other, length: int) -> None:
    assert fitting(one, other, length) == fitting(other, one, length)


@given(words, words, lengths)
def test_fitting_is_a_share_and_full_only_for_a_word_and_its_opposite(one, other, length: int) -> None:
    score = fitting(one, other, length)
    assert 0.0 <= score <= 1.0
    opposite = one is not None and other == tuple(OPPOSITE[letter] for letter in one)
    assert (score == 1.0) == (opposite and len(one or ()) == length)


@given(words, st.text("UDLR", min_size=1, max_size=6))
def test_matching_is_a_share_and_full_only_for_the_wanted_word(one, wanted: str) -> None:
    score = matching(one, wanted)
    assert 0.0 <= score <= 1.0
    assert (score == 1.0) == (one == tuple(wanted))


@given(words)
def test_no_word_is_a_better_guess_than_another(one) -> None:
    hidden = list(product("UDLR", repeat=3))
    assert sum(guessing(one, word) for word in hidden) / len(hidden) == pytest.approx(1 / 4)


@given(st.text(max_size=20))
def test_any_text_is_read_as_a_word_of_moves_or_as_none(text: str) -> None:
    read = read_word(text)
    assert read is None or (set(read) <= set("UDLR") and "".join(read) == text.strip())
