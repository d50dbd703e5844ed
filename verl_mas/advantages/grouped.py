"""Estimators that compare an invocation's reward with the other rewards of its group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from verl_mas.advantages.base import SCHEMES, Estimator
from verl_mas.advantages.credits import KEY_COLUMNS, Credits
from verl_mas.advantages.grouping import Groups, deviations, maxima, standardized
from verl_mas.config.suggest import unknown_name_error

FloatArray = npt.NDArray[np.float64]

_EPS = 1e-6
_REPEATED = "a response has one row for every joint action it is part of, so it would be counted more than once"


@dataclass(frozen=True, kw_only=True)
class GroupEstimator(Estimator):
    """Options: group_by, the columns whose values the members of a group share (see KEY_COLUMNS)."""

    group_by: tuple[str, ...] = ("task", "role", "turn")

    def __post_init__(self) -> None:
        group_by: object = self.group_by
        if not isinstance(group_by, Sequence) or isinstance(group_by, str) or not group_by:
            raise ValueError(f"{self.name} option group_by must be a list of columns, not {group_by!r}")
        object.__setattr__(self, "group_by", tuple(group_by))
        for column in self.group_by:
            if column not in KEY_COLUMNS:
                raise unknown_name_error(f"column in {self.name} option group_by:", str(column), KEY_COLUMNS)

    def groups(self, credits: Credits) -> Groups:
        """The groups whose rewards are compared."""
        return credits.groups(*self.group_by)

    def refusals(self) -> Mapping[str, str]:
        return {"joint_cross": _REPEATED, "joint_cross_tree": _REPEATED}


@dataclass(frozen=True, kw_only=True)
class AtGrpo(GroupEstimator):
    """A = (r - mean) / (std + 1e-6) over (task, role, turn); AT-GRPO, Alg. 1, Eq. 1.

    The sample standard deviation (ddof 1). A group with one member or with equal rewards gives zeros.

    Options:
        group_by: as for every group estimator.
        group_size: K; if given, a group of another size raises ValueError.
        same_prompt: the members of a group answer the same prompt (the paper), which only tree sampling ensures;
            asserted if Credits has the column `prompt`. False groups the rows of one role and turn although their
            prompts differ: the ablation against parallel sampling. It changes no number, only what is refused.
    """

    name: ClassVar[str] = "at_grpo"
    group_size: int | None = None
    same_prompt: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        size: object = self.group_size
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise ValueError(f"at_grpo option group_size must be a positive whole number or null, not {size!r}")
        same_prompt: object = self.same_prompt
        if not isinstance(same_prompt, bool):
            raise ValueError(f"at_grpo option same_prompt must be true or false, not {same_prompt!r}")

    def refusals(self) -> Mapping[str, str]:
        if not self.same_prompt:
            return super().refusals()
        differ = "the prompts of a group differ after the first turn (same_prompt: false allows it, for comparison)"
        return {scheme: differ for scheme in SCHEMES if scheme != "tree"} | dict(super().refusals())

    def estimate(self, credits: Credits) -> FloatArray:
        groups = self.groups(credits)
        if self.group_size is not None and (wrong := np.flatnonzero(groups.sizes != self.group_size)).size:
            where = credits.describe(int(groups.first[wrong[0]]), self.group_by)
            raise ValueError(
                f"at_grpo: the group of {where} has {groups.sizes[wrong[0]]} members, not group_size={self.group_size} "
                f"({wrong.size} of {groups.count} groups are wrong)"
            )
        if self.same_prompt and credits.prompt is not None:
            prompt = credits.prompt.codes
            if (differs := np.flatnonzero(prompt != prompt[groups.first][groups.codes])).size:
                where = credits.describe(int(differs[0]), self.group_by)
                raise ValueError(f"at_grpo: the group of {where} has more than one prompt (option same_prompt)")
        return standardized(credits.reward, groups, ddof=1, eps=_EPS)


@dataclass(frozen=True, kw_only=True)
class AgentGrpo(GroupEstimator):
    """A = (r - mean) / (std + 1e-6) over (task, role), sample standard deviation; Dr. MAS.

    Every invocation counts, however many of them a trajectory has.
    """

    name: ClassVar[str] = "agent_grpo"
    group_by: tuple[str, ...] = ("task", "role")

    def estimate(self, credits: Credits) -> FloatArray:
        return standardized(credits.reward, self.groups(credits), ddof=1, eps=_EPS)


@dataclass(frozen=True, kw_only=True)
class Rloo(GroupEstimator):
    """A = r - mean of the others in the group; 0 for a single member, which has no others. Ahmadian et al. 2024."""

    name: ClassVar[str] = "rloo"

    def estimate(self, credits: Credits) -> FloatArray:
        groups = self.groups(credits)
        factor = groups.sizes / np.maximum(groups.sizes - 1, 1)
        return deviations(credits.reward, groups) * factor[groups.codes]


@dataclass(frozen=True, kw_only=True)
class Remax(GroupEstimator):
    """A = r - max of the group, never positive.

    The best sampled reward is the baseline, not that of a greedy response as in verl's estimator of the same name.
    """

    name: ClassVar[str] = "remax"

    def estimate(self, credits: Credits) -> FloatArray:
        groups = self.groups(credits)
        return credits.reward - maxima(credits.reward, groups)[groups.codes]


@dataclass(frozen=True, kw_only=True)
class Reinforce(GroupEstimator):
    """A = r (Williams 1992), or with `baseline: mean` A = r - mean of the group."""

    name: ClassVar[str] = "reinforce"
    baseline: Literal["none", "mean"] = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_choice("baseline", ("none", "mean"))

    def estimate(self, credits: Credits) -> FloatArray:
        if self.baseline == "none":
            return credits.reward.copy()
        return deviations(credits.reward, self.groups(credits))
