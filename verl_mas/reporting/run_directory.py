"""The folder of a run: what lies where, one run at a time in it, and back to a given step on resume."""

import fcntl
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from verl_mas.reporting.files import append_json_line, read_json_lines, write_json, write_json_lines, write_text
from verl_mas.reporting.statistics import SuccessRate

_LOCK = "run.lock"
_STEP_FILE = re.compile(r"step_(\d+)\.jsonl")


class RunDirectoryError(RuntimeError):
    """The folder cannot be used for this run; the message names the way out."""


class RunDirectory:
    """Everything that a run writes lies in one folder, held by one run at a time:

        config.yaml                      the resolved configuration
        metrics.jsonl                    one record per step
        trajectories/step_000012.jsonl   every candidate of a training step
        validation/step_000012.jsonl     one record per held-out problem, with the weights after that many steps
        checkpoints/                     written by the training
        learning_curve.png, summary.json at the end
        run.log                          what verl, Ray and vLLM have to say
        run.lock                         held while the run lives

    A context manager: leaving it lets the folder go. The lock is a POSIX record lock, which the kernel drops when the
    process ends, however it ends, and which forked children do not inherit.
    """

    # Record locks do not keep one process from entering twice, and closing any handle of the file drops them.
    _held: set[Path] = set()  # noqa: RUF012

    def __init__(self, path: Path | str, resume: bool = False) -> None:
        """Create the folder, or enter an existing one.

        Args:
            path: the folder; it and its parents are created.
            resume: enter a folder that already holds a run.

        Raises:
            RunDirectoryError: the folder holds a run and `resume` is off, or it holds something other than a run, or
                another run is at work in it, or the path is a file.
        """
        self.path = Path(path).expanduser().resolve()
        if self.path.exists() and not self.path.is_dir():
            raise RunDirectoryError(f"run_dir={self.path} is a file: choose another run_dir")
        content = {entry.name for entry in self.path.iterdir()} if self.path.exists() else set()
        if content and _LOCK not in content and not self.config.exists():
            raise RunDirectoryError(f"run_dir={self.path} holds files that no run wrote: choose a new or empty folder")
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = self._acquire()
        # What another run wrote before it let the folder go counts too, hence a second look.
        if not resume and any(entry.name != _LOCK for entry in self.path.iterdir()):
            self.close()
            raise RunDirectoryError(
                f"run_dir={self.path} already holds a run: continue it with resume=auto, or choose another run_dir"
            )
        for folder in (self.trajectories, self.validation, self.checkpoints):
            folder.mkdir(exist_ok=True)

    @property
    def config(self) -> Path:
        """The resolved configuration, YAML."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """One record per step, JSON lines."""
        return self.path / "metrics.jsonl"

    @property
    def trajectories(self) -> Path:
        """Folder of the training trajectories."""
        return self.path / "trajectories"

    @property
    def validation(self) -> Path:
        """Folder of the validations."""
        return self.path / "validation"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def summary(self) -> Path:
        """What came of the run, JSON."""
        return self.path / "summary.json"

    @property
    def learning_curve(self) -> Path:
        """The picture of the run."""
        return self.path / "learning_curve.png"

    @property
    def log(self) -> Path:
        """Everything that was printed."""
        return self.path / "run.log"

    def trajectories_of(self, step: int) -> Path:
        """File of one training step's trajectories, JSON lines."""
        return self.trajectories / _step_name(step)

    def validation_of(self, step: int) -> Path:
        """File of the validation after `step` training steps (0: before the first), JSON lines."""
        return self.validation / _step_name(step)

    def write_config(self, text: str) -> None:
        """Keep the resolved configuration (YAML text)."""
        write_text(self.config, text)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add one step's record: {"step": int, "time": ..., "phase_seconds": {...}, "success_rate": ..., ...}.

        Raises:
            ValueError: the record names no step.
        """
        _step_of(record, "a metrics record")
        append_json_line(self.metrics, record)

    def read_metrics(self) -> list[dict[str, Any]]:
        """The records so far, in the order of writing.

        Raises:
            ValueError: a line is no JSON object.
        """
        return read_json_lines(self.metrics)

    def write_validation(self, step: int, results: Iterable[Mapping[str, Any]]) -> SuccessRate:
        """Keep one validation, one record per problem with at least {"task": str, "success": bool}, and count it.

        Raises:
            ValueError: there are no results, or a problem occurs twice or says nothing about its success.
        """
        records = list(results)
        rate = _success_rate(records, self.validation_of(step))
        write_json_lines(self.validation_of(step), records)
        return rate

    def read_validations(self) -> dict[int, SuccessRate]:
        """Success on the held-out problems, by the number of training steps before it, in that order.

        Raises:
            ValueError: a file is no validation.
        """
        files = sorted((_step_in_name(path), path) for path in self.validation.glob("step_*.jsonl"))
        return {step: _success_rate(read_json_lines(path), path) for step, path in files}

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Keep what came of the run."""
        write_json(self.summary, summary)

    def truncate_after(self, step: int) -> None:
        """Forget what was written after `step` steps, so that a resumed run writes it anew.

        Metrics, trajectories and validations of later steps go, and so do the summary and the learning curve, which
        spoke of the whole. The checkpoints are not touched.

        Raises:
            ValueError: the metrics cannot be read, or name no step.
        """
        if self.metrics.exists():
            kept = [record for record in self.read_metrics() if _step_of(record, str(self.metrics)) <= step]
            write_json_lines(self.metrics, kept)
        for folder in (self.trajectories, self.validation):
            for path in folder.glob("step_*.jsonl"):
                if _step_in_name(path) > step:
                    path.unlink()
        self.summary.unlink(missing_ok=True)
        self.learning_curve.unlink(missing_ok=True)

    def close(self) -> None:
        """Let the folder go; closing twice does no harm."""
        if not self._lock.closed:
            self._lock.close()
            self._held.discard(self.path)

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _acquire(self) -> IO[str]:
        path = self.path / _LOCK
        if self.path in self._held:
            raise RunDirectoryError(f"run_dir={self.path} is already open in this process: choose another run_dir")
        lock = path.open("a+", encoding="utf-8")
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # POSIX allows either for a lock that another process holds
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise RunDirectoryError(
                f"run_dir={self.path} is in use by another run (process {holder}): wait for it, or choose another one"
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._held.add(self.path)
        return lock


def _step_name(step: int) -> str:
    if step < 0:
        raise ValueError(f"steps count from 0, got {step}")
    return f"step_{step:06d}.jsonl"


def _step_in_name(path: Path) -> int:
    match = _STEP_FILE.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path} is not named after a step (step_000012.jsonl)")
    return int(match.group(1))


def _step_of(record: Mapping[str, Any], where: str) -> int:
    step = record.get("step")
    if not isinstance(step, int) or isinstance(step, bool):
        raise ValueError(f"{where} must hold an integer 'step', got {step!r}")
    return step


def _success_rate(records: list[Any], path: Path) -> SuccessRate:
    if not records:
        raise ValueError(f"{path}: a validation needs at least one problem")
    tasks = set()
    for record in records:
        if record.get("task") in tasks:
            raise ValueError(f"{path}: problem {record.get('task')!r} occurs twice, or has no 'task'")
        if not isinstance(record.get("success"), bool):
            raise ValueError(f"{path}: problem {record.get('task')!r} needs 'success': true or false")
        tasks.add(record.get("task"))
    return SuccessRate.of(record["success"] for record in records)
