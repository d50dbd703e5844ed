"""One run at a time in a folder, and back to a step on resume."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from verl_mas.reporting.files import append_json_line
from verl_mas.reporting.run_directory import RunDirectory, RunDirectoryError
from verl_mas.reporting.statistics import SuccessRate

HOLD = """
import sys
from verl_mas.reporting.run_directory import RunDirectory
directory = RunDirectory(sys.argv[1])
directory.append_metrics({"step": 1})
sys.stdout.write("held\\n")
sys.stdout.flush()
sys.stdin.read()
"""

FORK_AND_DIE = """
import os, signal, sys
from verl_mas.reporting.run_directory import RunDirectory
directory = RunDirectory(sys.argv[1])
if os.fork() == 0:
    os.write(1, f"{os.getpid()}\\n".encode())
    signal.pause()
signal.pause()
"""


def results(*outcomes: bool) -> list[dict[str, object]]:
    return [{"task": f"val-{index}", "success": outcome} for index, outcome in enumerate(outcomes)]


def test_the_folder_and_its_parts_are_created(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "runs" / "one") as directory:
        assert directory.path == (tmp_path / "runs" / "one").resolve()
        assert directory.trajectories.is_dir()
        assert directory.validation.is_dir()
        assert directory.checkpoints.is_dir()
        assert directory.trajectories_of(12).name == "step_000012.jsonl"


def test_an_empty_folder_is_welcome(tmp_path: Path) -> None:
    with RunDirectory(tmp_path) as directory:
        assert directory.path == tmp_path.resolve()


def test_a_folder_with_a_run_is_refused_and_the_way_out_named(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as directory:
        directory.write_config("seed: 0\n")
    with pytest.raises(
        RunDirectoryError, match=r"already holds a run: continue it with resume=auto, or choose another"
    ):
        RunDirectory(tmp_path / "run")
    with RunDirectory(tmp_path / "run", resume=True) as again:
        assert again.config.read_text() == "seed: 0\n"


def test_resume_starts_where_there_is_nothing_to_resume(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", resume=True) as directory:
        assert directory.read_metrics() == []


@pytest.mark.parametrize("resume", [False, True])
def test_somebody_elses_folder_is_refused_and_left_alone(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "thesis.tex").write_text("\\end")
    with pytest.raises(RunDirectoryError, match="holds files that no run wrote"):
        RunDirectory(tmp_path, resume=resume)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RunDirectoryError, match="is a file"):
        RunDirectory(tmp_path / "run")


def test_a_second_entry_in_one_process_is_refused_and_keeps_the_first(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run"):
        for _ in range(2):
            with pytest.raises(RunDirectoryError, match="already open in this process"):
                RunDirectory(tmp_path / "run", resume=True)
    RunDirectory(tmp_path / "run", resume=True).close()


def test_another_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunDirectoryError, match=rf"in use by another run \(process {holder.pid}\)"):
            RunDirectory(run, resume=True)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with RunDirectory(run, resume=True) as directory:
        assert directory.read_metrics() == [{"step": 1}]


def test_a_forked_child_does_not_hold_the_folder_of_a_killed_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", FORK_AND_DIE, str(run)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            parent.kill()
            parent.wait()
            RunDirectory(run, resume=True).close()
        finally:
            os.kill(child, signal.SIGKILL)


def test_truncation_forgets_what_came_after_the_step(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as directory:
        directory.write_validation(0, results(False, False))
        for step in (1, 2, 3, 4):
            directory.append_metrics({"step": step, "success_rate": step / 10})
            append_json_line(directory.trajectories_of(step), {"task": "train-0"})
        directory.write_validation(2, results(True, False))
        directory.write_validation(4, results(True, True))
        directory.write_summary({"steps": 4})
        directory.learning_curve.write_bytes(b"png")
        (directory.checkpoints / "step_000004").mkdir()
        with directory.metrics.open("a") as file:
            file.write('{"step": 5')  # killed in the middle of a line

        directory.truncate_after(2)

        assert [record["step"] for record in directory.read_metrics()] == [1, 2]
        names = sorted(path.name for path in directory.trajectories.iterdir())
        assert names == ["step_000001.jsonl", "step_000002.jsonl"]
        assert directory.read_validations() == {0: SuccessRate(0, 2), 2: SuccessRate(1, 2)}
        assert not directory.summary.exists()
        assert not directory.learning_curve.exists()
        assert (directory.checkpoints / "step_000004").is_dir()
        directory.append_metrics({"step": 3})
        assert [record["step"] for record in directory.read_metrics()] == [1, 2, 3]


def test_truncation_of_an_empty_run_does_nothing(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as directory:
        directory.truncate_after(0)
        assert not directory.metrics.exists()


def test_validations_come_in_the_order_of_steps(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as directory:
        for step in (1_000_000, 5, 200):
            directory.write_validation(step, results(True))
        assert list(directory.read_validations()) == [5, 200, 1_000_000]


def test_a_validation_is_counted_and_replaced(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as directory:
        assert directory.write_validation(0, results(True, False, False)) == SuccessRate(1, 3)
        directory.write_validation(0, results(True, True, False))
        assert directory.read_validations() == {0: SuccessRate(2, 3)}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "at least one problem"),
        ([{"task": "a", "success": True}, {"task": "a", "success": True}], "'a' occurs twice"),
        ([{"task": "a"}], "'a' needs 'success'"),
    ],
)
def test_a_malformed_validation_is_refused(tmp_path: Path, records: list[dict[str, object]], message: str) -> None:
    with RunDirectory(tmp_path / "run") as directory:
        with pytest.raises(ValueError, match=message):
            directory.write_validation(0, records)
        assert directory.read_validations() == {}


@pytest.mark.parametrize("record", [{}, {"step": "1"}, {"step": True}])
def test_metrics_without_a_step_are_refused(tmp_path: Path, record: dict[str, object]) -> None:
    with RunDirectory(tmp_path / "run") as directory, pytest.raises(ValueError, match="integer 'step'"):
        directory.append_metrics(record)
