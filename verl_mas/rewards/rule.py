"""The `rule` reward manager: the environment's team and local scores mixed by AT-GRPO's rules, and rules on top."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from verl_mas.config.suggest import unknown_name_error
from verl_mas.rewards.base import Reward, RewardManager
from verl_mas.rewards.parts import RewardParts
from verl_mas.trajectory.records import Invocation, Trajectory

MIXINGS = ("sum", "convex")
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Rule:
    """A further term: `weight * function(invocation, trajectory)` is added to the reward of every invocation.

    A node rule looks at the invocation alone, a turn rule at those with its turn, a trajectory rule at the trajectory:
    the three levels are what the pure function reads. `name` is the term's key in the breakdown.
    """

    name: str
    function: Callable[[Invocation, Trajectory], float]
    weight: float = 1.0


class RuleRewardManager(RewardManager):
    """Mixes the team score and the local component scores of an action (AT-GRPO).

    `sum` (Eq. 4): reward = alpha * team + mask * local.
    `convex` (appendix A.1): reward = lam * team + (1 - lam) * mask * local.
    The breakdown holds "team" and one "local.<component>" each, already weighted, so that its values, added in order,
    are the reward exactly.

    Args:
        mixing: "sum" or "convex". alpha: weight of the team score under `sum`, >= 0.
        lam: weight of the team score under `convex`, in [0, 1]; the paper has one per task (math .70, sudoku .60,
            plan-path .50, sokoban .40).
        rules: further terms, added when the trajectory has ended.

    Raises:
        UnknownNameError: unknown mixing. ValueError: a number out of range, convex mixing without lam, or a rule whose
        name is taken.
    """

    def __init__(
        self, mixing: str = "sum", alpha: float = 1.0, lam: float | None = None, rules: Sequence[Rule] = ()
    ) -> None:
        if mixing not in MIXINGS:
            raise unknown_name_error("mixing", mixing, MIXINGS)
        if not (math.isfinite(alpha) and alpha >= 0):
            raise ValueError(f"alpha must be a finite number >= 0, not {alpha}")
        if lam is not None:
            _require_unit("lam", lam)
        if mixing == "convex":
            if lam is None:
                raise ValueError("convex mixing needs lam, the weight of the team score")
            self._team_weight, self._local_weight = lam, 1.0 - lam
        else:
            self._team_weight, self._local_weight = alpha, 1.0
        names = ["team", *(rule.name for rule in rules)]
        for name in names[1:]:
            if names.count(name) > 1 or name.startswith("local."):
                raise ValueError(f"the name of rule '{name}' is taken in the breakdown")
        self._rules = tuple(rules)

    def score(self, role: str, parts: RewardParts) -> Reward:
        """The mixed reward of one action. See RewardManager."""
        _require_unit(f"team score of role '{role}'", parts.team)
        if parts.mask not in (0.0, 1.0):
            raise ValueError(f"mask of role '{role}' must be 0 or 1, not {parts.mask}")
        for name, component in parts.local.items():
            _require_unit(f"weight of local component '{name}' of role '{role}'", component.weight)
            _require_unit(f"score of local component '{name}' of role '{role}'", component.score)
        total = sum(component.weight for component in parts.local.values())
        if parts.local and abs(total - 1.0) > _TOLERANCE:
            raise ValueError(f"weights of the local components of role '{role}' add up to {total}, not 1")
        local_weight = self._local_weight * parts.mask
        local = {f"local.{name}": local_weight * part.weight * part.score for name, part in parts.local.items()}
        return Reward.of({"team": self._team_weight * parts.team, **local})

    async def assign(self, trajectory: Trajectory) -> None:
        """Add the rules' terms. Every rule sees the rewards as they were before any rule."""
        terms = [
            {rule.name: rule.weight * rule.function(invocation, trajectory) for rule in self._rules}
            for invocation in trajectory.invocations
        ]
        for invocation, added in zip(trajectory.invocations, terms, strict=True):
            if not added:
                continue
            reward = Reward.of({**invocation.breakdown, **added})
            invocation.reward, invocation.breakdown = reward.value, dict(reward.breakdown)


def _require_unit(name: str, value: float) -> None:
    if not -_TOLERANCE <= value <= 1.0 + _TOLERANCE:  # also false for NaN
        raise ValueError(f"{name} must be in [0, 1], not {value}")
