"""The numbers of reward backpropagation (MAPPA, appendix F): f = alpha * p + beta * Delta, sum(Delta) near v(R)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from verl_mas.config.suggest import unknown_name_error

OUTCOMES = ("success", "team")
CONSISTENCIES = ("proportional", "shift", "prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackpropagationSettings:
    """How process scores and outcome contributions are combined. The paper gives no numbers: the defaults are ours.

    Attributes:
        alpha, beta: weights of the process score p_t and of the contribution Delta_t, >= 0 (Eq. 6).
        outcome: what v(R) is made from: success, whether the task was solved, or team, the last committed action's team
            score in [0, 1].
        failure_value, success_value: v(R) of an outcome of 0 and of 1, in [-1, 1]; in between, v(R) is linear. By
            default a failure is worth less than 0, so that good actions in failed trajectories can get a negative Delta
            (F.5).
        consistency: how sum(Delta) is brought to v(R) (Eq. 7). The coach is always told what is left; beyond that,
            prompt does nothing, proportional spreads what is missing over the actions by |Delta_t|, so that an action
            that did not matter keeps 0, and shift spreads it evenly.
    """

    alpha: float = 0.5
    beta: float = 0.5
    outcome: str = "success"
    failure_value: float = -1.0
    success_value: float = 1.0
    consistency: str = "proportional"

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "failure_value", "success_value"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"option 'backpropagation.{name}' must be a finite number, not {value!r}")
        for name in ("alpha", "beta"):
            if getattr(self, name) < 0:
                raise ValueError(f"option 'backpropagation.{name}' must be at least 0, not {getattr(self, name)}")
        for name in ("failure_value", "success_value"):
            if not -1.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"option 'backpropagation.{name}' must be in [-1, 1], not {getattr(self, name)}")
        if self.outcome not in OUTCOMES:
            raise unknown_name_error("outcome", str(self.outcome), OUTCOMES)
        if self.consistency not in CONSISTENCIES:
            raise unknown_name_error("consistency", str(self.consistency), CONSISTENCIES)

    def value(self, outcome: float) -> float:
        """v(R) of an outcome in [0, 1] (Eq. 7)."""
        return self.failure_value + outcome * (self.success_value - self.failure_value)

    def breakdown(self, process: float, contribution: float) -> dict[str, float]:
        """The terms of f_t (Eq. 6)."""
        return {"process": self.alpha * process, "outcome": self.beta * contribution}


def consistent(contributions: Sequence[float], value: float, how: str) -> list[float]:
    """Contributions whose sum is `value` (Eq. 7), unless `how` is prompt.

    proportional: Delta_t + (value - sum) * |Delta_t| / sum|Delta|; if all are 0, nothing says who it was: shift.
    shift: Delta_t + (value - sum) / T.

    Raises:
        ValueError: there is no contribution to adjust.
    """
    if not contributions:
        raise ValueError("an outcome needs at least one action to be attributed to")
    missing = value - math.fsum(contributions)
    total = math.fsum(abs(one) for one in contributions)
    if how == "prompt":
        return list(contributions)
    if how == "proportional" and total > 0:
        return [one + missing * (abs(one) / total) for one in contributions]
    return [one + missing / len(contributions) for one in contributions]
