"""Ray's logical resources: how many a run asks for. They are counts, not hardware; with too few, Ray waits for ever."""

from collections.abc import Mapping

from omegaconf import DictConfig

#: logical CPUs that verl reserves for each device of a resource pool (actor, rollout, reward model)
CPUS_PER_BUNDLE = 3


def required_cpus(*, bundles: int, storage_units: int, workflow_workers: int, reward_workers: int) -> int:
    """Logical CPUs without which a run would wait for ever.

    Args:
        bundles: devices in the resource pools of all policies, 3 CPUs each.
        storage_units: TransferQueue's storage actors, one CPU each; its controller takes one more.
        workflow_workers: actors that execute workflows, one CPU each.
        reward_workers: verl's reward-loop actors, one CPU each.

    One more is for the task runner, and for actors that only need a CPU while they are placed.

    Raises:
        ValueError: a negative count.
    """
    if min(bundles, storage_units, workflow_workers, reward_workers) < 0:
        raise ValueError("counts of Ray actors must not be negative")
    return CPUS_PER_BUNDLE * bundles + storage_units + 1 + workflow_workers + reward_workers + 1


def devices(policies: Mapping[str, DictConfig]) -> int:
    """Devices (on CPU: logical ones) that the policies ask for together."""
    return sum(policy.trainer.n_gpus_per_node * policy.trainer.nnodes for policy in policies.values())


def run_cpus(workflow_workers: int, policies: Mapping[str, DictConfig]) -> int:
    """`required_cpus` of a run with these policies, which share one TransferQueue."""
    storage = [policy.transfer_queue.backend.SimpleStorage.num_data_storage_units for policy in policies.values()]
    return required_cpus(
        bundles=devices(policies),
        storage_units=max(storage, default=0),
        workflow_workers=workflow_workers,
        reward_workers=sum(policy.reward.num_workers for policy in policies.values()),
    )
