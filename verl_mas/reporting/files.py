"""Writing the files of a run so that a reader never meets half of one: atomic replacement and whole JSON lines."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any


def plain(value: Any) -> Any:
    """`value` as JSON can hold it.

    Numpy scalars and one-element tensors become Python numbers, arrays become lists, paths and mapping keys text. JSON
    knows no NaN and no infinity: they become the strings "NaN", "Infinity" and "-Infinity", as in protobuf's
    JSON mapping, and `float()` reads them back.

    Raises:
        TypeError: there is no faithful JSON for the value.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"no JSON for a {type(value).__name__}: {value!r}")


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data` at once: after a crash there is the old content or the new, never a part.

    Raises:
        OSError: the disk is full or the folder cannot be written; the old file is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8) at once; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `value` as indented JSON at once; see `write_bytes` and `plain`."""
    write_text(path, json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


def write_json_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Replace `path` by one JSON object per line at once; see `write_bytes` and `plain`."""
    write_text(path, "".join(_line(record) for record in records))


def append_json_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add one record to a JSON lines file.

    Raises:
        OSError: the line could not be written.
    """
    with path.open("a", encoding="utf-8") as file:
        file.write(_line(record))


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON lines file; none if it does not exist.

    A last line without its line feed was being written when the run was killed, and is left out.

    Raises:
        ValueError: any other line is no JSON object; the message names file and line.
    """
    if not path.exists():
        return []
    *lines, _unfinished = path.read_text(encoding="utf-8").split("\n")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number} is no JSON: {error}") from error
        if not isinstance(record, dict):
            raise ValueError(f"{path}, line {number} is no JSON object: {line[:80]}")
        records.append(record)
    return records


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(plain(record), allow_nan=False) + "\n"
