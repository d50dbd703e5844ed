"""Sampling schemes: how many executions a task gets, and what happens between a role's prompt and its committed action.

A scheme wraps around workflows, which do not know it. To add one, subclass IndependentSampling, whose `act` sees every
decision of every role; or SamplingScheme, if executions of a task depend on each other (joint.py).
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import MappingProxyType

from verl_mas.config.suggest import unknown_name_error
from verl_mas.trajectory.records import Trajectory
from verl_mas.workflow.agent import Decision
from verl_mas.workflow.environment import StepOutcome
from verl_mas.workflow.joint import JointRollout, JointTerms
from verl_mas.workflow.rollout import Rollout


class SamplingScheme(ABC):
    """How the responses of a step are sampled.

    Attributes:
        rollouts_per_task: rollouts of each task. A rollout stands alone: it is retried, and fails, as a unit.
        trajectories_per_rollout: as how many trajectories a rollout counts that failed.
    """

    rollouts_per_task: int
    trajectories_per_rollout: int = 1

    @abstractmethod
    async def execute(self, rollout: Rollout) -> list[Trajectory]:
        """Execute the workflow on the task of the rollout. Everything sampled is recorded and trained on.

        Returns:
            The trajectories, in the order of their sample. Those of one task differ in it.
        """


class IndependentSampling(SamplingScheme):
    """Schemes whose trajectories have nothing to do with each other: a rollout is one execution."""

    async def execute(self, rollout: Rollout) -> list[Trajectory]:
        """See SamplingScheme."""
        trajectory = rollout.trajectory(rollout.index)
        await rollout.play(trajectory, await rollout.environment(), self.act)
        return [trajectory]

    @abstractmethod
    async def act(self, decision: Decision) -> StepOutcome:
        """Observe, sample, and commit exactly one response."""


class ParallelSampling(IndependentSampling):
    """`n` independent trajectories of each task, one response per decision."""

    def __init__(self, n: int) -> None:
        self.rollouts_per_task = _at_least_one("n", n)

    async def act(self, decision: Decision) -> StepOutcome:
        """Commit the only response."""
        await decision.observe()
        (response,) = await decision.sample(1)
        async with decision.state:
            return await decision.commit(response)


class TreeSampling(IndependentSampling):
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
        await decision.observe()
        group = await decision.sample(self.candidates)
        async with decision.state:
            rewards = await decision.score(group)
            return await decision.commit(group[self._select(rewards, decision.rng)])


class JointSampling(SamplingScheme):
    """MAGRPO's groups of joint actions (Alg. 1): the roles answer a turn synchronously, `n` times from each prompt.

    Args:
        n: G, the responses of each role to a prompt from which a group is sampled.
        joint: "aligned": response g of every role makes joint action g, so G of them; "cross": the Cartesian product.
        branching: "linear": the joint actions of the first turn go on side by side, one response per role and turn;
            "tree": a whole group is sampled from the state after every joint action.
        stop_threshold: no joint action of a turn's group goes on once the group's mean joint reward exceeds it.

    Raises:
        UnknownNameError: an unknown value of joint or branching. ValueError: a number out of range.
    """

    rollouts_per_task = 1

    def __init__(
        self, n: int, joint: str = "aligned", branching: str = "linear", stop_threshold: float | None = None
    ) -> None:
        self.trajectories_per_rollout = _at_least_one("n", n)
        for option, value, known in (
            ("joint", joint, ("aligned", "cross")),
            ("branching", branching, ("linear", "tree")),
        ):
            if value not in known:
                raise unknown_name_error(option, value, known)
        if stop_threshold is not None and not math.isfinite(stop_threshold):
            raise ValueError(f"sampling option 'stop_threshold' must be a finite number or null, not {stop_threshold}")
        self._terms = JointTerms(n, joint == "cross", branching == "tree", stop_threshold)

    async def execute(self, rollout: Rollout) -> list[Trajectory]:
        """Sample the groups of one task. See `joint.JointRollout`."""
        return await JointRollout(self._terms, rollout).run()


def _greedy(rewards: Sequence[float], rng: Random) -> int:
    return rewards.index(max(rewards))


def _first(rewards: Sequence[float], rng: Random) -> int:
    return 0


def _sample(rewards: Sequence[float], rng: Random) -> int:
    return rng.randrange(len(rewards))


SELECTIONS: Mapping[str, Callable[[Sequence[float], Random], int]] = MappingProxyType(
    {"greedy": _greedy, "first": _first, "sample": _sample}
)
SCHEMES: Mapping[str, type[SamplingScheme]] = MappingProxyType(
    {"tree": TreeSampling, "parallel": ParallelSampling, "joint": JointSampling}
)


def make_scheme(name: str, **options: object) -> SamplingScheme:
    """The scheme called `name`, with its options: tree(candidates, selection), parallel(n) or
    joint(n, joint, branching, stop_threshold).

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
