"""Makes the run's policies known to verl, in the driver and in every process of the run.

verl imports this module by itself (`VERL_USE_EXTERNAL_MODULES`) while it is still being imported, so the backends are
registered by name and loaded on first use.
"""

import os
from collections.abc import Iterable

from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from verl_mas.training.process_environment import POLICIES_VARIABLE


def rollout_name(policy: str) -> str:
    """The rollout backend that serves `policy` (verl: `actor_rollout_ref.rollout.name`)."""
    return f"vllm_{policy}"


def _replica_class() -> type[RolloutReplica]:
    from verl_mas.training.rollout import PolicyReplica

    return PolicyReplica


def register_policies(policies: Iterable[str]) -> None:
    """Register `vllm_<policy>` in verl's replica and adapter registries of this process. Safe to call twice."""
    for policy in policies:
        name = rollout_name(policy)
        RolloutReplicaRegistry.register(name, _replica_class)
        _ROLLOUT_REGISTRY[(name, "async")] = "verl_mas.training.rollout.PolicyServerAdapter"


register_policies(filter(None, os.environ.get(POLICIES_VARIABLE, "").split(",")))
