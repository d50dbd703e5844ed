"""What `hardware=auto` means, without importing torch."""

import os
from collections.abc import Mapping
from pathlib import Path

HARDWARE = ("auto", "cpu", "gpu")
#: device nodes of NVIDIA, AMD and Ascend accelerators
_DEVICE_NODES = ("nvidia[0-9]*", "kfd", "davinci[0-9]*")
_HIDING_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")


def detect_hardware(environ: Mapping[str, str] | None = None, devices: Path = Path("/dev")) -> str:
    """ "gpu" if the machine shows an accelerator and the environment does not hide it, else "cpu".

    Args:
        environ: the environment, the process's own by default.
        devices: folder of the device nodes.
    """
    environ = os.environ if environ is None else environ
    if any(environ.get(variable, "0").strip() in ("", "-1") for variable in _HIDING_VARIABLES):
        return "cpu"
    found = any(any(devices.glob(pattern)) for pattern in _DEVICE_NODES)
    return "gpu" if found else "cpu"
