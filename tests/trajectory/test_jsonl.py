"""Trajectory files: what is written is read again, and a torn file is noticed."""

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_mas.trajectory import (
    Invocation,
    Trajectory,
    TrajectoryFileError,
    TruncatedLineError,
    append_trajectories,
    drop_truncated_line,
    read_trajectories,
)

texts = st.text(st.characters(codec=None))  # lone surrogates and line separators too
numbers = st.floats(allow_nan=False, allow_infinity=False)
facts = st.dictionaries(st.text(string.ascii_letters), st.one_of(numbers, texts, st.booleans(), st.none()), max_size=3)
invocations = st.builds(
    Invocation,
    row=texts,
    task=texts,
    sample=st.integers(0, 9),
    role=texts,
    policy=texts,
    turn=st.integers(0, 9),
    candidate=st.integers(0, 9),
    prompt=texts,
    response=texts,
    prompt_digest=texts,
    num_prompt_tokens=st.integers(0, 999),
    num_response_tokens=st.integers(0, 999),
    chosen=st.booleans(),
    parents=st.lists(texts, max_size=3).map(tuple),
    reward=st.none() | numbers,
    breakdown=st.dictionaries(texts, numbers, max_size=3),
    advantage=st.none() | numbers,
    masked=st.booleans(),
    info=facts,
)
trajectories = st.builds(
    Trajectory,
    task=texts,
    task_digest=texts,
    sample=st.integers(0, 9),
    split=st.sampled_from(["train", "val"]),
    step=st.integers(0, 999),
    invocations=st.lists(invocations, max_size=3),
    success=st.booleans(),
    error=st.none() | texts,
    seconds=st.floats(0, 1e6),
    info=facts,
)


def small(task="t", **changes):
    return Trajectory(task=task, task_digest="d", sample=0, split="train", step=1, **changes)


@settings(max_examples=50)
@given(st.lists(trajectories, max_size=3), st.lists(trajectories, max_size=2))
def test_what_is_appended_is_read_again_in_order(tmp_path_factory, first, second):
    path = tmp_path_factory.mktemp("jsonl") / "trajectories.jsonl"
    append_trajectories(path, first)
    append_trajectories(path, second)
    assert list(read_trajectories(path)) == first + second
    assert path.read_bytes().count(b"\n") == len(first) + len(second)


def test_a_line_is_plain_json_with_every_candidate(tmp_path):
    invocation = Invocation(
        row="t.0.tool.0.1",
        task="t",
        sample=0,
        role="tool",
        policy="p",
        turn=0,
        candidate=1,
        prompt="?",
        response="!",
        prompt_digest="d",
        num_prompt_tokens=1,
        num_response_tokens=1,
        chosen=False,
        reward=0.5,
        breakdown={"team": 0.5},
        advantage=-0.25,
    )
    append_trajectories(tmp_path / "t.jsonl", [small(invocations=[invocation])])
    (line,) = (tmp_path / "t.jsonl").read_text().splitlines()
    entry = json.loads(line)["invocations"][0]
    assert (entry["reward"], entry["breakdown"], entry["advantage"]) == (0.5, {"team": 0.5}, -0.25)
    assert (entry["candidate"], entry["chosen"]) == (1, False)


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_truncated_last_line_is_reported_after_the_complete_ones(tmp_path, cut):
    path = tmp_path / "t.jsonl"
    append_trajectories(path, [small("one"), small("two")])
    path.write_bytes(path.read_bytes()[:-cut])
    read = []
    with pytest.raises(TruncatedLineError, match=r"t\.jsonl: the last line is truncated.*without a newline"):
        read.extend(read_trajectories(path))
    reader = read_trajectories(path)
    assert next(reader).task == "one"
    with pytest.raises(TruncatedLineError):
        append_trajectories(path, [small("three")])


def test_a_truncated_line_can_be_dropped_and_the_file_continued(tmp_path):
    path = tmp_path / "t.jsonl"
    append_trajectories(path, [small("one"), small("two", info={"long": "x" * 200_000})])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    path.write_bytes(whole[:-5])
    assert drop_truncated_line(path) == len(whole) - 5 - first
    append_trajectories(path, [small("three")])
    assert [trajectory.task for trajectory in read_trajectories(path)] == ["one", "three"]
    assert drop_truncated_line(path) == 0


def test_a_file_that_is_one_torn_line_becomes_empty(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"task": ')
    assert drop_truncated_line(path) == 9
    assert list(read_trajectories(path)) == []


@pytest.mark.parametrize("info", [{"score": float("nan")}, {"env": object()}])
def test_what_json_cannot_hold_is_refused_and_nothing_is_written(tmp_path, info):
    path = tmp_path / "t.jsonl"
    append_trajectories(path, [small("one")])
    with pytest.raises((TypeError, ValueError)):
        append_trajectories(path, [small("two"), small("three", info=info)])
    assert [trajectory.task for trajectory in read_trajectories(path)] == ["one"]


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "t.jsonl"
    append_trajectories(path, [small("one")])

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        append_trajectories(path, [small("two")])
    assert [trajectory.task for trajectory in read_trajectories(path)] == ["one"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record | {"sucess": True}, "unknown key of a trajectory 'sucess'; did you mean 'success'"),
        (lambda record: {k: v for k, v in record.items() if k != "seconds"}, "a trajectory has no key 'seconds'"),
        (lambda record: record | {"invocations": [{"rwo": 1}]}, "unknown key of an invocation 'rwo'"),
        (lambda record: [record], "expected an object"),
    ],
)
def test_a_line_that_is_no_trajectory_is_named_by_file_and_line(tmp_path, change, message):
    path = tmp_path / "t.jsonl"
    append_trajectories(path, [small("one"), small("two")])
    lines = path.read_text().splitlines()
    path.write_text(f"{lines[0]}\n{json.dumps(change(json.loads(lines[1])))}\n")
    with pytest.raises(TrajectoryFileError, match=f"t.jsonl, line 2: no trajectory: .*{message}"):
        list(read_trajectories(path))
