"""What verl-mas itself provides, through the same hooks as everybody else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_mas import hookimpl
from verl_mas.recipes_path import recipe_dir


class GpuPlatform:
    """Accelerators that verl and vLLM know by themselves: nothing to add."""

    name = "gpu"

    @staticmethod
    def environment(threads: int) -> Mapping[str, str]:
        """Environment variables of every process of the run."""
        return {}

    @staticmethod
    def ray_resources(devices: int | None, cpus: int | None) -> Mapping[str, Any]:
        """Arguments of `ray.init`; None lets Ray count the hardware."""
        return {"num_gpus": devices, "num_cpus": cpus}


@hookimpl
def verl_mas_platforms() -> dict[str, Any]:
    return {"gpu": GpuPlatform}


@hookimpl
def verl_mas_reward_managers() -> dict[str, Any]:
    from verl_mas.rewards.coach import coach_reward_manager
    from verl_mas.rewards.rule import RuleRewardManager

    return {"coach": coach_reward_manager, "rule": RuleRewardManager}


@hookimpl
def verl_mas_advantage_estimators() -> dict[str, Any]:
    from verl_mas.advantages import ESTIMATORS

    return dict(ESTIMATORS)


@hookimpl
def verl_mas_recipe_dirs() -> list[Path]:
    return [recipe_dir()]
