"""A small world for the tests: an environment whose rewards follow from a formula that a test can redo by hand."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from verl_mas.rewards import RewardParts, RuleRewardManager
from verl_mas.workflow import (
    Agents,
    Controller,
    Environment,
    Sampling,
    Split,
    StepOutcome,
    Task,
    TaskFamily,
    TreeSampling,
    TurnWorkflow,
)


class SumEnvironment(Environment):
    """Responses are digits; the team score after an action is (sum of all digits so far mod 10) / 9."""

    def __init__(self, log: tuple[tuple[str, str], ...] = (), origin: "SumEnvironment | None" = None) -> None:
        self.log = log
        self.origin = origin
        self.copies: list[SumEnvironment] = []
        self.before_step: Callable[[SumEnvironment, str, str], None] | None = (
            None if origin is None else origin.before_step
        )

    def observe(self, role: str) -> Mapping[str, str]:
        return {"history": " ".join(f"{who}={said}" for who, said in self.log)}

    def step(self, role: str, response: str) -> StepOutcome:
        if self.before_step is not None:
            self.before_step(self, role, response)
        self.log = (*self.log, (role, response))
        total = sum(int(said) for _, said in self.log)
        return StepOutcome(RewardParts(team=total % 10 / 9), {"total": total})

    def copy(self) -> "SumEnvironment":
        made = SumEnvironment(self.log, origin=self)
        self.copies.append(made)
        return made

    @property
    def done(self) -> bool:
        return False

    @property
    def success(self) -> bool:
        return sum(int(said) for _, said in self.log) % 2 == 0


class SumFamily(TaskFamily):
    """Keeps every environment it makes, by task id; `before_step` of a family is called first in every step."""

    prompts: Mapping[str, str] = {"first": "You are first. {history}", "second": "You are second. {history}"}

    def __init__(self, environment: type[SumEnvironment] = SumEnvironment) -> None:
        self.environment_type = environment
        self.made: dict[str, list[SumEnvironment]] = {}
        self.before_step: Callable[[SumEnvironment, str, str], None] | None = None

    def task(self, split: Split, index: int) -> Task:
        return Task(id=f"{split}-{index}", digest=f"digest-{split}-{index}", payload={})

    def environment(self, task: Task) -> SumEnvironment:
        made = self.environment_type()
        made.before_step = self.before_step
        self.made.setdefault(task.id, []).append(made)
        return made


class BothAct(TurnWorkflow):
    roles = ("first", "second")

    async def turn(self, env: Environment, agents: Agents) -> None:
        for role in self.roles:
            await agents[role].act(env)


def make_controller(
    model: Any, family: TaskFamily, workflow: Any = None, scheme: Any = None, **changes: Any
) -> Controller:
    """A controller with strict settings: no retries, no tolerated failure."""
    workflow = workflow or (lambda: BothAct(max_turns=2))
    settings: dict[str, Any] = {
        "roles": {role: Sampling() for role in workflow().roles},
        "concurrency": 64,
        "env_timeout_s": 30.0,
        "max_failure_rate": 0.0,
        "retries": 0,
        "deterministic": False,
    }
    manager = changes.pop("reward_manager", None) or RuleRewardManager()
    return Controller(model, family, workflow, scheme or TreeSampling(candidates=3), manager, **(settings | changes))


def run(controller: Controller, family: TaskFamily, tasks: int = 1, **options: Any) -> Any:
    """What the controller returns for the first tasks of the split."""
    options = {"split": "train", "step": 0, "seed": 0} | options
    chosen = [family.task(options["split"], index) for index in range(tasks)]
    return asyncio.run(controller.run(chosen, **options))


@pytest.fixture(scope="session")
def world() -> SimpleNamespace:
    """The classes and helpers of this file."""
    return SimpleNamespace(
        SumEnvironment=SumEnvironment, SumFamily=SumFamily, BothAct=BothAct, make_controller=make_controller, run=run
    )
