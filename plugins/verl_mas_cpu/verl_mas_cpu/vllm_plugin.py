"""Loaded by vLLM in every process of its own (entry-point group `vllm.general_plugins`)."""

from verl_mas_cpu import selected


def keep_linear_weights_unpacked() -> None:
    """Leave linear weights as parameters, so that new weights can be loaded into them at every step.

    vLLM's CPU backend packs them after the first load and drops the parameter, after which a reload finds no
    `weight_loader`. Plain `torch.nn.functional.linear` is the kernel it falls back to itself.
    """
    if not selected():
        return
    import torch
    from vllm.model_executor.layers import utils

    def unpacked(layer: torch.nn.Module, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = unpacked
