"""One run of a team from the person's side: its folder, its log, its progress, its summary, and its exit status."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_mas.config.compose import Composed
from verl_mas.hooks import Plugins
from verl_mas.reporting.logs import Terminal, redirect_output
from verl_mas.reporting.memory import PeakMemory
from verl_mas.reporting.plots import plot_learning_curve
from verl_mas.reporting.progress import RunProgress
from verl_mas.reporting.run_directory import RunDirectory, RunDirectoryError
from verl_mas.reporting.summary import build_summary, describe_summary, package_versions
from verl_mas.training.checkpoint import CheckpointError, CheckpointStore, read_manifest
from verl_mas.training.errors import describe_error
from verl_mas.training.start import train_team
from verl_mas.trajectory.jsonl import append_trajectories
from verl_mas.trajectory.records import Trajectory

SUCCESS, FAILURE, WRONG_CONFIGURATION, INTERRUPTED = 0, 1, 2, 130


class RunReporter:
    """Writes what the loop reports into the run's folder and shows it. Implements `loop.Reporter`."""

    def __init__(self, directory: RunDirectory, progress: RunProgress) -> None:
        self._directory = directory
        self._progress = progress

    def phase(self, name: str) -> None:
        """See `loop.Reporter`."""
        self._progress.phase(name)

    def step(
        self, step: int, metrics: dict[str, float], seconds: dict[str, float], trajectories: list[Trajectory]
    ) -> None:
        """See `loop.Reporter`."""
        record: dict[str, Any] = {"step": step, "time": time.time(), "phase_seconds": seconds, **metrics}
        append_trajectories(self._directory.trajectories_of(step), trajectories)
        self._directory.append_metrics(record)
        self._progress.step(record)

    def warn(self, text: str) -> None:
        """See `loop.Reporter`."""
        self._progress.announce(text)

    def validation(self, step: int, trajectories: list[Trajectory]) -> None:
        """See `loop.Reporter`."""
        rate = self._directory.write_validation(step, map(_problem, trajectories))
        self._progress.announce(f"validation after {step} steps: {rate}")


def run_session(composed: Composed, plugins: Plugins, facts: Sequence[str]) -> int:
    """Train the team; whatever goes wrong is told in a line, with the way to continue.

    Returns:
        The process's exit status: 0 for success, 1 for a run that failed, 2 for a run that could not begin, 130 for one
        that was interrupted.
    """
    run = composed.run
    try:
        with RunDirectory(run.run_dir, resume=run.resume == "auto") as directory:
            restore = _checkpoint(run, composed, directory)
            return _run(composed, plugins, facts, directory, restore)
    except (RunDirectoryError, CheckpointError) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG_CONFIGURATION


def _run(
    composed: Composed, plugins: Plugins, facts: Sequence[str], directory: RunDirectory, restore: Path | None
) -> int:
    run = composed.run
    done = 0 if restore is None else read_manifest(restore).step
    directory.truncate_after(done)
    directory.write_config(_as_yaml(composed))
    terminal: Terminal | None = None
    try:
        with redirect_output(directory.log) as terminal, PeakMemory() as memory:
            began = time.monotonic()
            with RunProgress(terminal.err, run.steps, min(done, run.steps)) as progress:
                for fact in [*facts, f"everything is written to {directory.path}", *_resumed(done)]:
                    progress.announce(fact)
                info = train_team(
                    composed,
                    plugins,
                    restore=restore,
                    reporter=RunReporter(directory, progress),
                    say=progress.announce,
                )
            summary = _summarise(run, directory, time.monotonic() - began, memory, done or None)
            plugins.notify("run_end", run=info, summary=summary)
            terminal.out.write(f"{describe_summary(summary)}\nlearning curve: {directory.learning_curve}\n")
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; {_way_on(run)}\n")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the top of the run; the traceback is in its log
        sys.stderr.write(f"the run failed: {describe_error(error)}\nlog: {directory.log}\n{_way_on(run)}\n")
        return FAILURE
    return SUCCESS


def _checkpoint(run: DictConfig, composed: Composed, directory: RunDirectory) -> Path | None:
    """The checkpoint to continue from, after checking that it fits the run.

    Raises:
        CheckpointError: it is of another seed, or lacks a policy.
    """
    if run.resume == "disable":
        return None
    folder = CheckpointStore(directory.checkpoints).latest() if run.resume == "auto" else Path(run.resume)
    if folder is None:
        return None
    manifest = read_manifest(folder)
    if run.resume == "auto" and manifest.seed != run.seed:
        raise CheckpointError(f"{folder} is of seed={manifest.seed}, not of seed={run.seed}: give the run's own seed")
    missing = [policy for policy in composed.policies if policy not in manifest.policies]
    if missing:
        raise CheckpointError(f"{folder} holds {', '.join(manifest.policies)}, but not {', '.join(missing)}")
    return folder


def _summarise(
    run: DictConfig, directory: RunDirectory, seconds: float, memory: PeakMemory, resumed: int | None
) -> dict[str, Any]:
    records, validations = directory.read_metrics(), directory.read_validations()
    summary = build_summary(
        before=validations.get(0),
        after=validations.get(run.steps),
        records=records,
        wall_seconds=seconds,
        seed=run.seed,
        versions=package_versions(),
        peak_memory_bytes=memory.sample(),
        resumed_from_step=resumed,
    )
    directory.write_summary(summary)
    plot_learning_curve(directory.learning_curve, records, validations, title=run.recipe)
    return summary


def _problem(trajectory: Trajectory) -> dict[str, Any]:
    """One held-out problem's line."""
    said = [
        {"role": one.role, "turn": one.turn, "response": one.response, "reward": one.reward, "info": one.info}
        for one in trajectory.invocations
    ]
    return {
        "task": trajectory.task,
        "digest": trajectory.task_digest,
        "success": trajectory.success,
        "turns": trajectory.turns,
        "error": trajectory.error,
        "responses": said,
    }


def _as_yaml(composed: Composed) -> str:
    """The run's options and every policy's complete verl tree."""
    verl = {name: OmegaConf.to_container(tree) for name, tree in composed.policies.items()}
    return f"{OmegaConf.to_yaml(composed.run)}\n# verl's tree of each policy\n{OmegaConf.to_yaml({'verl': verl})}"


def _resumed(done: int) -> list[str]:
    return [f"continuing after step {done}"] if done else []


def _way_on(run: DictConfig) -> str:
    return f"continue from the last checkpoint with the same command and run_dir={run.run_dir} resume=auto"
