"""Checkpoints appear complete or not at all."""

import errno

import pytest

from verl_mas.training.checkpoint import CheckpointError, CheckpointStore, Manifest, read_manifest


def manifest(step):
    return Manifest(step=step, seed=7, policies=("planner", "tool"))


def fill(text):
    def write(folder):
        (folder / "tool").mkdir()
        (folder / "tool" / "weights").write_text(text)

    return write


def test_a_saved_checkpoint_is_read_back(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    path = store.save(manifest(3), fill("three"))
    assert store.latest() == path
    assert read_manifest(path) == manifest(3)
    assert (path / "tool" / "weights").read_text() == "three"


def test_a_full_disk_leaves_the_previous_checkpoint_the_latest(tmp_path):
    store = CheckpointStore(tmp_path)
    first = store.save(manifest(1), fill("one"))

    def disk_full(folder):
        (folder / "half").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CheckpointError, match=r"step 2 could not be written, with [\d.]+ MiB free") as caught:
        store.save(manifest(2), disk_full)
    assert isinstance(caught.value.__cause__, OSError)
    assert store.latest() == first
    assert (first / "tool" / "weights").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_a_killed_write_is_never_taken_for_a_checkpoint(tmp_path):
    store = CheckpointStore(tmp_path)
    first = store.save(manifest(1), fill("one"))
    half = tmp_path / "step_000002.partial"
    half.mkdir()
    (half / "manifest.json").write_text("{}")
    (tmp_path / "step_000003").mkdir()
    assert store.latest() == first
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        read_manifest(tmp_path / "step_000003")


def test_a_later_save_of_the_same_step_replaces_leftovers(tmp_path):
    (tmp_path / "step_000002.partial").mkdir(parents=True)
    (tmp_path / "step_000002.partial" / "old").write_text("old")
    path = CheckpointStore(tmp_path).save(manifest(2), fill("two"))
    assert sorted(one.name for one in path.iterdir()) == ["manifest.json", "tool"]


def test_only_the_latest_are_kept(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for step in (1, 2, 10):
        store.save(manifest(step), fill(str(step)))
    assert [path.name for path in store.complete()] == ["step_000002", "step_000010"]


def test_keeping_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keep must be at least 1"):
        CheckpointStore(tmp_path, keep=0)
