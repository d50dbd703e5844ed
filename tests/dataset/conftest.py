"""Small parquet files in verl's format."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest


def record(content: str, answer: str = "7", **changes: Any) -> dict[str, Any]:
    """One row as verl's preprocessing scripts write it."""
    row = {
        "data_source": "sums",
        "prompt": [{"role": "user", "content": content}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"index": 3},
    }
    return {name: value for name, value in {**row, **changes}.items() if value is not Ellipsis}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """`write(name, *rows)`: a parquet file; a text stands for a row with this prompt, a mapping for itself."""

    def write_file(name: str, *rows: str | dict[str, Any]) -> str:
        path = tmp_path / name
        records = [record(row) if isinstance(row, str) else row for row in rows]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
        return str(path)

    return write_file


@pytest.fixture
def reward_file(tmp_path: Path) -> Callable[..., str]:
    """`reward_file(text)`: a Python file with this content."""

    def write_file(text: str) -> str:
        path = tmp_path / "reward.py"
        path.write_text(text)
        return str(path)

    return write_file


@pytest.fixture
def row() -> Callable[..., dict[str, Any]]:
    """`row(content, answer, **changes)`: a row; a column is left out with `...`."""
    return record
