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
    last one and nothing is discounted. With KL in the reward they differ: then `token_returns`, `token_sums` and
    `token_advantages` compute each policy's advantages from its own tokens and the three sums of every policy.

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
        repeated = (
            "a response has one row for every joint action it is part of, so its tokens would be counted more than once"
        )
        refused = {"joint_cross": repeated, "joint_cross_tree": repeated}
        if self.return_over == "trajectory":
            branches = (
                "the later actions of a branch are not the later actions of its siblings, so a return over the "
                "trajectory is undefined (return_over: action works)"
            )
            refused |= {"tree": branches, "joint_tree": branches}
        return refused

    def returns(self, credits: Credits) -> FloatArray:
        """A before the normalisation, shape (n,)."""
        return self._row_returns(credits.reward, credits)

    def _row_returns(self, rewards: FloatArray, credits: Credits) -> FloatArray:
        if self.return_over == "action":
            return rewards.copy()
        steps = credits.groups("task", "sample", "role", "turn")
        trajectory = credits.groups("task", "sample", "role").codes[steps.first]
        return suffix_sums(steps.sum(rewards), trajectory)[steps.codes]

    def token_returns(self, rewards: npt.ArrayLike, mask: npt.ArrayLike, credits: Credits) -> FloatArray:
        """The undiscounted return-to-go of every token, shape (n, longest); MAPPA, appendix E.1.

        Args:
            rewards: per token, shape (n, longest): the action's reward on its last token, minus beta * KL.
            mask: same shape, 1 for a token that counts.
            credits: of the same n rows; their own rewards are not used. All rows of a role must be among them.
        """
        counted = np.asarray(rewards, dtype=np.float64) * np.asarray(mask, dtype=np.float64)
        within = np.cumsum(counted[:, ::-1], axis=1)[:, ::-1]
        totals = counted.sum(axis=1)
        return within + (self._row_returns(totals, credits) - totals)[:, None]

    def token_sums(self, returns: npt.ArrayLike, mask: npt.ArrayLike, credits: Credits) -> dict[str, Sums]:
        """What one policy's rows contribute: `Sums` by whom they are normalised with ("" stands for all).

        Args:
            returns: of `token_returns`, shape (n, longest). mask, credits: as there.
        """
        values, counts = np.asarray(returns, dtype=np.float64), np.asarray(mask)
        return {key: sums(values[rows], counts[rows]) for key, rows in self._together(credits).items()}

    def token_advantages(
        self, returns: npt.ArrayLike, mask: npt.ArrayLike, credits: Credits, total: Mapping[str, Sums]
    ) -> FloatArray:
        """A_hat of every token, shape (n, longest), 0 where the mask is 0.

        Args:
            returns, mask, credits: as in `token_sums`. total: the sums of all policies, combined key by key.
        """
        values, counts = np.asarray(returns, dtype=np.float64), np.asarray(mask)
        result = np.zeros(values.shape)
        for key, rows in self._together(credits).items():
            result[rows] = normalize(values[rows], total[key], counts[rows])
        return result

    def _together(self, credits: Credits) -> dict[str, npt.NDArray[np.int64]]:
        """The rows that share mu and var, by the value of the column `normalize_over`."""
        if self.normalize_over == "all":
            return {"": np.arange(len(credits))}
        column = credits.column(self.normalize_over)
        names: dict[str, list[int]] = {}
        for row, value in enumerate(column.values):
            names.setdefault(str(value), []).append(row)
        return {name: np.array(rows) for name, rows in names.items()}

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
