"""The environment protocol: one instance holds the state of one task, and every action goes through `step`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from verl_mas.rewards.parts import RewardParts
from verl_mas.rewards.rules import RewardRule

Split = Literal["train", "val"]


@dataclass(frozen=True, slots=True)
class Task:
    """One instance of the problem.

    Attributes:
        id: unique within its split, for example "train-17".
        digest: hash of the content alone; equal digests are equal tasks.
        payload: JSON-able content from which `TaskFamily.environment` builds the state.
    """

    id: str
    digest: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one action did: the scores it earned, and facts to log (JSON-able).

    An action that uses tools says so: `tool_calls` and `tool_successes`, two counts; or, if it ran one program, that
    one's `exit_code` (None: there was nothing to run) and `timed_out`. The step's metrics are made of these.
    """

    parts: RewardParts
    info: Mapping[str, Any] = field(default_factory=dict)


class Environment(ABC):
    """The state of one task. Copies are independent: stepping a copy never changes the original.

    `observe`, `step` and `copy` run on threads, one at a time for one state, except that several may copy it at once;
    `done` and `success` are read on the event loop and must be quick.

    Attributes:
        inline: run on the event loop instead of a thread: quicker for micro-steps, but a hang then hangs the run.
    """

    inline: bool = False

    @abstractmethod
    def observe(self, role: str) -> Mapping[str, str]:
        """Values for the placeholders of `role`'s prompt."""

    @abstractmethod
    def step(self, role: str, response: str) -> StepOutcome:
        """Apply `role`'s response to the state. Malformed text is an outcome with low scores, never an exception."""

    @abstractmethod
    def copy(self) -> "Environment":
        """An independent copy of the state."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """True when no further action can change the result."""

    @property
    @abstractmethod
    def success(self) -> bool:
        """True when the task is solved."""


class TaskFamily(ABC):
    """What `verl_mas_environments` provides: a source of tasks and the environments that hold them.

    Subclasses take their options as keyword arguments of `__init__` and raise ValueError for bad ones.
    `task(split, index)` is a pure function of the options, the split and the index, so that a resumed run sees the
    same tasks without any stored position.
    """

    #: prompt template of each role, with `{placeholder}` fields that `Environment.observe` fills
    prompts: Mapping[str, str]
    #: further rewards, which the reward manager `rule` adds when a trajectory has ended; an instance may set its own
    reward_rules: Sequence[RewardRule] = ()

    @abstractmethod
    def task(self, split: Split, index: int) -> Task:
        """The `index`-th task of the split (index >= 0)."""

    @abstractmethod
    def environment(self, task: Task) -> Environment:
        """A fresh state for the task."""

    def check(self, num_train: int, num_val: int) -> None:
        """Raise ValueError unless the first `num_train` and `num_val` tasks of the splits are disjoint by digest."""
        train = {self.task("train", index).digest for index in range(num_train)}
        shared = [index for index in range(num_val) if self.task("val", index).digest in train]
        if shared:
            raise ValueError(f"{len(shared)} validation tasks are also training tasks, first at val index {shared[0]}")
