"""verl's platform interface, answered for a machine without an accelerator."""

import contextlib
import os
import types
from collections.abc import Iterator
from typing import Any

import psutil
import torch
import torch.distributed
from verl.plugin.platform import PlatformRegistry
from verl.plugin.platform.platform_base import PlatformBase

from verl_mas_cpu import selected


def _resident_bytes(device: Any = None) -> int:
    return psutil.Process().memory_info().rss


class _HostMemory(types.ModuleType):
    """`torch.cpu`, completed by the memory functions of `torch.cuda` that verl reads; memory is the process's own."""

    def __init__(self) -> None:
        super().__init__("torch.cpu")
        self.__dict__.update({name: value for name, value in vars(torch.cpu).items() if not name.startswith("__")})

    @staticmethod
    def memory_allocated(device: Any = None) -> int:
        return _resident_bytes()

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    @staticmethod
    def mem_get_info(device: Any = None) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    @staticmethod
    def empty_cache() -> None:
        """The host allocator keeps no cache that verl could empty."""

    reset_peak_memory_stats = staticmethod(lambda device=None: None)

    @staticmethod
    def get_device_name(device: Any = None) -> str:
        return "cpu"

    @staticmethod
    def manual_seed(seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    @staticmethod
    def get_rng_state(device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """Logical devices on the host: Ray's "GPU" resource is a count without hardware behind it."""

    def __init__(self) -> None:
        self._module = _HostMemory()

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> types.ModuleType:
        return self._module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return selected()

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        """There is one host."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Host operations are synchronous."""

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """The host allocator has no such settings."""

    def empty_cache(self) -> None:
        self._module.empty_cache()

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        """gloo; and the moment at which a worker's process group comes to life.

        verl asks for this name to build "cpu:gloo,<device>:<backend>", which PyTorch refuses when the device is the CPU
        (one device named twice), and then creates the group only if none exists. A worker (verl gives it RANK and
        MASTER_ADDR) therefore gets its group here, under the only backend string that is valid on a CPU.
        """
        in_worker = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
        if in_worker and not torch.distributed.is_initialized():
            torch.distributed.init_process_group(
                backend="cpu:gloo",
                rank=int(os.environ["RANK"]),
                world_size=int(os.environ["WORLD_SIZE"]),
                init_method=os.environ.get("DIST_INIT_METHOD"),
            )
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_resource_options(self, num_gpus: float) -> dict[str, Any]:
        return {"num_gpus": num_gpus}

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def rollout_env_vars(self) -> dict[str, str]:
        return {}

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        """No device profiler."""

    def profiler_stop(self) -> None:
        """No device profiler."""

    def cudart(self) -> Any:
        return None
