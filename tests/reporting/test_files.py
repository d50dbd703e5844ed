"""Files of a run are never seen half written."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_mas.reporting.files import (
    append_json_line,
    plain,
    read_json_lines,
    write_bytes,
    write_json,
    write_json_lines,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_what_json_can_hold_is_left_as_it_is(value: object) -> None:
    assert plain(value) == value
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == value


def test_numpy_and_paths_become_plain_values() -> None:
    value = {"a": np.float32(0.5), "b": np.int64(3), "c": np.array([1.0, 2.0]), "d": np.bool_(True), "e": Path("x/y")}
    assert plain(value) == {"a": 0.5, "b": 3, "c": [1.0, 2.0], "d": True, "e": "x/y"}


def test_numbers_that_json_lacks_survive_as_text_that_float_reads() -> None:
    written = plain([float("nan"), float("inf"), float("-inf"), np.float64("inf")])
    assert written == ["NaN", "Infinity", "-Infinity", "Infinity"]
    assert [float(text) for text in written[1:]] == [float("inf"), float("-inf"), float("inf")]


def test_a_value_without_faithful_json_is_refused() -> None:
    with pytest.raises(TypeError, match="no JSON for a object"):
        plain({"key": object()})


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"steps": 1})

    def full_disk(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"steps": 2})
    assert json.loads(path.read_text()) == {"steps": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


def test_a_value_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write_json_lines(path, [{"step": 1}])
    with pytest.raises(TypeError):
        write_json_lines(path, [{"step": 1}, {"step": object()}])
    assert read_json_lines(path) == [{"step": 1}]


def test_bytes_are_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    write_bytes(path, b"longer than the next")
    write_bytes(path, b"short")
    assert path.read_bytes() == b"short"


@settings(max_examples=25)
@given(st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=4))
def test_records_are_read_back_as_written(tmp_path_factory: pytest.TempPathFactory, records: list[dict]) -> None:
    path = tmp_path_factory.mktemp("records") / "metrics.jsonl"
    for record in records:
        append_json_line(path, record)
    assert read_json_lines(path) == records


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2')
    assert read_json_lines(path) == [{"step": 1}]


@pytest.mark.parametrize("damaged", ['{"step": ', "[1]"])
def test_damage_elsewhere_is_named(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{damaged}\n{{"step": 3}}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2 is no JSON"):
        read_json_lines(path)


def test_a_file_that_does_not_exist_has_no_records(tmp_path: Path) -> None:
    assert read_json_lines(tmp_path / "metrics.jsonl") == []
