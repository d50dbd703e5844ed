"""The keys of verl's tree that follow from the run's own options: set in one place, and by nothing else."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_mas.config.layers import has_key


@dataclass(frozen=True, slots=True)
class Derived:
    """A key of verl's tree, the option of verl-mas to use instead, and how the one follows from the other."""

    path: str
    option: str
    value: Callable[[DictConfig], Any]


DERIVED: tuple[Derived, ...] = (
    Derived("data.train_batch_size", "tasks_per_step", lambda run: run.tasks_per_step),
    Derived("actor_rollout_ref.rollout.n", "sampling.candidates (tree) or sampling.n (parallel)", lambda run: 1),
    Derived("algorithm.adv_estimator", "algorithm.adv_estimator of the run", lambda run: run.algorithm.adv_estimator),
    Derived("reward.num_workers", "reward.manager, which does the scoring", lambda run: 0),
    Derived("trainer.logger", "an observer plugin; metrics are in metrics.jsonl", lambda run: []),
    Derived("transfer_queue.enable", "nothing, it is always on", lambda run: True),
    Derived("trainer.total_training_steps", "steps", lambda run: run.steps),
    Derived("actor_rollout_ref.actor.optim.total_training_steps", "steps", lambda run: run.steps),
    Derived("critic.optim.total_training_steps", "steps", lambda run: run.steps),
    Derived("trainer.save_freq", "checkpoint.every", lambda run: -1),
    Derived("trainer.max_actor_ckpt_to_keep", "checkpoint.keep", lambda run: None),
    Derived("trainer.max_critic_ckpt_to_keep", "checkpoint.keep", lambda run: None),
    Derived("trainer.test_freq", "validation.every", lambda run: -1),
    Derived("trainer.val_before_train", "validation.before", lambda run: False),
    Derived("trainer.resume_mode", "resume", lambda run: "disable"),
    Derived("trainer.default_local_dir", "run_dir", lambda run: f"{run.run_dir}/checkpoints"),
    Derived("data.seed", "seed", lambda run: run.seed),
    Derived("actor_rollout_ref.rollout.seed", "seed", lambda run: run.seed),
    Derived("actor_rollout_ref.actor.data_loader_seed", "seed", lambda run: run.seed),
    Derived("actor_rollout_ref.actor.fsdp_config.seed", "seed", lambda run: run.seed),
    Derived("actor_rollout_ref.ref.fsdp_config.seed", "seed", lambda run: run.seed),
    Derived("critic.data_loader_seed", "seed", lambda run: run.seed),
    Derived("critic.fsdp.seed", "seed", lambda run: run.seed),
)

#: sections of verl's tree for which the run has options of its own
REPLACED_SECTIONS = {"ray_kwargs": "ray.num_cpus, ray.num_gpus and ray.address"}


def claimed(layer: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """The keys of a verl layer that the run derives itself, each with the option to use instead."""
    for derived in DERIVED:
        node: Any = layer
        parts = derived.path.split(".")
        for part in parts:
            if not isinstance(node, Mapping):
                break
            plain = {str(key).removeprefix("+"): value for key, value in node.items()}
            if part not in plain:
                break
            node = plain[part]
        else:
            yield derived.path, derived.option
    for section, option in REPLACED_SECTIONS.items():
        if section in layer:
            yield section, option


def derive(run: DictConfig, policy: DictConfig) -> None:
    """Set the derived keys of one policy's tree, in place; keys that its engine's tree does not have are left out."""
    for derived in DERIVED:
        parent, _, name = derived.path.rpartition(".")
        node = OmegaConf.select(policy, parent)
        if OmegaConf.is_dict(node) and has_key(node, name):
            node[name] = derived.value(run)
