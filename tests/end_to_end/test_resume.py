"""A run that is killed in the middle of a step continues to the numbers of a run that was not."""

import signal
import subprocess
import time

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

ARGUMENTS = ("deterministic=true", "steps=3", "checkpoint.every=1", "validation.before=false")
#: what a record holds besides results: times, and memory
MEASURED = ("time", "phase_seconds")


def results(record):
    return {
        key: value for key, value in record.items() if key not in MEASURED and "/perf/" not in key and "mfu" not in key
    }


def wait_for(path, text, process):
    """Wait until the file holds the text; fails if the process ends first."""
    deadline = time.monotonic() + 600
    while not (path.is_file() and text in path.read_text()):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue


def test_a_killed_run_continues_to_the_same_numbers(run, small, start, tmp_path):
    whole = run(*ARGUMENTS)
    assert whole.status == 0, whole.output

    directory = tmp_path / "killed"
    process = start(*small, f"run_dir={directory}", *ARGUMENTS)
    wait_for(directory / "metrics.jsonl", '"step": 2', process)
    process.send_signal(signal.SIGKILL)
    process.wait()

    continued = run(*ARGUMENTS, f"run_dir={directory}", "resume=auto")
    assert continued.status == 0, continued.output
    assert "continuing after step" in continued.output
    assert [results(one) for one in continued.records()] == [results(one) for one in whole.records()]
    final = "validation/step_000003.jsonl"
    assert (continued.directory / final).read_text() == (whole.directory / final).read_text()
