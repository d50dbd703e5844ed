"""Reading verl's parquet format; every error names the option, the file and the row."""

import hashlib
from pathlib import Path

import pyarrow.parquet
import pytest
from verl_mas_dataset.rows import Row, read_rows


def test_a_row_is_what_the_file_says(write, row):
    (only,) = read_rows("train_files", write("a.parquet", row("3+4", "7")))
    assert only == Row("3+4", "sums", "7", {"index": 3})
    assert only.digest == hashlib.sha256(b"3+4").hexdigest()


def test_several_files_are_one_after_the_other(write):
    rows = read_rows("train_files", [write("a.parquet", "a", "b"), write("b.parquet", "c")])
    assert [one.prompt for one in rows] == ["a", "b", "c"]


def test_extra_info_may_be_missing(write, row):
    (without,) = read_rows("train_files", write("a.parquet", row("a", extra_info=...)))
    _, null = read_rows("train_files", write("b.parquet", "a", row("b", extra_info=None)))
    assert (without.extra_info, null.extra_info) == ({}, {})


def test_columns_that_verl_does_not_need_are_ignored(write, row):
    (only,) = read_rows("train_files", write("a.parquet", row("a", ability=..., more=[1, 2])))
    assert only.prompt == "a"


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([{"role": "system", "content": "be brief"}, {"role": "user", "content": "a"}], "but is of system, user"),
        ([{"role": "assistant", "content": "a"}], "but is of assistant"),
        ([], "but is of none"),
        ("a", "must be a list of messages"),
        ([{"role": "user", "content": ""}], "content of the prompt must be text"),
    ],
)
def test_a_prompt_is_exactly_one_user_message(write, row, messages, said):
    path = write("a.parquet", row("", prompt=messages))
    with pytest.raises(ValueError, match=rf"a\.parquet, row 0: .*{said}"):
        read_rows("train_files", path)


def test_the_row_that_is_wrong_is_named(write, row):
    two = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    path = write("a.parquet", "first", "second", row("", prompt=two))
    with pytest.raises(ValueError, match=r"a\.parquet, row 2: prompt must be exactly one message"):
        read_rows("train_files", path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reward_model": {"style": "rule"}}, "row 0: reward_model must have a ground_truth"),
        ({"reward_model": "7"}, "row 0: reward_model must have a ground_truth"),
        ({"data_source": 3}, "row 0: data_source must be text"),
        ({"reward_model": ..., "data_source": ...}, "has no column data_source, reward_model"),
    ],
)
def test_what_scores_a_response_must_be_there(write, row, changes, said):
    path = write("a.parquet", row("a", **changes))
    with pytest.raises(ValueError, match=said):
        read_rows("train_files", path)


def test_files_that_cannot_be_read_name_the_option(tmp_path: Path):
    broken = tmp_path / "broken.parquet"
    broken.write_text("no parquet")
    with pytest.raises(ValueError, match=r"option 'val_files': .*missing\.parquet is no file"):
        read_rows("val_files", str(tmp_path / "missing.parquet"))
    with pytest.raises(ValueError, match=r"option 'val_files': .*broken\.parquet is not readable as parquet"):
        read_rows("val_files", str(broken))
    with pytest.raises(ValueError, match="option 'val_files' must name at least one"):
        read_rows("val_files", [])


def test_an_empty_file_is_refused(tmp_path: Path, write):
    path = write("a.parquet", "a")
    empty = tmp_path / "empty.parquet"
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(path).slice(0, 0), empty)
    with pytest.raises(ValueError, match=r"empty\.parquet has no rows"):
        read_rows("train_files", str(empty))
