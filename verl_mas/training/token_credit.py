"""Credit for tokens: generalised advantage estimation with a critic, and KL to the reference in the reward.

Most estimators give a number per invocation and never see a token. Where tokens of one response earn different
advantages, the policies' trainers supply their rows as `TokenRows`, and what leaves a policy is three sums, or one
number per row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from verl.trainer.ppo.core_algos import compute_gae_advantage_return

from verl_mas.advantages import Credits, Estimator
from verl_mas.advantages.reinforce_pp import Sums, combine
from verl_mas.training.metrics import credits_of, numbers
from verl_mas.trajectory.records import Invocation


@dataclass(frozen=True, slots=True)
class TokenRows:
    """One policy's rows of a step, as far as credit needs them. Tensors are float32 of shape (rows, longest response).

    Attributes:
        invocations: of the rows, in their order.
        rewards: per token: the invocation's reward on the last one, minus the KL penalty where that is in the reward.
        kl_penalty: per row, what KL took from its reward, >= 0 with the k2 and k3 estimators; shape (rows,).
        mask: 1 for a token that is trained on.
        values: the critic's, or None without a critic.
        gamma, lam: the policy's discount and GAE's lambda.
    """

    invocations: Sequence[Invocation]
    rewards: torch.Tensor
    kl_penalty: torch.Tensor
    mask: torch.Tensor
    values: torch.Tensor | None
    gamma: float
    lam: float


@dataclass(frozen=True, slots=True)
class TokenAdvantages:
    """What a policy's trainer writes to its rows; tensors of shape (rows, longest response), 0 where the mask is 0."""

    advantages: torch.Tensor
    returns: torch.Tensor


@runtime_checkable
class TokenEstimator(Protocol):
    """An invocation-level estimator that can also tell the tokens of one response apart (ReinforcePpGlobal)."""

    def token_returns(self, rewards: npt.ArrayLike, mask: npt.ArrayLike, credits: Credits) -> npt.NDArray[np.float64]:
        """Before the normalisation, shape (rows, longest)."""

    def token_sums(self, returns: npt.ArrayLike, mask: npt.ArrayLike, credits: Credits) -> dict[str, Sums]:
        """What one policy contributes to the statistics, by whom they are over."""

    def token_advantages(
        self, returns: npt.ArrayLike, mask: npt.ArrayLike, credits: Credits, total: Mapping[str, Sums]
    ) -> npt.NDArray[np.float64]:
        """After it."""


def token_advantages(
    estimator: Estimator, shards: Mapping[str, TokenRows], reassign: Callable[[Mapping[str, float]], None]
) -> dict[str, TokenAdvantages]:
    """The advantages of every policy's tokens, and their mean over each response in `Invocation.advantage`.

    - Token-level estimators (gae) go through verl's own function, policy by policy.
    - A TokenEstimator gets statistics over all policies from the sums of each.
    - Any other estimator gets each invocation's reward with KL taken off, as verl does it for GRPO, and an invocation's
      advantage is that of each of its tokens.

    Args:
        shards: by policy; policies without rows are absent.
        reassign: given what KL takes from each row, by row key, changes the rewards and computes the advantages anew.
    """
    penalties = {
        one.row: float(penalty)
        for shard in shards.values()
        for one, penalty in zip(shard.invocations, shard.kl_penalty, strict=True)
    }
    reassign(penalties)
    if getattr(estimator, "level", "invocation") == "token":
        result = {policy: _gae(estimator, shard) for policy, shard in shards.items()}
    elif isinstance(estimator, TokenEstimator):
        result = _normalised(estimator, shards)
    else:
        return {policy: _spread(shard) for policy, shard in shards.items()}
    for policy, shard in shards.items():
        _note_means(shard, result[policy].advantages)
    return result


def _gae(estimator: Any, shard: TokenRows) -> TokenAdvantages:
    """verl's GAE, whitened over the policy's tokens, or over those of each of its roles. UnityMAS-O, Eq. 20-21."""
    if shard.values is None:
        raise ValueError(f"{estimator.name} needs a critic: leave critic.enable alone, or set it to true")
    advantages, returns = torch.zeros_like(shard.rewards), torch.zeros_like(shard.rewards)
    by_role: dict[str, list[int]] = {}
    for row, invocation in enumerate(shard.invocations):
        by_role.setdefault(invocation.role if estimator.whiten_over == "role" else "", []).append(row)
    for rows in by_role.values():
        advantages[rows], returns[rows] = compute_gae_advantage_return(
            token_level_rewards=shard.rewards[rows],
            values=shard.values[rows],
            response_mask=shard.mask[rows],
            gamma=shard.gamma,
            lam=shard.lam,
        )
    return TokenAdvantages(advantages * shard.mask, returns * shard.mask)


def _normalised(estimator: TokenEstimator, shards: Mapping[str, TokenRows]) -> dict[str, TokenAdvantages]:
    """Two passes: every policy sums, then every policy normalises with the sums of all."""
    tables = {policy: credits_of(shard.invocations) for policy, shard in shards.items()}
    returns = {
        policy: estimator.token_returns(shard.rewards.numpy(), shard.mask.numpy(), tables[policy])
        for policy, shard in shards.items()
    }
    parts: dict[str, list[Sums]] = {}
    for policy, shard in shards.items():
        for key, part in estimator.token_sums(returns[policy], shard.mask.numpy(), tables[policy]).items():
            parts.setdefault(key, []).append(part)
    total = {key: combine(shares) for key, shares in parts.items()}
    result = {}
    for policy, shard in shards.items():
        values = estimator.token_advantages(returns[policy], shard.mask.numpy(), tables[policy], total)
        result[policy] = TokenAdvantages(
            torch.from_numpy(values).float(), torch.from_numpy(returns[policy]).float() * shard.mask
        )
    return result


def _spread(shard: TokenRows) -> TokenAdvantages:
    """The advantage of an invocation on each of its tokens."""
    column = torch.tensor(numbers(shard.invocations, "advantage"), dtype=torch.float32)[:, None]
    spread = column * shard.mask
    return TokenAdvantages(spread, spread.clone())


def _note_means(shard: TokenRows, advantages: torch.Tensor) -> None:
    means = advantages.sum(1) / shard.mask.sum(1).clamp(min=1.0)
    for invocation, mean in zip(shard.invocations, means.tolist(), strict=True):
        invocation.advantage = mean
