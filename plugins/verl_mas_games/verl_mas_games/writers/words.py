"""What words are worth: pure numbers. A word is a tuple of moves (U, D, L, R), or None where none could be read."""

from collections.abc import Sequence

from verl_mas_games.sokoban.actions import Moves, parse_letters

OPPOSITE = {"U": "D", "D": "U", "L": "R", "R": "L"}


def read_word(text: str) -> Moves | None:
    """The word that a response is, surrounding white space aside; None if it has other characters, or lower case."""
    return parse_letters(text)


def fitting(word: Moves | None, other: Moves | None, length: int) -> float:
    """The share of positions at which the words have opposite letters; symmetric.

    Of the longest of both words and `length`; what is beyond `length` does not fit. So a full score means two words of
    exactly that length.
    """
    pairs = list(zip(word or (), other or (), strict=False))[:length]
    return sum(OPPOSITE[one] == two for one, two in pairs) / max(length, len(word or ()), len(other or ()))


def matching(word: Moves | None, wanted: Sequence[str]) -> float:
    """The share of positions at which the word is the wanted one, over the longer of both."""
    right = sum(letter == other for letter, other in zip(wanted, word or (), strict=False))
    return right / max(len(wanted), len(word or ()))


def guessing(word: Moves | None, hidden: Sequence[str]) -> float:
    """The share of positions at which the word is the hidden one; what it lacks is filled with U, what is over is cut.

    Averaged over all hidden words of a length, every word whatsoever is worth 1/4.
    """
    padded = (*(word or ()), *("U" * len(hidden)))
    return matching(padded[: len(hidden)], hidden)
