"""verl's critic engine for CPUs.

verl loads every critic with FlashAttention 2, whatever `override_config.attn_implementation` says, which needs a GPU.
This engine loads the model with the configured attention. Nothing else differs from verl's.
"""

import torch
from transformers import AutoModelForTokenClassification
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead

from verl_mas_cpu.verl_plugin import ENGINE_DEVICE, ENGINE_VENDOR


@EngineRegistry.register(
    model_type="value_model", backend=["fsdp", "fsdp2"], device=ENGINE_DEVICE, vendor=ENGINE_VENDOR
)
class CpuValueEngine(FSDPEngineWithValueHead):
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
