"""The hooks a plugin may implement: providers, called once when plugins are loaded, and observers of a run.

A provider returns a new mapping from names to what they stand for. Providers are called in every process of a run
and before any model loads, so they return classes and functions, and leave heavy imports to those.
An observer returns nothing, and may leave out arguments that it does not need. What it raises ends the run.
All are plain functions: a coroutine function would never be awaited and is refused.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_mas import hookspec

# Bodies are empty on purpose: pluggy reads only the names and the arguments.
# mypy: disable-error-code="empty-body"


@hookspec
def verl_mas_workflows() -> dict[str, Any]:
    """Name -> `Workflow` subclass, or any callable that takes the workflow's options and returns a `Workflow`."""


@hookspec
def verl_mas_environments() -> dict[str, Any]:
    """Name -> `TaskFamily` subclass."""


@hookspec
def verl_mas_tools() -> dict[str, Any]:
    """Name -> tool that a workflow may call."""


@hookspec
def verl_mas_reward_managers() -> dict[str, Any]:
    """Name -> `RewardManager` subclass, or any callable that takes its options and returns a `RewardManager`."""


@hookspec
def verl_mas_advantage_estimators() -> dict[str, Any]:
    """Name -> `Estimator`, a class or an instance, or any callable (Credits, *, options) -> float array: one advantage
    per invocation, in the given order.
    """


@hookspec
def verl_mas_engines() -> dict[str, Any]:
    """Name -> training or serving engine."""


@hookspec
def verl_mas_platforms() -> dict[str, Any]:
    """Name -> hardware platform."""


@hookspec
def verl_mas_recipe_dirs() -> list[Path]:
    """Directories with recipes (YAML files). Each must exist."""


@hookspec
def verl_mas_on_run_start(run: Any) -> None:
    """The run is set up; nothing has been sampled.

    Args:
        run: the run, the same object in every observer of one run.
    """


@hookspec
def verl_mas_on_run_end(run: Any, summary: Mapping[str, Any]) -> None:
    """The run is over.

    Args:
        run: the run.
        summary: what summary.json holds.
    """


@hookspec
def verl_mas_on_trajectory_end(run: Any, trajectory: Any) -> None:
    """A workflow has ended, with success, without, or with an error.

    Args:
        run: the run.
        trajectory: the `Trajectory`. Its rewards may still be missing.
    """


@hookspec
def verl_mas_on_rewards_assigned(run: Any, trajectories: Sequence[Any]) -> None:
    """Every invocation of the step has its reward, or is masked.

    Args:
        run: the run.
        trajectories: the `Trajectory` objects of the step.
    """


@hookspec
def verl_mas_on_step_end(run: Any, metrics: Mapping[str, float]) -> None:
    """Every policy has been updated.

    Args:
        run: the run.
        metrics: what metrics.jsonl holds for this step.
    """


@hookspec
def verl_mas_on_validation(run: Any, results: Any) -> None:
    """A validation has ended.

    Args:
        run: the run.
        results: the result of every validation problem.
    """


@hookspec
def verl_mas_on_checkpoint(run: Any, path: Path) -> None:
    """A checkpoint is complete on disk.

    Args:
        run: the run.
        path: the checkpoint's directory.
    """
