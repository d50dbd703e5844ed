"""Rules of the `rule` reward manager: further rewards that are settled when a trajectory has ended.

A rule makes assignments: this invocation gets this value. `Rule` and the three functions beside it assign to every
invocation; `DelayedRule` assigns what became known later to the invocations that caused it, as often as it likes;
`DeltaRule` pays the change of a score from turn to turn. All are pure functions of the trajectory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from verl_mas.trajectory.records import Invocation, Trajectory


@dataclass(frozen=True, slots=True)
class Assignment:
    """`value`, before the rule's weight, for the invocation of this row."""

    row: str
    value: float


class RewardRule(ABC):
    """A source of assignments.

    Attributes:
        name: the key of its terms in the breakdown, without a dot. weight: factor of every value, a finite number.
    """

    name: str
    weight: float

    @abstractmethod
    def assignments(self, trajectory: Trajectory) -> Iterable[Assignment]:
        """Any number of assignments, several to one invocation included: they add up. Changes nothing."""


@dataclass(frozen=True, slots=True)
class Rule(RewardRule):
    """`weight * function(invocation, trajectory)` for every invocation of `roles`.

    A node rule looks at the invocation alone, a turn rule at those with its turn, a trajectory rule at the trajectory:
    the three levels are what the pure function reads. `node_rule`, `turn_rule` and `trajectory_rule` say which.

    Attributes:
        roles: whose invocations; None: all.
    """

    name: str
    function: Callable[[Invocation, Trajectory], float]
    weight: float = 1.0
    roles: tuple[str, ...] | None = None

    def assignments(self, trajectory: Trajectory) -> Iterable[Assignment]:
        """One for each invocation of the roles."""
        for one in trajectory.invocations:
            if self.roles is None or one.role in self.roles:
                yield Assignment(one.row, self.function(one, trajectory))


def node_rule(
    name: str, function: Callable[[Invocation], float], weight: float = 1.0, roles: tuple[str, ...] | None = None
) -> Rule:
    """A rule that looks at one invocation alone."""
    return Rule(name, lambda one, trajectory: function(one), weight, roles)


def turn_rule(
    name: str,
    function: Callable[[Sequence[Invocation]], float],
    weight: float = 1.0,
    roles: tuple[str, ...] | None = None,
) -> Rule:
    """A rule that looks at the committed invocations of one turn; each invocation of the turn gets its value."""

    def value(one: Invocation, trajectory: Trajectory) -> float:
        return function([other for other in trajectory.invocations if other.turn == one.turn and other.chosen])

    return Rule(name, value, weight, roles)


def trajectory_rule(
    name: str, function: Callable[[Trajectory], float], weight: float = 1.0, roles: tuple[str, ...] | None = None
) -> Rule:
    """A rule that looks at the whole trajectory; every invocation gets its value."""
    return Rule(name, lambda one, trajectory: function(trajectory), weight, roles)


@dataclass(frozen=True, slots=True)
class DelayedRule(RewardRule):
    """What `function(trajectory)` assigns, for example a test that fails at the end to the action that broke it."""

    name: str
    function: Callable[[Trajectory], Iterable[Assignment]]
    weight: float = 1.0

    def assignments(self, trajectory: Trajectory) -> Iterable[Assignment]:
        """Those of the function."""
        return self.function(trajectory)


@dataclass(frozen=True, slots=True)
class DeltaRule(RewardRule):
    """The change of a score between successive turns; UnityMAS-O, workflows C and D.

    An invocation of turn t gets s[t] - s[t - 1], or with `ahead=1` what comes of it in the next turn, s[t + 1] - s[t]:
    0 where there is none. Before the first turn that has a score, s is `initial`; a turn without one keeps the last.

    Attributes:
        score: the scores by turn, a pure function of the trajectory.
        roles: whose invocations; None: all. ahead: 0 or 1. initial: s before the first score; None: the first score.
        when: whether an invocation takes part; the others get 0.

    Raises, when called:
        ValueError: a candidate that was not committed, which has no share in how the score went on.
    """

    name: str
    score: Callable[[Trajectory], Mapping[int, float]]
    weight: float = 1.0
    roles: tuple[str, ...] | None = None
    ahead: int = 0
    initial: float | None = 0.0
    when: Callable[[Invocation], bool] | None = None

    def __post_init__(self) -> None:
        if self.ahead not in (0, 1):
            raise ValueError(f"rule '{self.name}': ahead must be 0 or 1, not {self.ahead}")

    def assignments(self, trajectory: Trajectory) -> Iterable[Assignment]:
        """One for each invocation of the roles."""
        scores = dict(sorted(self.score(trajectory).items()))
        before = next(iter(scores.values()), 0.0) if self.initial is None else self.initial
        change: dict[int, float] = {}
        for turn, score in scores.items():
            change[turn], before = score - before, score
        for one in trajectory.invocations:
            if self.roles is not None and one.role not in self.roles:
                continue
            if not one.chosen:
                raise ValueError(
                    f"rule '{self.name}': row {one.row} was not committed, so how the score went on says nothing about "
                    "it; use a sampling scheme that commits every response (sampling.scheme=parallel or joint)"
                )
            counts = self.when is None or self.when(one)
            yield Assignment(one.row, change.get(one.turn + self.ahead, 0.0) if counts else 0.0)
