"""One set of vLLM servers per policy: verl's own server, adapter and replica, told apart by the policy's name.

verl names server actors and weight-transfer sockets after the rollout backend and the replica's rank, which two
policies share. Each policy therefore gets a rollout backend of its own, `vllm_<policy>`; `external` registers it.
"""

import os
from typing import Any

import ray
from verl.workers.rollout.vllm_rollout import ServerAdapter
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

from verl_mas.training.process_environment import RUN_VARIABLE


def _socket_scope(rollout_name: str) -> str:
    """What stands for the Ray job id in the path of the weight-transfer socket: unique per job, run and policy."""
    return f"{ray.get_runtime_context().get_job_id()}-{os.environ[RUN_VARIABLE]}-{rollout_name}"


class PolicyServerAdapter(ServerAdapter):
    """The training worker's side: sends weights over a socket whose path carries the policy."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        job = ray.get_runtime_context().get_job_id()
        self.zmq_handle: str = self.zmq_handle.replace(f"-{job}-", f"-{_socket_scope(self.config.name)}-")


class PolicyServer(vLLMHttpServer):
    """The server's side: vLLM's worker reads the scope of the socket from this process's environment."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        os.environ["VERL_RAY_JOB_ID"] = _socket_scope(self.config.name)


class PolicyReplica(vLLMReplica):
    """A replica whose server actors are named after the policy, as the adapter expects them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(PolicyServer)

    def _get_server_name_prefix(self) -> str:
        return f"{self.config.name}_"
