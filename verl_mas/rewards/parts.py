"""What an environment says about one action: its team score and its local component scores."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Component:
    """One named term of a local reward: `weight * score`, both in [0, 1]."""

    weight: float
    score: float


@dataclass(frozen=True, slots=True)
class RewardParts:
    """The ingredients of the reward of one action, before any mixing.

    Attributes:
        team: score of the team after the action, in [0, 1].
        local: component scores of the acting role; the weights sum to 1.
        mask: 1.0 if the local reward applies to this action, else 0.0 (AT-GRPO, appendix A.1).
    """

    team: float
    local: Mapping[str, Component] = field(default_factory=dict)
    mask: float = 1.0

    @property
    def local_score(self) -> float:
        """The convex combination sum(weight * score), in [0, 1]."""
        return sum(part.weight * part.score for part in self.local.values())
