"""What breaks is told, and ends the run in a state from which it can continue."""

import time

import psutil
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


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
