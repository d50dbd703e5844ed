"""The CPU platform of verl-mas: what verl and vLLM need on a machine without an accelerator.

Three extension points, each used as its owner documents it:

- verl's entry-point group `verl.plugins` loads `verl_plugin`, which registers the platform "cpu" and the CPU engines;
- vLLM's entry-point group `vllm.general_plugins` loads `vllm_plugin`, which keeps linear weights reloadable;
- the entry-point group `verl_mas` loads `plugin`, which tells verl-mas how to start Ray for this platform.

All three are inert unless the environment variable `VERL_PLATFORM` is "cpu".
"""

import os


def selected() -> bool:
    """Whether this process runs on the CPU platform."""
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"
