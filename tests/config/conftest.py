"""A small team of plugins and a recipe, so that no test here depends on what is installed or on a real model."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pluggy
import pytest

from verl_mas.advantages import ESTIMATORS
from verl_mas.config.compose import Composed, compose
from verl_mas.config.suggest import unknown_name_error
from verl_mas.hooks import Plugins
from verl_mas.rewards.parts import RewardParts
from verl_mas.rewards.rule import RuleRewardManager
from verl_mas.workflow.base import TurnWorkflow
from verl_mas.workflow.environment import Environment, Split, StepOutcome, Task, TaskFamily

RECIPE = """
description: A team of two.
steps: 3
tasks_per_step: 8
workflow: {name: pair, max_turns: 2}
environment: {name: counting, options: {goal: 3}}
roles:
  tool: {policy: tool}
  planner: {policy: planner}
policies:
  tool: {actor_rollout_ref: {actor: {optim: {lr: 2.0e-4}}}}
  planner:
actor_rollout_ref:
  model: {path: %s}
  actor: {optim: {lr: 1.0e-4, weight_decay: 0.02}}
hardware:
  cpu: {steps: 5, actor_rollout_ref: {actor: {optim: {weight_decay: 0.03}}}}
  gpu: {steps: 7}
"""


class PairWorkflow(TurnWorkflow):
    roles = ("tool", "planner")

    async def turn(self, env: Environment, agents: Any) -> None:
        for role in self.roles:
            await agents[role].act(env)


class TrioWorkflow(PairWorkflow):
    roles = ("tool", "planner", "critic")


class CountingEnvironment(Environment):
    def __init__(self, goal: int) -> None:
        self.count, self.goal = 0, goal

    def observe(self, role: str) -> Mapping[str, str]:
        return {"count": str(self.count)}

    def step(self, role: str, response: str) -> StepOutcome:
        self.count += 1
        return StepOutcome(RewardParts(team=float(self.success)))

    def copy(self) -> "CountingEnvironment":
        twin = CountingEnvironment(self.goal)
        twin.count = self.count
        return twin

    @property
    def done(self) -> bool:
        return self.success

    @property
    def success(self) -> bool:
        return self.count >= self.goal


class CountingFamily(TaskFamily):
    prompts = MappingProxyType(dict.fromkeys(TrioWorkflow.roles, "{count}"))

    def __init__(self, goal: int = 1, style: str = "text") -> None:
        if goal < 1:
            raise ValueError(f"goal must be at least 1, not {goal}")
        self.goal = goal

    def task(self, split: Split, index: int) -> Task:
        return Task(f"{split}-{index}", f"{split}-{index}", {})

    def environment(self, task: Task) -> CountingEnvironment:
        return CountingEnvironment(self.goal)


class Named(dict[str, Any]):
    """What plugins provide under one hook."""

    def __init__(self, kind: str, **entries: Any) -> None:
        super().__init__(entries)
        self.kind = kind

    def __missing__(self, name: str) -> Any:
        raise unknown_name_error(self.kind, name, self)


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def recipe_dir(tmp_path: Path, model_dir: Path) -> Path:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "pair.yaml").write_text(RECIPE % model_dir)
    (folder / "verl.yaml").write_text("description: Plain verl.\n")
    return folder


@pytest.fixture
def plugins(recipe_dir: Path) -> Plugins:
    return Plugins(
        workflows=Named("workflow", pair=PairWorkflow, trio=TrioWorkflow),
        environments=Named("environment", counting=CountingFamily),
        reward_managers=Named("reward manager", rule=RuleRewardManager),
        advantage_estimators=Named("advantage estimator", **ESTIMATORS),
        tools={},
        engines={},
        platforms=Named("platform", cpu=object(), gpu=object()),
        recipe_dirs=[recipe_dir],
        _manager=pluggy.PluginManager("verl_mas"),
    )


Compose = Callable[..., Composed]


@pytest.fixture
def composed(plugins: Plugins) -> Compose:
    """`composed("steps=4")`: the team of two on a CPU, at a fixed time."""

    def call(*overrides: str, recipe: str = "pair", hardware: str = "cpu") -> Composed:
        argv: Sequence[str] = (f"recipe={recipe}", f"hardware={hardware}", *overrides)
        return compose(argv, plugins, now=datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC))

    return call
