"""Trajectories as JSONL: one trajectory per line, with every candidate, its reward breakdown and its advantage.

A file is only ever appended to, by one writer. A line without its newline is one that a killed process left unfinished:
reading and appending refuse it, and `drop_truncated_line` removes it.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from verl_mas.config.suggest import unknown_name_error
from verl_mas.trajectory.records import Invocation, Trajectory

_BLOCK = 1 << 16


class TrajectoryFileError(ValueError):
    """A line is no trajectory. The message names the file and the line."""


class TruncatedLineError(TrajectoryFileError):
    """The last line has no end: its writer was killed, or is still writing."""


def append_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> None:
    """Append one line each, and flush them to the disk; the file is made if it is missing. All or none are written.

    Raises:
        TruncatedLineError: the file ends in the middle of a line.
        TypeError, ValueError: `info` holds what JSON cannot (a NaN, an object); then nothing is written.
        OSError: the write failed, for example for want of space; what was written of it is cut off again.
    """
    data = "".join(_line(trajectory) for trajectory in trajectories).encode("ascii")
    with open(path, "ab") as file:
        before = file.seek(0, os.SEEK_END)
        if _end_of_last_line(path) != before:
            raise _truncated(path)
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), before)
            raise


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    """The trajectories of the file, in order, read as they are asked for.

    Raises:
        TruncatedLineError: at the last line, after all complete ones, if it has no end.
        TrajectoryFileError: a line is no trajectory: malformed JSON, an unknown or a missing key.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                raise _truncated(path)
            try:
                yield _trajectory(json.loads(line))
            except (ValueError, TypeError) as error:
                raise TrajectoryFileError(f"{path}, line {number}: no trajectory: {error}") from error


def drop_truncated_line(path: Path) -> int:
    """Cut off a last line without an end. Returns the number of bytes removed, 0 if the file is whole."""
    end = _end_of_last_line(path)
    removed = path.stat().st_size - end
    if removed:
        os.truncate(path, end)
    return removed


def _end_of_last_line(path: Path) -> int:
    """Offset after the last newline, in bytes."""
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0


def _truncated(path: Path) -> TruncatedLineError:
    end, size = _end_of_last_line(path), path.stat().st_size
    return TruncatedLineError(
        f"{path}: the last line is truncated ({size - end} bytes after offset {end}, without a newline): its writer "
        "was killed or is still writing; drop_truncated_line removes it"
    )


def _line(trajectory: Trajectory) -> str:
    record = {item.name: getattr(trajectory, item.name) for item in fields(Trajectory)}
    record["invocations"] = [
        {item.name: getattr(invocation, item.name) for item in fields(Invocation)}
        for invocation in trajectory.invocations
    ]
    return json.dumps(record, allow_nan=False) + "\n"


def _trajectory(record: Any) -> Trajectory:
    _check_keys("key of a trajectory", Trajectory, record)
    invocations = []
    for entry in record["invocations"]:
        _check_keys("key of an invocation", Invocation, entry)
        invocations.append(Invocation(**{**entry, "parents": tuple(entry["parents"])}))
    return Trajectory(**{**record, "invocations": invocations})


def _check_keys(kind: str, record_type: type, record: Any) -> None:
    if not isinstance(record, dict):
        raise TypeError(f"expected an object, found {type(record).__name__}")
    names = [item.name for item in fields(record_type)]
    for key in record:
        if key not in names:
            raise unknown_name_error(kind, key, names)
    for name in names:
        if name not in record:
            raise ValueError(f"the {kind.replace('key of a', 'a', 1)} has no key '{name}'")
