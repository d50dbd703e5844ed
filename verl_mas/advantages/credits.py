"""Credits: the small table, one row per invocation, from which every invocation-level advantage is computed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from verl_mas.advantages.grouping import Groups, join, occurrence

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: the columns by which rows may be grouped
KEY_COLUMNS = ("task", "role", "turn", "sample", "policy", "prompt")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of names or whole numbers, coded as integers.

    Attributes:
        values: what was given, shape (n,). codes: shape (n,), equal where the values are equal; in the order of the
            values if these are whole numbers, else in the order of first appearance.
        size: every code is below it; not every number below it need occur.
    """

    values: Sequence[Any] | npt.NDArray[Any]
    codes: IntArray
    size: int


class Credits:
    """One entry per invocation, in any order. Every argument is a list or a one-dimensional array of equal length.

    Args:
        reward: the invocation's scalar reward.
        task: task instance. Default: all rows belong to one task.
        role: who spoke. Default: one role.
        turn: whole number, ordered. Default: 0.
        sample: which execution of the task; a trajectory is (task, sample). Default: the k-th row (from 0) that has a
            given task, role and turn belongs to sample k.
        policy: whose weights spoke. Default: one policy.
        num_tokens: length of the response, the weight of the row in statistics over tokens, >= 0. Default: 1.
        candidate: which of the role's responses to one prompt this is. Only magrpo with `joint: cross` needs it: there
            a response takes part in several joint actions and has one row for each.
        parent: the sample of the joint action, one turn earlier, whose child this row is; -1 at the root. Only magrpo
            with `branching: tree` needs it.
        prompt: key of the prompt's token ids. If given, at_grpo asserts that a group shares one prompt.

    Names (task, role, sample, policy, candidate, prompt) are strings, or whole numbers; turn and parent are whole
    numbers. The columns are copied.

    Raises:
        ValueError: a column of another length than reward, a NaN or an infinity, an empty name, a value of a wrong
            type. The message names the column.

    Sources: AT-GRPO, Eq. 1-4; MAGRPO, Eq. 1-2; MAPPA, section 2.3.
    """

    def __init__(
        self,
        reward: npt.ArrayLike,
        task: Iterable[object] | None = None,
        role: Iterable[object] | None = None,
        turn: Iterable[object] | None = None,
        sample: Iterable[object] | None = None,
        policy: Iterable[object] | None = None,
        num_tokens: npt.ArrayLike | None = None,
        *,
        candidate: Iterable[object] | None = None,
        parent: Iterable[object] | None = None,
        prompt: Iterable[object] | None = None,
    ) -> None:
        self.reward = _numbers("reward", reward, None)
        n = len(self.reward)
        self.num_tokens = np.ones(n) if num_tokens is None else _numbers("num_tokens", num_tokens, n)
        if (negative := np.flatnonzero(self.num_tokens < 0)).size:
            raise ValueError(f"num_tokens[{negative[0]}] is {self.num_tokens[negative[0]]}: it must not be negative")
        self.task = _column("task", task, n) if task is not None else _constant(n)
        self.role = _column("role", role, n) if role is not None else _constant(n)
        self.turn = _column("turn", turn, n, whole=True) if turn is not None else _constant(n)
        self.policy = _column("policy", policy, n) if policy is not None else _constant(n)
        self._sample = _column("sample", sample, n) if sample is not None else None
        self.candidate = _column("candidate", candidate, n) if candidate is not None else None
        self.parent = _column("parent", parent, n, whole=True) if parent is not None else None
        self.prompt = _column("prompt", prompt, n) if prompt is not None else None

    def __len__(self) -> int:
        return len(self.reward)

    @cached_property
    def sample(self) -> Column:
        """Which execution of the task each row belongs to."""
        if self._sample is not None:
            return self._sample
        codes = occurrence(self.groups("task", "role", "turn"))
        return Column(codes, codes, int(codes.max(initial=-1)) + 1)

    def column(self, name: str) -> Column:
        """The column of this name.

        Raises:
            ValueError: the column was not given and has no default.
        """
        column: Column | None = getattr(self, name)
        if column is None:
            raise ValueError(f"{name}: this column was not given, and it has no default")
        return column

    def groups(self, *names: str) -> Groups:
        """Rows with equal values in all the named columns, numbered from 0 in the order of the columns' codes."""
        columns = [self.column(name) for name in names]
        return join([(column.codes, column.size) for column in columns], len(self))

    def describe(self, row: int, names: Iterable[str]) -> str:
        """For messages: "task 'a', turn 0" of a row."""
        values = ((name, self.column(name).values[row]) for name in names)
        return ", ".join(f"{name} {value if isinstance(value, np.integer) else repr(value)}" for name, value in values)


def _constant(n: int) -> Column:
    codes = np.zeros(n, dtype=np.int64)
    return Column(codes, codes, 1)


def _numbers(field: str, values: npt.ArrayLike, length: int | None) -> FloatArray:
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "biufO":
            raise TypeError(f"dtype {given.dtype}")
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{field} must hold one number per invocation: {error}") from error
    _check_shape(field, array.shape, length)
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"{field}[{row}] is {array[row]}: it must be finite")
    array.flags.writeable = False
    return array


def _column(field: str, values: Iterable[object], length: int, *, whole: bool = False) -> Column:
    items: list[object]
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"{field} must hold one entry per invocation, not {values!r}")
    if hasattr(values, "__array__"):
        array = np.asarray(values)
        _check_shape(field, array.shape, length)
        if array.dtype.kind in "iu" and array.dtype != np.uint64:
            return _coded_numbers(array.astype(np.int64))
        items = array.tolist()
    else:
        items = list(values)
        _check_shape(field, (len(items),), length)
    kinds = set(map(type, items))
    if all(issubclass(kind, int | float | np.integer | np.floating) and kind is not bool for kind in kinds):
        return _coded_numbers(_whole_numbers(field, items))
    if whole or not all(issubclass(kind, str) for kind in kinds):
        wanted = "whole numbers" if whole else "strings, or all whole numbers"
        raise ValueError(f"{field} must be all {wanted}; it has {', '.join(sorted(kind.__name__ for kind in kinds))}")
    code = {name: index for index, name in enumerate(dict.fromkeys(items))}
    for name in code:
        if not str(name).strip():
            raise ValueError(f"{field}[{items.index(name)}] is an empty name")
    return Column(items, np.fromiter(map(code.__getitem__, items), dtype=np.int64, count=length), len(code))


def _whole_numbers(field: str, items: list[object]) -> IntArray:
    array = np.array(items)
    if array.dtype.kind in "iu" and array.dtype != np.uint64:
        return array.astype(np.int64)
    numbers = array.astype(np.float64)
    wrong = ~(np.abs(numbers) < 2.0**62)  # also NaN
    wrong[~wrong] = numbers[~wrong] % 1 != 0
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"{field}[{row}] is {items[row]}: it must be a whole number of at most 62 bits")
    return numbers.astype(np.int64)


def _coded_numbers(numbers: IntArray) -> Column:
    """Small numbers are their own codes; others are ranked."""
    if numbers.size == 0:
        return Column(numbers, numbers, 1)
    if int(numbers.min()) >= 0 and int(numbers.max()) < 4 * numbers.size + 1024:
        return Column(numbers, numbers, int(numbers.max()) + 1)
    unique, codes = np.unique(numbers, return_inverse=True)
    return Column(numbers, codes.astype(np.int64, copy=False), unique.size)


def _check_shape(field: str, shape: tuple[int, ...], length: int | None) -> None:
    if len(shape) != 1:
        raise ValueError(f"{field} must be one-dimensional, not of shape {shape}")
    if length is not None and shape[0] != length:
        raise ValueError(f"{field} has {shape[0]} entries, but reward has {length}")
