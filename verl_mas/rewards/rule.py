"""The `rule` reward manager: the environment's team and local scores mixed by AT-GRPO's rules, and rules on top."""

import math
from collections.abc import Mapping, Sequence

from verl_mas.config.suggest import unknown_name_error
from verl_mas.rewards.base import Reward, RewardManager
from verl_mas.rewards.parts import RewardParts
from verl_mas.rewards.rules import RewardRule
from verl_mas.trajectory.records import Trajectory

MIXINGS = ("sum", "convex")
_TOLERANCE = 1e-9


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
        rules: further terms, added when the trajectory has ended; see rules.py. A task family offers its own.
        rule_weights: weights that replace those of the rules, by name.

    Raises:
        UnknownNameError: unknown mixing, or a weight for a rule that is not there. ValueError: a number out of range,
        convex mixing without lam, or a rule whose name is taken or has a dot.
    """

    def __init__(
        self,
        mixing: str = "sum",
        alpha: float = 1.0,
        lam: float | None = None,
        rules: Sequence[RewardRule] = (),
        rule_weights: Mapping[str, float] | None = None,
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
        for rule in rules:
            if not isinstance(rule, RewardRule):
                raise ValueError(
                    f"rules are RewardRule objects, which a task family offers as reward_rules, not {rule!r}"
                )
        names = ["team", *(rule.name for rule in rules)]
        for name in names[1:]:
            if names.count(name) > 1 or name.startswith("local."):
                raise ValueError(f"the name of rule '{name}' is taken in the breakdown")
            if not name or "." in name or "/" in name:
                raise ValueError(f"rule '{name}' needs a name without a dot or a slash")
        weights = {rule.name: rule.weight for rule in rules}
        for name, weight in (rule_weights or {}).items():
            if name not in weights:
                raise unknown_name_error("rule in rule_weights", name, weights)
            weights[name] = weight
        for name, weight in weights.items():
            if not math.isfinite(weight):
                raise ValueError(f"the weight of rule '{name}' must be a finite number, not {weight}")
        self._rules = tuple(rules)
        self._weights = weights

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
        """Add the rules' terms. Every rule sees the rewards as they were before any rule.

        Each assignment is a term of its own: the first of a rule to an invocation is named after the rule, the k-th
        "<rule>.<k>". So the breakdown, added in order, is the reward exactly.

        Raises:
            ValueError: a rule assigns to a row that the trajectory does not have, or a value that is not finite.
        """
        if not self._rules:
            return
        terms: dict[str, dict[str, float]] = {one.row: {} for one in trajectory.invocations}
        for rule in self._rules:
            given: dict[str, int] = {}
            for assignment in rule.assignments(trajectory):
                row, value = assignment.row, self._weights[rule.name] * assignment.value
                if row not in terms:
                    raise ValueError(f"rule '{rule.name}' assigns to row {row}, which is not in the trajectory")
                if not math.isfinite(value):
                    raise ValueError(f"rule '{rule.name}' assigns {assignment.value} to row {row}: not finite")
                given[row] = given.get(row, 0) + 1
                terms[row][rule.name if given[row] == 1 else f"{rule.name}.{given[row]}"] = value
        for invocation in trajectory.invocations:
            if terms[invocation.row]:
                reward = Reward.of({**invocation.breakdown, **terms[invocation.row]})
                invocation.reward, invocation.breakdown = reward.value, dict(reward.breakdown)


def _require_unit(name: str, value: float) -> None:
    if not -_TOLERANCE <= value <= 1.0 + _TOLERANCE:  # also false for NaN
        raise ValueError(f"{name} must be in [0, 1], not {value}")
