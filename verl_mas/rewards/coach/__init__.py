"""The coach: an LLM that scores every action. Light to import: the client and its libraries load with the manager."""

from typing import TYPE_CHECKING, Any

from verl_mas.rewards.coach.errors import BudgetExceeded, CoachError, CoachUnavailable
from verl_mas.rewards.coach.parsing import parse_json_score, parse_score
from verl_mas.rewards.coach.statistics import coach_metrics

if TYPE_CHECKING:
    from verl_mas.rewards.coach.manager import CoachRewardManager

__all__ = [
    "BudgetExceeded",
    "CoachError",
    "CoachRewardManager",
    "CoachUnavailable",
    "coach_metrics",
    "coach_reward_manager",
    "parse_json_score",
    "parse_score",
]


def coach_reward_manager(**options: Any) -> "CoachRewardManager":
    """The `coach` reward manager with `reward.options`. Raises: see CoachRewardManager."""
    from verl_mas.rewards.coach.manager import CoachRewardManager

    return CoachRewardManager(**options)


def __getattr__(name: str) -> Any:
    if name == "CoachRewardManager":
        from verl_mas.rewards.coach.manager import CoachRewardManager

        return CoachRewardManager
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
