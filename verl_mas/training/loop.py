"""The training loop: sample, assign credit, learn, validate, save; the same few lines for every algorithm and task."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from omegaconf import DictConfig

from verl_mas.advantages import Estimator
from verl_mas.hooks import Plugins
from verl_mas.training.checkpoint import CheckpointStore, Manifest
from verl_mas.training.diagnostics import ZeroAdvantageWatch
from verl_mas.training.metrics import assign_advantages, step_metrics, take_off_kl
from verl_mas.training.team import Team, TokenCredit
from verl_mas.training.token_credit import token_advantages
from verl_mas.trajectory.records import Trajectory
from verl_mas.workflow.environment import TaskFamily


@dataclass(frozen=True, slots=True)
class Run:
    """What observers are told about the run.

    Attributes:
        recipe, directory, seed, steps: as configured. config: the run's own options, resolved.
    """

    recipe: str
    directory: Path
    seed: int
    steps: int
    config: DictConfig


class Reporter(Protocol):
    """Where the loop says what happens."""

    def phase(self, name: str) -> None:
        """A phase begins: validation, rollout, advantages, learn, checkpoint."""

    def step(
        self, step: int, metrics: dict[str, float], seconds: dict[str, float], trajectories: list[Trajectory]
    ) -> None:
        """A training step has ended."""

    def warn(self, text: str) -> None:
        """Something is wrong, and the run goes on."""

    def validation(self, step: int, trajectories: list[Trajectory]) -> None:
        """A validation with the weights of `step` has ended; in the order of the tasks."""


class Loop:
    """Drives a started team from `start` steps done to `run.steps`.

    Args:
        start: training steps that the team's weights have already had.
        credit_over_tokens: whether tokens of one response may earn different advantages: the estimator works on
            tokens, or KL is in a policy's reward.
    """

    def __init__(
        self,
        run: Run,
        team: Team,
        family: TaskFamily,
        estimator: Estimator,
        store: CheckpointStore,
        plugins: Plugins,
        reporter: Reporter,
        start: int = 0,
        credit_over_tokens: bool = False,
    ) -> None:
        self.run = run
        self.team = team
        self.family = family
        self.estimator = estimator
        self.store = store
        self.plugins = plugins
        self.reporter = reporter
        self.start = start
        self.credit_over_tokens = credit_over_tokens
        self._watch = ZeroAdvantageWatch(run.config.diagnostics.max_zero_steps)

    def train(self) -> None:
        """Run every remaining step, with the validations and checkpoints that the configuration asks for."""
        config = self.run.config
        if config.validation.before and self.start == 0:
            self.validate(0)
        for step in range(self.start + 1, self.run.steps + 1):
            self.step(step)
            last = step == self.run.steps
            if last or _due(step, config.checkpoint.every):
                self.save(step)
            if not last and _due(step, config.validation.every):
                self.validate(step)
        if config.validation.after:
            self.validate(max(self.start, self.run.steps))

    def step(self, step: int) -> None:
        """One training step: the tasks of the step depend on nothing but the seed and the step.

        Raises:
            NothingLearned: the last `diagnostics.max_zero_steps` steps had no advantage other than zero.
        """
        seconds: dict[str, float] = {}
        first = (step - 1) * self.run.config.tasks_per_step
        with self._timed("rollout", seconds):
            tasks = [self.family.task("train", first + index) for index in range(self.run.config.tasks_per_step)]
            trajectories = self.team.rollout(tasks, "train", step - 1, greedy=False)
        for trajectory in trajectories:
            self.plugins.notify("trajectory_end", run=self.run, trajectory=trajectory)
        with self._timed("advantages", seconds):
            invocations = assign_advantages(trajectories, self.estimator)
        self.plugins.notify("rewards_assigned", run=self.run, trajectories=trajectories)
        with self._timed("learn", seconds):
            learned = self.team.learn(invocations, step, self._token_credit(trajectories))
        warning = self._watch.look(step, invocations)
        if warning is not None:
            self.reporter.warn(warning)
        metrics = {**step_metrics(trajectories), **learned.metrics}
        metrics["diagnostics/all_zero_advantages"] = float(warning is not None)
        metrics.update({f"{policy}/skipped_updates": 1.0 for policy in learned.skipped})
        seconds.update({f"learn/{phase}": value for phase, value in learned.seconds.items()})
        self.reporter.step(step, metrics, seconds, trajectories)
        self.plugins.notify("step_end", run=self.run, metrics={"step": step, **metrics})
        self._watch.raise_if_too_many()

    def _token_credit(self, trajectories: list[Trajectory]) -> TokenCredit | None:
        """What computes the step's advantages where the tokens are; None if those of the invocations are final."""
        if not self.credit_over_tokens:
            return None

        def reassign(penalties: Mapping[str, float]) -> None:
            take_off_kl(trajectories, penalties)
            assign_advantages(trajectories, self.estimator)

        return lambda shards: token_advantages(self.estimator, shards, reassign)

    def validate(self, step: int) -> list[Trajectory]:
        """One greedy trajectory for each held-out task; a failed one counts as not solved."""
        self.reporter.phase("validation")
        tasks = [self.family.task("val", index) for index in range(self.run.config.validation.tasks)]
        trajectories = self.team.rollout(tasks, "val", step, greedy=True)
        self.reporter.validation(step, trajectories)
        self.plugins.notify("validation", run=self.run, results=trajectories)
        return trajectories

    def save(self, step: int) -> Path:
        """Write all policies as one unit."""
        self.reporter.phase("checkpoint")
        manifest = Manifest(step=step, seed=self.run.seed, policies=tuple(self.team.trainers))
        path = self.store.save(manifest, lambda folder: self.team.save(folder, step))
        self.plugins.notify("checkpoint", run=self.run, path=path)
        return path

    @contextmanager
    def _timed(self, phase: str, seconds: dict[str, float]) -> Iterator[None]:
        self.reporter.phase(phase)
        start = time.perf_counter()
        yield
        seconds[phase] = time.perf_counter() - start


def _due(step: int, every: int) -> bool:
    """Whether something that happens every so many steps (0: never) happens after this one."""
    return every > 0 and step % every == 0
