"""Numbers of one step, from its trajectories: what the metrics file, the progress bar and the observers see."""

from collections.abc import Iterable, Sequence

import numpy as np

from verl_mas.advantages import Credits, Estimator
from verl_mas.trajectory.records import Invocation, Trajectory


def credits_of(invocations: Sequence[Invocation]) -> Credits:
    """The table from which advantages are computed, one row per invocation, in the given order.

    `sample` is left to its default where one trajectory holds several candidates of a decision (tree sampling).

    Raises:
        ValueError: an invocation without a reward.
    """
    missing = [one.row for one in invocations if one.reward is None]
    if missing:
        raise ValueError(f"{len(missing)} invocations have no reward, first {missing[0]}")
    single = all(one.candidate == 0 for one in invocations)
    return Credits(
        reward=[float(one.reward) for one in invocations if one.reward is not None],
        task=[one.task for one in invocations],
        role=[one.role for one in invocations],
        turn=[one.turn for one in invocations],
        sample=[one.sample for one in invocations] if single else None,
        policy=[one.policy for one in invocations],
        num_tokens=[one.num_response_tokens for one in invocations],
        prompt=[one.prompt_digest for one in invocations],
    )


def assign_advantages(trajectories: Iterable[Trajectory], estimator: Estimator) -> list[Invocation]:
    """Compute the step's advantages over all policies at once and write them into the invocations.

    Returns:
        Every invocation that is trained on: those of finished trajectories that have a reward.
    """
    invocations = [
        one
        for trajectory in trajectories
        if trajectory.error is None
        for one in trajectory.invocations
        if not one.masked
    ]
    if not invocations:
        return []
    for invocation, advantage in zip(invocations, estimator(credits_of(invocations)), strict=True):
        invocation.advantage = float(advantage)
    return invocations


def step_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Success, failures, and per role: reward, response length, share of zero advantages, masked invocations."""
    if not trajectories:
        raise ValueError("a step has at least one trajectory")
    finished = [one for one in trajectories if one.error is None]
    metrics = {
        "success_rate": sum(one.success for one in trajectories) / len(trajectories),
        "trajectories/failed": float(len(trajectories) - len(finished)),
        "trajectories/turns": float(np.mean([one.turns for one in finished])) if finished else 0.0,
    }
    by_role: dict[str, list[Invocation]] = {}
    for trajectory in finished:
        for invocation in trajectory.invocations:
            by_role.setdefault(invocation.role, []).append(invocation)
    for role, invocations in sorted(by_role.items()):
        scored = [one for one in invocations if one.reward is not None]
        metrics[f"masked/{role}"] = float(sum(one.masked for one in invocations))
        metrics[f"response_length/{role}"] = float(np.mean([one.num_response_tokens for one in invocations]))
        if scored:
            rewards = np.array([one.reward for one in scored], dtype=float)
            metrics[f"reward/{role}"] = float(rewards.mean())
            metrics[f"reward_std/{role}"] = float(rewards.std())
            for term in sorted({name for one in scored for name in one.breakdown}):
                metrics[f"reward/{role}/{term}"] = float(np.mean([one.breakdown.get(term, 0.0) for one in scored]))
        advantages = [one.advantage for one in invocations if one.advantage is not None]
        if advantages:
            metrics[f"zero_advantages/{role}"] = float(np.mean([value == 0.0 for value in advantages]))
    return metrics
