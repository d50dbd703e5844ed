"""Sampling schemes: how many executions a task gets, and what happens between a role's prompt and its committed action.

A scheme wraps around workflows, which do not know it. To add one (joint or aligned groups, say), subclass
SamplingScheme: `act` sees every decision of every role, and `for_task` can give the executions of one task an object in
common, at which they can meet.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import MappingProxyType

from verl_mas.config.suggest import unknown_name_error
from verl_mas.workflow.agent import Decision
from verl_mas.workflow.environment import StepOutcome, Task


class SamplingScheme(ABC):
    """How the responses of a step are sampled.

    Attributes:
        rollouts_per_task: trajectories of each task.
    """

    rollouts_per_task: int

    def for_task(self, task: Task) -> "SamplingScheme":
        """The scheme for the trajectories of one task; a scheme that lets them meet returns an object of its own."""
        return self

    @abstractmethod
    async def act(self, decision: Decision) -> StepOutcome:
        """Sample, and commit exactly one response. Everything sampled is recorded and trained on."""


class ParallelSampling(SamplingScheme):
    """`n` independent trajectories of each task, one response per decision."""

    def __init__(self, n: int) -> None:
        self.rollouts_per_task = _at_least_one("n", n)

    async def act(self, decision: Decision) -> StepOutcome:
        """Commit the only response."""
        (response,) = await decision.sample(1)
        async with decision.state:
            return await decision.commit(response)


class TreeSampling(SamplingScheme):
    """AT-GRPO's tree (Alg. 1): per decision K candidates, each scored on its own copy of the state, one committed.

    Args:
        candidates: K.
        selection: "greedy" commits the highest reward (ties: lowest index), "first" candidate 0, "sample" any with
            equal probability.
    """

    rollouts_per_task = 1

    def __init__(self, candidates: int, selection: str = "greedy") -> None:
        self.candidates = _at_least_one("candidates", candidates)
        if selection not in SELECTIONS:
            raise unknown_name_error("selection", selection, SELECTIONS)
        self._select = SELECTIONS[selection]

    async def act(self, decision: Decision) -> StepOutcome:
        """Commit the chosen one of K candidates; all K are recorded as one group."""
        group = await decision.sample(self.candidates)
        async with decision.state:
            rewards = await decision.score(group)
            return await decision.commit(group[self._select(rewards, decision.rng)])


def _greedy(rewards: Sequence[float], rng: Random) -> int:
    return rewards.index(max(rewards))


def _first(rewards: Sequence[float], rng: Random) -> int:
    return 0


def _sample(rewards: Sequence[float], rng: Random) -> int:
    return rng.randrange(len(rewards))


SELECTIONS: Mapping[str, Callable[[Sequence[float], Random], int]] = MappingProxyType(
    {"greedy": _greedy, "first": _first, "sample": _sample}
)
SCHEMES: Mapping[str, type[SamplingScheme]] = MappingProxyType({"tree": TreeSampling, "parallel": ParallelSampling})


def make_scheme(name: str, **options: object) -> SamplingScheme:
    """The scheme called `name`, with its options: tree(candidates, selection) or parallel(n).

    Raises:
        UnknownNameError: no such scheme or option. ValueError: an option is missing or out of range.
    """
    if name not in SCHEMES:
        raise unknown_name_error("sampling scheme", name, SCHEMES)
    parameters = inspect.signature(SCHEMES[name]).parameters
    for option in options:
        if option not in parameters:
            raise unknown_name_error(f"option of sampling scheme '{name}'", option, parameters)
    for parameter in parameters.values():
        if parameter.default is parameter.empty and parameter.name not in options:
            raise ValueError(f"sampling scheme '{name}' needs the option '{parameter.name}'")
    return SCHEMES[name](**options)


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"sampling option '{name}' must be at least 1, not {value}")
    return value
