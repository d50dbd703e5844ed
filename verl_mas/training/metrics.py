"""From the trajectories of a step to credits, advantages and the numbers that its metrics file holds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from verl_mas.advantages import Credits, Estimator
from verl_mas.rewards.coach import coach_metrics
from verl_mas.training.diagnostics import mean, role_and_policy_metrics
from verl_mas.trajectory.records import Invocation, Trajectory


def numbers(invocations: Sequence[Invocation], name: str) -> list[float]:
    """The `reward` or the `advantage` of every invocation.

    Raises:
        ValueError: an invocation has none.
    """
    values = [getattr(one, name) for one in invocations]
    missing = [one.row for one, value in zip(invocations, values, strict=True) if value is None]
    if missing:
        raise ValueError(f"{len(missing)} invocations have no {name}, first {missing[0]}")
    return [float(value) for value in values]


def credits_of(invocations: Sequence[Invocation]) -> Credits:
    """The table from which advantages are computed, one row per invocation, in the given order.

    `sample` is left to its default where one trajectory holds several candidates of a decision (tree sampling).
    `candidate` says which rows hold the same response, `parent` is there in a tree of joint actions alone.

    Raises:
        ValueError: an invocation without a reward.
    """
    single = all(one.candidate == 0 for one in invocations)
    parents = [one.parent for one in invocations if one.parent is not None]
    return Credits(
        reward=numbers(invocations, "reward"),
        task=[one.task for one in invocations],
        role=[one.role for one in invocations],
        turn=[one.turn for one in invocations],
        sample=[one.sample for one in invocations] if single else None,
        policy=[one.policy for one in invocations],
        num_tokens=[one.num_response_tokens for one in invocations],
        candidate=[one.row for one in invocations],
        parent=parents or None,
        prompt=[one.prompt_digest for one in invocations],
    )


def assign_advantages(trajectories: Iterable[Trajectory], estimator: Estimator) -> list[Invocation]:
    """Compute the step's advantages over all policies at once and write them into the invocations.

    Those of an estimator that works on tokens stay None until the policies' trainers have the values of the tokens.
    In a tree of joint actions several trajectories pass through one: its reward is the mean of what they say of it.

    Returns:
        Every response that is trained on, once: those of finished trajectories that have a reward.

    Raises:
        ValueError: the estimator gives one response different advantages in the joint actions that it is part of.
    """
    records: dict[tuple[str, str, int, int, str], list[Invocation]] = {}
    for trajectory in trajectories:
        if trajectory.error is None:
            for one in trajectory.invocations:
                if not one.masked:
                    records.setdefault((one.row, one.task, one.sample, one.turn, one.role), []).append(one)
    if not records:
        return []
    credits = credits_of([_merged(same) for same in records.values()])
    over_tokens = getattr(estimator, "level", "invocation") == "token"
    advantages = [None] * len(credits) if over_tokens else estimator(credits).tolist()
    trained: dict[str, Invocation] = {}
    for same, advantage in zip(records.values(), advantages, strict=True):
        for one in same:
            one.advantage = advantage
        first = trained.setdefault(same[0].row, same[0])
        if first.advantage != same[0].advantage:
            raise ValueError(
                f"row {first.row} is one response, but its advantages are {first.advantage} and {same[0].advantage}"
            )
    return list(trained.values())


def _merged(same: Sequence[Invocation]) -> Invocation:
    """The records of one response in one joint action as one, with the mean of their rewards."""
    if len(same) == 1:
        return same[0]
    return replace(same[0], reward=mean([one.reward for one in same if one.reward is not None]))


def take_off_kl(trajectories: Iterable[Trajectory], penalties: Mapping[str, float]) -> None:
    """Subtract what KL to the reference costs from the rewards, and show it as "kl" in their breakdown.

    Args:
        penalties: by row key. A row that several trajectories share is changed in each.
    """
    for trajectory in trajectories:
        for one in trajectory.invocations:
            penalty = penalties.get(one.row, 0.0)
            if one.reward is not None and penalty != 0.0:
                one.breakdown = {**one.breakdown, "kl": -penalty}
                one.reward = sum(one.breakdown.values(), 0.0) if len(one.breakdown) > 1 else one.reward - penalty


def step_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Success and failures, by role and policy what `role_and_policy_metrics` names, and a coach's scores."""
    if not trajectories:
        raise ValueError("a step has at least one trajectory")
    finished = [one for one in trajectories if one.error is None]
    metrics = {
        "success_rate": sum(one.success for one in trajectories) / len(trajectories),
        "trajectories/failed": float(len(trajectories) - len(finished)),
        "trajectories/turns": float(np.mean([one.turns for one in finished])) if finished else 0.0,
    }
    metrics |= role_and_policy_metrics(one for trajectory in finished for one in trajectory.invocations)
    return metrics | coach_metrics(finished)
