"""What a step's invocations tell about learning: by role and by policy, and whether there was something to learn."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np

from verl_mas.trajectory.records import Invocation

#: facts of `invocation.info` about the tools that an action used: calls made, and those that succeeded
TOOL_CALLS, TOOL_SUCCESSES = "tool_calls", "tool_successes"


class NothingLearned(RuntimeError):
    """Several steps in a row had no advantage other than zero."""


@dataclass(frozen=True, slots=True)
class Response:
    """One response, however many joint actions it is part of.

    Attributes:
        records: its invocations, one for each of them. reward: their mean, None without any.
    """

    records: Sequence[Invocation]
    reward: float | None

    @property
    def first(self) -> Invocation:
        return self.records[0]


def responses_of(invocations: Iterable[Invocation]) -> list[Response]:
    """The invocations by row, in the order of first appearance."""
    by_row: dict[str, list[Invocation]] = {}
    for invocation in invocations:
        by_row.setdefault(invocation.row, []).append(invocation)
    return [
        Response(records, mean([one.reward for one in records if one.reward is not None]))
        for records in by_row.values()
    ]


def mean(values: Sequence[float]) -> float | None:
    """The mean, exact where all values agree; None of nothing."""
    if not values:
        return None
    return values[0] if all(value == values[0] for value in values) else fsum(values) / len(values)


def role_and_policy_metrics(invocations: Iterable[Invocation]) -> dict[str, float]:
    """The same numbers for every role ("reward/<role>") and every policy ("reward_by_policy/<policy>").

    A metric without anything to measure is left out. The terms of the breakdown are given by role alone.

    - reward, reward_std: over the responses that have one; reward/<role>/<term>.
    - groups, group_size, constant_groups: responses to compare, of one task, role and turn (in a tree of joint actions
      also of one parent): how many groups, their mean size, the share whose rewards are all equal.
    - zero_advantages: share among the responses that have an advantage.
    - response_length in tokens, response_clip_ratio: the share that ran into the limit.
    - tool_calls per response, tool_success: share of the calls. From info: `tool_calls` and `tool_successes`, or the
      `exit_code` and `timed_out` of the one program that the action ran.
    - masked: responses that are not trained on.
    """
    responses = responses_of(invocations)
    metrics: dict[str, float] = {}
    key: Callable[[Response], str]
    for suffix, key in (("", lambda one: one.first.role), ("_by_policy", lambda one: one.first.policy)):
        for name, members in _by(key, responses).items():
            metrics.update({f"{metric}{suffix}/{name}": value for metric, value in _metrics(members).items()})
    for role, members in _by(lambda one: one.first.role, responses).items():
        scored = [one.records for one in members if one.reward is not None]
        for term in sorted({term for records in scored for one in records for term in one.breakdown}):
            values = [np.mean([one.breakdown.get(term, 0.0) for one in records]) for records in scored]
            metrics[f"reward/{role}/{term}"] = float(np.mean(values))
    return metrics


def _by(key: Callable[[Response], str], responses: Iterable[Response]) -> dict[str, list[Response]]:
    found: dict[str, list[Response]] = {}
    for response in responses:
        found.setdefault(key(response), []).append(response)
    return dict(sorted(found.items()))


def _metrics(responses: Sequence[Response]) -> dict[str, float]:
    """At least one response."""
    metrics = {
        "masked": float(sum(one.first.masked for one in responses)),
        "response_length": float(np.mean([one.first.num_response_tokens for one in responses])),
        "response_clip_ratio": float(np.mean([one.first.stop_reason == "length" for one in responses])),
    }
    scored = [one for one in responses if one.reward is not None]
    if scored:
        rewards = np.array([one.reward for one in scored], dtype=np.float64)
        groups: dict[tuple[object, ...], list[float]] = {}
        for one, reward in zip(scored, rewards, strict=True):
            first = one.first
            groups.setdefault((first.task, first.role, first.turn, first.parent), []).append(float(reward))
        metrics |= {
            "reward": float(rewards.mean()),
            "reward_std": float(rewards.std()),
            "groups": float(len(groups)),
            "group_size": len(scored) / len(groups),
            "constant_groups": float(np.mean([min(group) == max(group) for group in groups.values()])),
        }
    advantages = [one.first.advantage for one in responses if one.first.advantage is not None]
    if advantages:
        metrics["zero_advantages"] = float(np.mean([advantage == 0.0 for advantage in advantages]))
    used = [use for one in responses if (use := tool_use(one.first.info)) is not None]
    if used:
        calls, successes = sum(use[0] for use in used), sum(use[1] for use in used)
        metrics["tool_calls"] = calls / len(responses)
        if calls:
            metrics["tool_success"] = successes / calls
    return metrics


def tool_use(info: Mapping[str, object]) -> tuple[int, int] | None:
    """(calls, successes) of an action, from the facts about it; None if they say nothing of tools.

    Raises:
        ValueError: the counts are no counts, or more calls succeeded than were made.
    """
    if TOOL_CALLS in info:
        calls, successes = info[TOOL_CALLS], info.get(TOOL_SUCCESSES, 0)
        if not (isinstance(calls, int) and isinstance(successes, int) and 0 <= successes <= calls):
            raise ValueError(f"info: {TOOL_CALLS}={calls!r} and {TOOL_SUCCESSES}={successes!r} are no counts of calls")
        return int(calls), int(successes)
    if "exit_code" in info:
        timed_out = bool(info.get("timed_out", False))
        return int(timed_out or info["exit_code"] is not None), int(not timed_out and info["exit_code"] == 0)
    return None


class ZeroAdvantageWatch:
    """Notices steps from which nothing can be learned.

    Args:
        max_steps: so many of them in a row end the run; 0: never.
    """

    def __init__(self, max_steps: int) -> None:
        self._max_steps = max_steps
        self._in_a_row = 0

    def look(self, step: int, trained: Sequence[Invocation]) -> str | None:
        """What to warn of after the advantages of a step were computed, None if nothing.

        Args:
            trained: what is trained on. Rows whose advantage is None (it is computed where the tokens are) may have
                any, so they count as not zero.
        """
        if any(one.advantage != 0.0 for one in trained):
            self._in_a_row = 0
            return None
        self._in_a_row += 1
        what = "every advantage is zero" if trained else "nothing is left to train on"
        in_a_row = f", {self._in_a_row} steps in a row" if self._in_a_row > 1 else ""
        return f"warning: step {step}: {what}{in_a_row}; no policy learns from its rewards"

    def raise_if_too_many(self) -> None:
        """Raises NothingLearned after `max_steps` such steps in a row."""
        if 0 < self._max_steps <= self._in_a_row:
            raise NothingLearned(
                f"every advantage was zero in {self._in_a_row} steps in a row (diagnostics.max_zero_steps="
                f"{self._max_steps}; 0 never stops). Look at these metrics: constant_groups/<role> near 1 means that "
                "all responses of a group earn the same, so tasks are too hard or too easy, the reward is too coarse, "
                "or sampling has no variety (roles.<role>.sampling.temperature); group_size/<role> of 1 means that "
                "nothing is compared (sampling.n, sampling.candidates); masked/<role> and trajectories/failed count "
                "what never came to be trained on"
            )
