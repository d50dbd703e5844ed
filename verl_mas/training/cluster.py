"""Starts Ray for a run, and says at once when the machine or cluster is too small for it."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray
import transfer_queue
from omegaconf import DictConfig, OmegaConf

from verl_mas.training.external import register_policies


class ClusterTooSmall(RuntimeError):
    """Ray has fewer logical resources than the run needs; placement would wait for ever."""


def check_resources(available: Mapping[str, float], needed: Mapping[str, float]) -> None:
    """Compare Ray's logical resources with the run's needs.

    Raises:
        ClusterTooSmall: naming each resource that is short and the setting that mends it.
    """
    settings = {"CPU": "ray.num_cpus", "GPU": "trainer.n_gpus_per_node, trainer.nnodes or more nodes"}
    short = [
        f"{amount:g} logical {name}s are needed and Ray has {available.get(name, 0.0):g} (see {settings[name]})"
        for name, amount in needed.items()
        if available.get(name, 0.0) < amount
    ]
    if short:
        raise ClusterTooSmall("; ".join(short))


@contextlib.contextmanager
def ray_cluster(
    variables: Mapping[str, str],
    *,
    address: str | None,
    resources: Mapping[str, Any],
    needed: Mapping[str, float],
    transfer_queue_config: DictConfig,
    policies: Sequence[str],
) -> Iterator[None]:
    """A Ray connection and a TransferQueue for the time of the run; ends only what it started.

    Args:
        variables: see `process_environment`. address: of a running cluster, or None to start Ray on this machine.
        resources: arguments of `ray.init` for a local start. needed: logical resources of the run.

    Raises:
        ClusterTooSmall: see `check_resources`; raised before any worker starts.
    """
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    runtime = get_ppo_ray_runtime_env()
    runtime["env_vars"] = {**runtime["env_vars"], **variables}
    start: dict[str, Any] = {"address": address} if address else {**resources, "include_dashboard": False}
    ray.init(runtime_env=runtime, log_to_driver=True, logging_level="warning", **start)
    try:
        check_resources(ray.cluster_resources(), needed)
        register_policies(policies)
        transfer_queue.init(OmegaConf.create(OmegaConf.to_container(transfer_queue_config, resolve=True)))
        try:
            yield
        finally:
            transfer_queue.close()
    finally:
        ray.shutdown()
