"""verl's FSDP engines without an accelerator; registered in verl's own engine registry, under a vendor of theirs.

Two things of verl's engines need a GPU whatever the configuration says: every critic is loaded with FlashAttention 2,
and a reference policy is offloaded to pinned memory. Nothing else differs.
"""

import dataclasses

import torch
from transformers import AutoModelForTokenClassification
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead, FSDPEngineWithValueHead

from verl_mas_cpu.verl_plugin import ENGINE_DEVICE, ENGINE_VENDOR

_BACKENDS = ["fsdp", "fsdp2"]


class _NothingToOffload(FSDPEngine):
    """Leaves parameters where they are: in the memory of the CPU."""

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        configured = self.engine_config
        self.engine_config = dataclasses.replace(configured, forward_only=False, offload_policy=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = configured


@EngineRegistry.register("language_model", _BACKENDS, ENGINE_DEVICE, ENGINE_VENDOR)
class CpuLanguageEngine(_NothingToOffload, FSDPEngineWithLMHead):
    """Actor and reference policy."""


@EngineRegistry.register("value_model", _BACKENDS, ENGINE_DEVICE, ENGINE_VENDOR)
class CpuValueEngine(_NothingToOffload, FSDPEngineWithValueHead):
    """A token classifier with one label as critic; its new head is drawn from the engine's seed."""

    def _build_module(self) -> torch.nn.Module:
        config = self.model_config.hf_config
        config.num_labels = 1
        config.classifier_dropout = 0.0
        dtype = PrecisionType.to_dtype(self.engine_config.model_dtype or "fp32")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.engine_config.seed)
            module = AutoModelForTokenClassification.from_pretrained(
                self.model_config.local_path,
                dtype=dtype,
                config=config,
                trust_remote_code=self.model_config.trust_remote_code,
            )
        module.to(dtype)
        if self.model_config.enable_gradient_checkpointing:
            module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return module
