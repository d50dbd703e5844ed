"""Errors for unknown names: every one says what was wrong, the nearest valid name, and all the valid ones."""

from collections.abc import Iterable
from difflib import get_close_matches


class UnknownNameError(ValueError):
    """A name that does not exist.

    Attributes:
        kind: what was named, for example "role". name: the wrong name.
        known: the valid names, sorted. nearest: the closest valid name, None if none is close.
    """

    def __init__(self, kind: str, name: str, known: tuple[str, ...], nearest: str | None) -> None:
        super().__init__(kind, name, known, nearest)  # the arguments, so that the error survives pickling
        self.kind = kind
        self.name = name
        self.known = known
        self.nearest = nearest

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest!r}?" if self.nearest is not None else ""
        return f"unknown {self.kind} {self.name!r}{hint} (known: {', '.join(self.known) or 'none'})"


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to `name`, ignoring case; None if none is close (a difflib ratio below 0.6)."""
    by_lower = {candidate.lower(): candidate for candidate in sorted(known, reverse=True)}
    matches = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def unknown_name_error(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error to raise when `name` is no valid `kind`; `known` are the valid names, in any order."""
    names = tuple(sorted(set(known)))
    return UnknownNameError(kind, name, names, nearest_name(name, names))
