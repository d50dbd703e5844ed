"""The CPU platform: what verl and vLLM find in a process that selects it, and that it is inert elsewhere."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.e2e  # each starts a process that imports verl, some vLLM too


def python(code, **environment):
    """Run code in a fresh process; verl and vLLM decide what they are when they are first imported."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VERL_PLATFORM", "VERL_ENGINE_DEVICE", "VERL_ENGINE_VENDOR")
    }
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**kept, **environment}, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout.strip().splitlines()[-1]


def test_verl_finds_the_platform_by_its_own_plugin_group():
    code = "import verl; from verl.plugin.platform import get_platform; print(get_platform().device_name)"
    assert python(code, VERL_PLATFORM="cpu") == "cpu"


def test_vllm_knows_its_version_and_platform():
    code = (
        "import verl, importlib.metadata as m; from vllm.platforms import current_platform as p;"
        "print(m.version('vllm'), p.device_type)"
    )
    assert python(code, VERL_PLATFORM="cpu") == "0.28.0+cpu cpu"


def test_nothing_is_registered_where_the_platform_is_not_selected():
    code = "import verl; from verl.plugin.platform import PlatformRegistry as r; print(r.get('cpu'))"
    assert python(code) == "None"


def test_asking_for_the_backend_outside_a_worker_starts_no_process_group():
    code = (
        "import verl, torch.distributed as d; from verl.plugin.platform import get_platform as p;"
        "print(p().communication_backend_name(), d.is_initialized())"
    )
    assert python(code, VERL_PLATFORM="cpu") == "gloo False"


def test_a_worker_gets_a_gloo_group_where_verl_asks_for_one():
    code = (
        "import verl, torch.distributed as d; from verl.utils.distributed import initialize_global_process_group_ray;"
        "initialize_global_process_group_ray(); print(d.get_backend(), d.get_world_size()); d.destroy_process_group()"
    )
    from verl.utils.net_utils import get_free_port

    port, _ = get_free_port("127.0.0.1")
    environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    assert python(code, VERL_PLATFORM="cpu", **environment).endswith("1")


def test_linear_weights_stay_parameters(monkeypatch):
    torch = pytest.importorskip("torch")
    from vllm.model_executor.layers import utils

    from verl_mas_cpu.vllm_plugin import keep_linear_weights_unpacked

    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setattr(utils, "dispatch_cpu_unquantized_gemm", utils.dispatch_cpu_unquantized_gemm)
    keep_linear_weights_unpacked()
    layer = torch.nn.Linear(32, 16)
    utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    assert layer.weight.shape == (16, 32)
    inputs = torch.ones(1, 32)
    assert torch.equal(layer.cpu_linear(inputs, layer.weight, layer.bias), layer(inputs))


def test_verl_picks_the_engines_that_need_no_accelerator():
    code = (
        "import verl; from verl.workers.engine import EngineRegistry as r;"
        "models, backends = ('language_model', 'value_model'), ('fsdp', 'fsdp2');"
        "print(*[r.get_engine_cls(model, backend).__name__ for model in models for backend in backends])"
    )
    engines = "CpuLanguageEngine CpuLanguageEngine CpuValueEngine CpuValueEngine"
    assert python(code, VERL_PLATFORM="cpu") == engines
