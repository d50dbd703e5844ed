"""The hooks of verl-mas that this package answers."""

import os
from collections.abc import Mapping
from typing import Any

from verl_mas import hookimpl


class CpuPlatform:
    """How verl-mas starts Ray, and what every process must find in its environment, on a CPU."""

    name = "cpu"

    @staticmethod
    def available() -> bool:
        """Every machine has a CPU."""
        return True

    @staticmethod
    def environment(threads: int) -> Mapping[str, str]:
        """Environment variables of the driver and of every worker.

        Args:
            threads: cores that one model's forward or backward pass may use.
        """
        return {
            "VERL_PLATFORM": "cpu",
            "VERL_ENGINE_DEVICE": "cuda",
            "OMP_NUM_THREADS": str(threads),
            "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"),
            "VLLM_CPU_OMP_THREADS_BIND": os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
            "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
            "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        }

    @staticmethod
    def ray_resources(devices: int, cpus: int) -> Mapping[str, Any]:
        """Arguments of `ray.init`: logical devices and logical CPUs, which are counts and not hardware."""
        return {"num_gpus": devices, "num_cpus": cpus}


@hookimpl
def verl_mas_platforms() -> dict[str, Any]:
    return {"cpu": CpuPlatform}
