"""What breaks is told, and ends the run in a state from which it can continue."""

import json
import subprocess
import sys
import time

import psutil
import pytest

from verl_mas.sandbox import find_bubblewrap

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

#: room for one checkpoint of both policies (19 MB), but not for a second beside it
DISK_BYTES = "30000000"
#: runs the command, then says what is on the disk, which is gone with this process
ON_A_SMALL_DISK = """
import json, subprocess, sys
from pathlib import Path
import torch
from verl_mas.training.checkpoint import CheckpointStore, read_manifest

folder = Path(sys.argv[1])
run = subprocess.run([sys.executable, "-m", "verl_mas.main", *sys.argv[2:]], capture_output=True, text=True)
latest = CheckpointStore(folder / "checkpoints").latest()
print(json.dumps({
    "status": run.returncode,
    "said": run.stderr,
    "checkpoints": sorted(path.name for path in latest.parent.iterdir()),
    "policies": read_manifest(latest).policies,
    "states": [len(torch.load(path, weights_only=False)) for path in latest.rglob("*.pt")],
}))
"""


def test_a_disk_that_is_full_at_a_checkpoint_leaves_the_one_before_whole(tmp_path, small):
    disk = tmp_path / "disk"
    disk.mkdir()
    directory = disk / "run"
    arguments = [*small, f"run_dir={directory}", "steps=3", "checkpoint.every=1", "validation.before=false"]
    small_disk = [find_bubblewrap(), "--dev-bind", "/", "/", "--size", DISK_BYTES, "--tmpfs", disk]
    result = subprocess.run(
        [*small_disk, sys.executable, "-c", ON_A_SMALL_DISK, directory, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    found = json.loads(result.stdout)
    assert found["status"] == 1, found["said"]
    assert "checkpoint of step 2 could not be written, with 0." in found["said"]
    assert "resume=auto" in found["said"]
    assert found["checkpoints"] == ["step_000001"]
    assert sorted(found["policies"]) == ["planner", "tool"]
    assert len(found["states"]) == 6  # model, optimiser, and scheduler with RNG, of two policies
    assert all(found["states"])


def test_a_dead_model_server_ends_the_run_with_its_cause_and_the_way_on(tmp_path, small, start):
    directory = tmp_path / "run"
    process = start(*small, f"run_dir={directory}", "steps=500", "checkpoint.every=1", "validation.before=false")
    metrics = directory / "metrics.jsonl"
    deadline = time.monotonic() + 600
    while not metrics.is_file() or not metrics.read_text():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    engines = [
        one for one in psutil.Process(process.pid).children(recursive=True) if "EngineCore" in " ".join(one.cmdline())
    ]
    assert len(engines) == 2, "one engine for each policy"
    engines[0].kill()
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "the run failed" in output
    assert "resume=auto" in output
    assert list((directory / "checkpoints").glob("step_*/manifest.json"))


def test_too_few_logical_cpus_are_an_error_within_seconds(tmp_path, small, start):
    process = start(*small, f"run_dir={tmp_path / 'run'}", "ray.num_cpus=4")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "ray.num_cpus" in output
    assert not (tmp_path / "run").exists()
