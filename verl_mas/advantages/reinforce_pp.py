"""REINFORCE++ with statistics over all policies: what each shard sums, how the sums combine, and the estimator."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import fsum
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from verl_mas.advantages.base import Estimator
from verl_mas.advantages.credits import Credits
from verl_mas.advantages.grouping import suffix_sums

FloatArray = npt.NDArray[np.float64]

_EPS = 1e-8


class Sums(NamedTuple):
    """What a shard contributes to mu and var: three numbers, whatever its size.

    The squares are taken around the shard's own mean, and `combine` adds the spread between the shards' means (Chan,
    Golub and LeVeque 1979). Plain sums of A**2 would lose the variance to rounding where |mean| is much larger than
    the standard deviation.

    Attributes:
        weight: sum(m), the number of tokens. mean: sum(m A) / sum(m), 0 without tokens.
        squares: sum(m (A - mean)**2).
    """

    weight: float
    mean: float
    squares: float

    @property
    def variance(self) -> float:
        """sum(m (A - mu)**2) / sum(m), 0 without tokens."""
        return self.squares / self.weight if self.weight > 0 else 0.0


def sums(values: npt.ArrayLike, mask: npt.ArrayLike) -> Sums:
    """The sums of one shard.

    Args:
        values: A of every token, any shape; or of every invocation. Ignored, and may be anything, where the mask is 0.
        mask: same shape, >= 0: 1 for a token that counts, or the number of tokens that have this value.

    Raises:
        ValueError: the shapes differ, a negative weight, or a NaN or infinity that counts.
    """
    all_values, all_weights = np.asarray(values, dtype=np.float64), np.asarray(mask, dtype=np.float64)
    if all_values.shape != all_weights.shape:
        raise ValueError(f"values have shape {all_values.shape}, but the mask has {all_weights.shape}")
    if not (np.isfinite(all_weights) & (all_weights >= 0)).all():
        raise ValueError("mask: a weight is negative or not finite")
    counts = all_weights > 0
    kept, weights = all_values[counts], all_weights[counts]
    if kept.size == 0:
        return Sums(0.0, 0.0, 0.0)
    if not np.isfinite(kept).all():
        raise ValueError("values: a token that counts is not finite")
    weight = float(weights.sum())
    mean = float(kept[0] + (weights * (kept - kept[0])).sum() / weight)
    return Sums(weight, mean, float((weights * (kept - mean) ** 2).sum()))


def combine(parts: Iterable[Sums]) -> Sums:
    """The sums of all the shards together, independent of their order."""
    shards = [part for part in parts if part.weight > 0]
    if not shards:
        return Sums(0.0, 0.0, 0.0)
    weight = fsum(shard.weight for shard in shards)
    origin = min(shard.mean for shard in shards)
    mean = origin + fsum(shard.weight * (shard.mean - origin) for shard in shards) / weight
    between = fsum(shard.weight * (shard.mean - mean) ** 2 for shard in shards)
    return Sums(weight, mean, fsum(shard.squares for shard in shards) + between)


def normalize(values: npt.ArrayLike, total: Sums, mask: npt.ArrayLike | None = None) -> FloatArray:
    """A_hat = (A - mu) / sqrt(var + 1e-8), shape of `values`; MAPPA, appendix E.2, Eq. 4.

    Args:
        values: A. total: the combined sums of everything that is normalised together.
        mask: same shape; where it is 0 the result is 0. Default: everything counts.

    Without any token in `total` the result is 0 everywhere: there is nothing to train.

    Raises:
        ValueError: the shapes differ.
    """
    given = np.asarray(values, dtype=np.float64)
    counts = np.ones(given.shape, dtype=np.bool_) if mask is None else np.asarray(mask) > 0
    if counts.shape != given.shape:
        raise ValueError(f"values have shape {given.shape}, but the mask has {counts.shape}")
    result = np.zeros(given.shape)
    if total.weight > 0:
        result[counts] = (given[counts] - total.mean) / np.sqrt(total.variance + _EPS)
    return result


@dataclass(frozen=True, kw_only=True)
class ReinforcePpGlobal(Estimator):
    """Return-to-go, normalised over all policies and tokens of the step together; MAPPA, 2.3 and appendix E.

    A row weighs as many tokens as it has: all tokens of an action have the same return, because its reward is on the
    last one and nothing is discounted. KL per token enters in training; `sums`, `combine` and `normalize` serve there.

    Options:
        return_over: "trajectory" (the paper): A is the sum of the rewards of the same role in the same trajectory from
            the row's turn on, rows of the same turn included; "action" (the released code): A is the row's own reward.
        normalize_over: "all" (the paper), "policy" or "role": which rows share mu and var.
    """

    name: ClassVar[str] = "reinforce_pp_global"
    return_over: Literal["trajectory", "action"] = "trajectory"
    normalize_over: Literal["all", "policy", "role"] = "all"

    def __post_init__(self) -> None:
        self.check_choice("return_over", ("trajectory", "action"))
        self.check_choice("normalize_over", ("all", "policy", "role"))

    def refusals(self) -> Mapping[str, str]:
        refused = {
            "joint_cross": "a response has one row for every joint action it is part of, so its tokens would be "
            "counted more than once"
        }
        if self.return_over == "trajectory":
            branches = (
                "the later actions of a branch are not the later actions of its siblings, so a return over the "
                "trajectory is undefined (return_over: action works)"
            )
            refused |= {"tree": branches, "joint_tree": branches}
        return refused

    def returns(self, credits: Credits) -> FloatArray:
        """A before the normalisation, shape (n,)."""
        if self.return_over == "action":
            return credits.reward.copy()
        steps = credits.groups("task", "sample", "role", "turn")
        trajectory = credits.groups("task", "sample", "role").codes[steps.first]
        return suffix_sums(steps.sum(credits.reward), trajectory)[steps.codes]

    def estimate(self, credits: Credits) -> FloatArray:
        returns, weights = self.returns(credits), credits.num_tokens
        groups = credits.groups(*(() if self.normalize_over == "all" else (self.normalize_over,)))
        total = groups.sum(weights)
        divisor = np.where(total > 0, total, 1.0)
        origin = returns[groups.first]
        mean = origin + groups.sum(weights * (returns - origin[groups.codes])) / divisor
        deviation = returns - mean[groups.codes]
        variance = groups.sum(weights * deviation**2) / divisor
        scale = np.where(total > 0, 1.0 / np.sqrt(variance + _EPS), 0.0)
        return deviation * scale[groups.codes]
