"""Reads parquet files in verl's format; every problem names the file and the row."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet  # type: ignore[import-untyped]

#: columns that verl needs, and the one that it can do without
REQUIRED = ("prompt", "data_source", "reward_model")
OPTIONAL = ("extra_info",)


@dataclass(frozen=True, slots=True)
class Row:
    """One problem.

    Attributes:
        prompt: content of the only message, from the user.
        data_source, ground_truth, extra_info: what a reward function gets besides the response.
    """

    prompt: str
    data_source: str
    ground_truth: Any
    extra_info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the prompt, in hexadecimal."""
        return hashlib.sha256(self.prompt.encode()).hexdigest()


def read_rows(option: str, files: str | Sequence[str]) -> tuple[Row, ...]:
    """The rows of one file or of several, in their order.

    Args:
        option: under which the files were given, for messages. files: paths of parquet files.

    Raises:
        ValueError: no file is given, one does not exist, is no parquet file, lacks a column or is empty, or a row has
            another form than verl's, or a prompt that is not exactly one user message of text.
    """
    paths = [files] if isinstance(files, str) else list(files)
    if not paths:
        raise ValueError(f"option '{option}' must name at least one parquet file")
    return tuple(row for path in paths for row in _read_file(option, Path(path).expanduser()))


def _read_file(option: str, path: Path) -> list[Row]:
    if not path.is_file():
        raise ValueError(f"option '{option}': {path} is no file")
    try:
        present = pyarrow.parquet.read_schema(path).names
        missing = [name for name in REQUIRED if name not in present]
        if missing:
            raise ValueError(
                f"option '{option}': {path} has no column {', '.join(missing)} (columns: {', '.join(present)})"
            )
        columns = [name for name in REQUIRED + OPTIONAL if name in present]
        records = pyarrow.parquet.read_table(path, columns=columns).to_pylist()
    except pyarrow.ArrowException as error:
        raise ValueError(f"option '{option}': {path} is not readable as parquet: {error}") from error
    if not records:
        raise ValueError(f"option '{option}': {path} has no rows")
    return [_row(record, f"{path}, row {number}") for number, record in enumerate(records)]


def _row(record: Mapping[str, Any], where: str) -> Row:
    reward_model = record["reward_model"]
    if not isinstance(reward_model, Mapping) or reward_model.get("ground_truth") is None:
        raise ValueError(f"{where}: reward_model must have a ground_truth, but is {reward_model!r}")
    if not isinstance(record["data_source"], str):
        raise ValueError(f"{where}: data_source must be text, not {record['data_source']!r}")
    return Row(
        prompt=_content(record["prompt"], where),
        data_source=record["data_source"],
        ground_truth=reward_model["ground_truth"],
        extra_info=record.get("extra_info") or {},
    )


def _content(messages: Any, where: str) -> str:
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        raise ValueError(f"{where}: prompt must be a list of messages, not {messages!r}")
    roles = [message.get("role") for message in messages]
    if roles != ["user"]:
        found = ", ".join(map(str, roles)) or "none"
        raise ValueError(f"{where}: prompt must be exactly one message, of the user, but is of {found}")
    content = messages[0].get("content")
    if not isinstance(content, str) or not content:
        raise ValueError(f"{where}: the content of the prompt must be text, not {content!r}")
    return content
