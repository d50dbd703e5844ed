"""What a coach's scores look like, by role and type of task (MAPPA, table 3): metrics, and a note to the coach."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from verl_mas.rewards.coach.parsing import SCALE
from verl_mas.rewards.coach.questions import NOTES
from verl_mas.trajectory.records import Trajectory


@dataclass(slots=True)
class Moments:
    """Count, mean and spread of numbers that come one by one (Welford 1962), and how many actions had none."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    unscored: int = 0

    def add(self, value: float | None) -> None:
        """One more; None is an action without a score."""
        if value is None:
            self.unscored += 1
            return
        self.count += 1
        step = value - self.mean
        self.mean += step / self.count
        self.squares += step * (value - self.mean)

    @property
    def std(self) -> float:
        """Population standard deviation, 0 without numbers."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0


class ScoreStatistics:
    """Scores in [0, 1] by (role, type of task); "" is an unnamed type."""

    def __init__(self) -> None:
        self._by: dict[tuple[str, str], Moments] = {}
        self._role: dict[str, Moments] = {}

    def add(self, role: str, task_type: str, score: float | None) -> None:
        """One more action; None if it has no score."""
        self._by.setdefault((role, task_type), Moments()).add(score)
        self._role.setdefault(role, Moments()).add(score)

    def metrics(self) -> dict[str, float]:
        """`coach/score/<role>[/<type>]`, `coach/score_std/...`, `coach/unscored/...` (a count), in order of name."""
        named = dict(self._role)
        named |= {f"{role}/{kind}": moments for (role, kind), moments in self._by.items() if kind}
        metrics: dict[str, float] = {}
        for name, moments in sorted(named.items()):
            if moments.count:
                metrics[f"coach/score/{name}"] = moments.mean
                metrics[f"coach/score_std/{name}"] = moments.std
            metrics[f"coach/unscored/{name}"] = float(moments.unscored)
        return metrics

    def note(self) -> str:
        """What the coach is told about its own scores, on its scale of 0 to 10; "" before there are any."""
        rows = sorted((role, kind, one) for (role, kind), one in self._by.items() if one.count)
        if not rows:
            return ""
        lines = [
            f"- {role}{f', {kind} tasks' if kind else ''}: {one.count} actions, mean {SCALE * one.mean:.2f}, "
            f"standard deviation {SCALE * one.std:.2f}"
            for role, kind, one in rows
        ]
        return "\n".join(
            [
                "Your scores train these agents. So far you have scored:",
                *lines,
                "If you score one kind of task higher than another for the same quality, the agents will learn to do "
                "well on that kind alone: score each action by its own quality, on one scale for all.",
            ]
        )


def coach_metrics(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """Metrics of one step from the notes that the coach left in its trajectories; {} if it scored none of them.

    Beside those of ScoreStatistics: `coach/calls`, `coach/known` (verdicts without a call), `coach/tokens`, and
    `coach/failure_rate`, the share of actions without a score.
    """
    statistics, actions, unscored = ScoreStatistics(), 0, 0
    totals = {"calls": 0, "known": 0, "tokens": 0}
    for trajectory in trajectories:
        for name, amount in trajectory.info.get(NOTES, {}).items():
            totals[name] += amount
        for invocation in trajectory.invocations:
            note = invocation.info.get(NOTES)
            if note is None:
                continue
            actions += 1
            unscored += invocation.masked
            statistics.add(invocation.role, note["task_type"], note["score"])
    if not actions:
        return {}
    counted = {f"coach/{name}": float(amount) for name, amount in totals.items()}
    return {**statistics.metrics(), **counted, "coach/failure_rate": unscored / actions}
