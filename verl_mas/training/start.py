"""From a complete configuration to a finished run: the process environment first, then Ray, the team and the loop.

Nothing here is imported before the command line has been checked; verl is imported after the environment is set.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, open_dict

from verl_mas.config.compose import Composed
from verl_mas.config.factories import make_environment, make_estimator
from verl_mas.config.resources import devices, run_cpus
from verl_mas.hooks import Plugins
from verl_mas.training.process_environment import process_environment

if TYPE_CHECKING:
    from verl_mas.training.loop import Reporter, Run

#: what makes a request's result independent of the requests beside it (verl: actor_rollout_ref.rollout)
FIXED_BATCHING = {"max_num_seqs": 1, "enable_prefix_caching": False}


def threads_per_model(policies: int) -> int:
    """Cores for one model's computation on a CPU: policies compute side by side."""
    return max(1, (os.cpu_count() or 1) // max(1, policies))


def train_team(
    composed: Composed,
    plugins: Plugins,
    *,
    restore: Path | None,
    reporter: "Reporter",
    say: Callable[[str], None],
) -> "Run":
    """Train the team that the configuration describes.

    Args:
        restore: folder of the checkpoint to continue from, or None.
        reporter: learns what happened. say: tells the person what start-up is doing.

    Returns:
        What observers were told about the run.

    Raises:
        ClusterTooSmall, StartupTimeout: before training. ControllerError, CheckpointError: during it.
    """
    run, policies = composed.run, composed.policies
    platform = plugins.platforms[run.hardware]
    variables = process_environment(platform.environment(threads_per_model(len(policies))), list(policies))
    os.environ.update(variables)

    from verl_mas.training.checkpoint import CheckpointStore, read_manifest
    from verl_mas.training.cluster import ray_cluster
    from verl_mas.training.external import rollout_name
    from verl_mas.training.loop import Loop, Run
    from verl_mas.training.policy_trainer import PolicyTrainer
    from verl_mas.training.team import Team

    start = 0 if restore is None else read_manifest(restore).step
    family = make_environment(run, plugins)
    family.check(run.steps * run.tasks_per_step, run.validation.tasks)
    estimator = make_estimator(run, plugins)
    for policy, config in policies.items():
        with open_dict(config):
            config.actor_rollout_ref.rollout.name = rollout_name(policy)
            if run.deterministic:
                config.actor_rollout_ref.rollout.update(FIXED_BATCHING)
    directory = Path(run.run_dir)
    say("starting Ray")
    with ray_cluster(
        variables,
        address=run.ray.address,
        resources=platform.ray_resources(run.ray.num_gpus, run.ray.num_cpus),
        needed={"CPU": run_cpus(run.controller.workers, policies), "GPU": devices(policies)},
        transfer_queue_config=next(iter(policies.values())).transfer_queue,
        policies=list(policies),
    ):
        team = Team(
            {
                policy: PolicyTrainer(
                    policy,
                    config,
                    train=run.policies[policy].train,
                    restore=None if restore is None else restore / policy,
                )
                for policy, config in policies.items()
            }
        )
        team.start(run, say)
        info = Run(run.recipe, directory, run.seed, run.steps, run)
        store = CheckpointStore(directory / "checkpoints", keep=run.checkpoint.keep)
        plugins.notify("run_start", run=info)
        over_tokens = getattr(estimator, "level", "invocation") == "token" or any(
            config.algorithm.use_kl_in_reward for config in policies.values()
        )
        Loop(info, team, family, estimator, store, plugins, reporter, start, over_tokens).train()
        team.close()
    return info


def train_plain(config: DictConfig, plugins: Plugins, hardware: str) -> None:
    """Run verl's own trainer on a plain verl configuration."""
    os.environ.update(plugins.platforms[hardware].environment(threads_per_model(1)))

    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    auto_set_device(config)
    validate_config(
        config=config,
        use_reference_policy=need_reference_policy(config),
        use_critic=need_critic(config),
    )
    run_ppo(config, task_runner_class=TaskRunnerV1)
