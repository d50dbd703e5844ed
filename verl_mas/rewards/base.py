"""The reward-manager protocol: one reward, with its reasons, for every invocation."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_mas.rewards.parts import RewardParts
from verl_mas.trajectory.records import Trajectory


@dataclass(frozen=True, slots=True)
class Reward:
    """The reward of one action and the weighted terms that add up to it. Both must be finite (else ValueError)."""

    value: float
    breakdown: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not all(math.isfinite(number) for number in (self.value, *self.breakdown.values())):
            raise ValueError(f"a reward must be finite: {self.value}, of {dict(self.breakdown)}")

    @classmethod
    def of(cls, breakdown: Mapping[str, float]) -> "Reward":
        """The reward that is exactly the sum of its terms."""
        return cls(sum(breakdown.values(), 0.0), breakdown)


class RewardManager(ABC):
    """Assigns rewards twice: to an action when it is taken, and to all actions when the trajectory has ended."""

    def open(self, directory: Path, workers: int = 1) -> None:  # noqa: B027 - an optional hook
        """Called before the first trajectory, in each process that executes workflows.

        Args:
            directory: the run's, for files to keep. workers: how many such processes there are, to share out limits.
        """

    async def close(self) -> None:  # noqa: B027 - an optional hook
        """Release connections and files. What must not be lost is already on disk: a run may end without this call."""

    @abstractmethod
    def score(self, role: str, parts: RewardParts) -> Reward:
        """The reward of one action of `role`, by which tree sampling chooses. Pure and quick.

        Raises:
            ValueError: a score or weight is outside its range.
        """

    async def assign(self, trajectory: Trajectory) -> None:  # noqa: B027 - an optional hook
        """Settle `reward`, `breakdown` and `masked` of every invocation of a finished trajectory, in place.

        Runs beside the other trajectories' rollouts, so it may wait for an LLM; an exception ends the run. Afterwards
        every invocation has a finite reward or is masked. The default keeps what `score` gave.
        """
