"""One run of a team from the person's side: its folder, its log, its progress, its summary, and its exit status."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from omegaconf import OmegaConf

from verl_mas.config.compose import Composed
from verl_mas.hooks import Plugins
from verl_mas.reporting.logs import redirect_output
from verl_mas.reporting.run_directory import RunDirectory, RunDirectoryError
from verl_mas.training.start import train_team
from verl_mas.trajectory.jsonl import append_trajectories
from verl_mas.trajectory.records import Trajectory


class FileReporter:
    def __init__(self, directory, terminal, run):
        self.directory, self.terminal, self.run = directory, terminal, run
        self.t0 = time.time()

    def step(self, step, metrics, seconds, trajectories):
        self.directory.append_metrics({"step": step, "time": time.time(), "phase_seconds": seconds, **{k: float(v) for k, v in metrics.items()}})
        append_trajectories(self.directory.trajectories_of(step), trajectories)
        roles = " ".join(f"{k}={v:.3f}" for k, v in metrics.items() if k.startswith("reward/") and k.count("/") == 1)
        ph = " ".join(f"{k}={v:.2f}" for k, v in seconds.items())
        self.terminal.err.write(f"{time.time()-self.t0:6.1f} step {step}/{self.run.steps} success={metrics['success_rate']:.3f} {roles} {ph}\n")

    def validation(self, step, trajectories):
        r = self.directory.write_validation(step, [{"task": t.task, "digest": t.task_digest, "success": t.success, "turns": t.turns, "error": t.error} for t in trajectories])
        self.terminal.err.write(f"{time.time()-self.t0:6.1f} validation {step}: {r}\n")


def run_session(composed: Composed, plugins: Plugins, facts: Sequence[str], path: Path) -> int:
    with RunDirectory(path, resume=composed.run.resume == "auto") as directory, redirect_output(directory.log) as terminal:
        directory.write_config(OmegaConf.to_yaml(composed.run))
        t0 = time.time()
        train_team(composed, plugins, restore=None, make_reporter=lambda: FileReporter(directory, terminal, composed.run), say=lambda text: terminal.err.write(f"{time.time()-t0:5.1f} {text}\n"))
    return 0
