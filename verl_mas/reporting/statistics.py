"""Success rates with the uncertainty that a finite number of problems leaves."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval of a binomial proportion: (low, high), both in [0, 1].

    Unlike the normal approximation it stays inside [0, 1] and has a width at 0 and at `trials` successes.

    Raises:
        ValueError: no trials, successes outside 0..trials, or confidence outside (0, 1).

    Source: Wilson (1927), "Probable inference, the law of succession, and statistical inference", JASA 22.
    """
    if trials < 1:
        raise ValueError(f"an interval needs at least one trial, got {trials}")
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must lie in 0..{trials}, got {successes}")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    proportion = successes / trials
    spread = 1 + z * z / trials
    centre = (proportion + z * z / (2 * trials)) / spread
    half_width = z / spread * math.sqrt(proportion * (1 - proportion) / trials + z * z / (4 * trials * trials))
    # At the ends the formula gives exactly 0 and 1; rounding must not push the proportion out of its own interval.
    low = 0.0 if successes == 0 else max(0.0, centre - half_width)
    high = 1.0 if successes == trials else min(1.0, centre + half_width)
    return low, high


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """How many of how many problems were solved.

    Raises:
        ValueError: no trials, or successes outside 0..trials.
    """

    successes: int
    trials: int

    def __post_init__(self) -> None:
        wilson_interval(self.successes, self.trials)

    @classmethod
    def of(cls, outcomes: Iterable[bool]) -> "SuccessRate":
        """Count outcomes, one per problem; a problem that failed or timed out is False, never left out."""
        solved = [bool(outcome) for outcome in outcomes]
        return cls(sum(solved), len(solved))

    @property
    def rate(self) -> float:
        """Fraction solved, in [0, 1]."""
        return self.successes / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """95% Wilson interval of the rate."""
        return wilson_interval(self.successes, self.trials)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.rate:.1%} (95% interval {low:.1%} to {high:.1%})"
