"""A plain verl configuration gives verl's own numbers, through this command as through verl's own."""

import os
import re
import subprocess
import sys

import pandas
import pytest

from verl_mas_games.embedded_model import default_model_path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

#: sums in float32 differ in their last digits with the threads that a loaded machine gives to each part
FLOAT32 = {"rel": 1e-4, "abs": 1e-6}

REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **unused):
    return solution_str.count(ground_truth) / 12
"""


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    """One role, GRPO, on a parquet file.

    The likeliest token is always sampled and requests are served one by one, so that two runs sample the same: verl
    gives requests no seeds, except with vLLM's batch-invariant kernels, which a CPU lacks.
    """
    folder = tmp_path_factory.mktemp("plain")
    rows = [
        {
            "data_source": "letters",
            "prompt": [{"role": "user", "content": f"{'-' * (index % 5)}@$.\nT>"}],
            "ability": "games",
            "reward_model": {"style": "rule", "ground_truth": "UDLR"[index % 4]},
            "extra_info": {"index": index},
        }
        for index in range(24)
    ]
    pandas.DataFrame(rows).to_parquet(folder / "train.parquet")
    (folder / "reward.py").write_text(REWARD)
    float32 = "{param_dtype: float32, reduce_dtype: float32, buffer_dtype: float32}"
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return [
        f"data.train_files={folder / 'train.parquet'}",
        f"data.val_files={folder / 'train.parquet'}",
        "data.train_batch_size=8",
        "data.max_prompt_length=32",
        "data.max_response_length=12",
        "data.dataloader_num_workers=0",
        "algorithm.adv_estimator=grpo",
        f"actor_rollout_ref.model.path={default_model_path()}",
        "actor_rollout_ref.model.use_remove_padding=false",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        f"{actor}.strategy=fsdp2",
        f"{actor}.fsdp_config.model_dtype=float32",
        f"{actor}.fsdp_config.dtype=float32",
        f"++{actor}.fsdp_config.mixed_precision={float32}",
        f"{actor}.use_torch_compile=false",
        f"{actor}.fsdp_config.use_torch_compile=false",
        f"{actor}.use_kl_loss=false",
        f"{actor}.ppo_mini_batch_size=8",
        f"{actor}.ppo_micro_batch_size_per_gpu=8",
        f"{actor}.optim.lr=1e-3",
        f"{rollout}.name=vllm",
        f"{rollout}.n=1",
        f"{rollout}.top_k=1",
        f"{rollout}.dtype=float32",
        f"{rollout}.enforce_eager=true",
        f"{rollout}.free_cache_engine=false",
        f"+{rollout}.enable_sleep_mode=false",
        f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.max_num_seqs=1",
        f"{rollout}.enable_prefix_caching=false",
        f"{rollout}.log_prob_micro_batch_size_per_gpu=8",
        f"{rollout}.calculate_log_probs=true",
        f"{rollout}.agent.num_workers=1",
        "reward.num_workers=1",
        f"reward.custom_reward_function.path={folder / 'reward.py'}",
        "trainer.device=cpu",
        "trainer.use_v1=true",
        "trainer.n_gpus_per_node=1",
        "trainer.nnodes=1",
        "trainer.total_training_steps=3",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "trainer.val_before_train=false",
        "trainer.logger=[console]",
        "trainer.resume_mode=disable",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "ray_kwargs.ray_init.num_cpus=16",
        "+ray_kwargs.ray_init.num_gpus=1",
        "+ray_kwargs.ray_init.include_dashboard=false",
    ]


def numbers(module, arguments, **environment):
    """Reward, gradient norm and loss of every step, as verl's console logger prints them."""
    command = [sys.executable, "-m", module, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    steps = re.findall(r"step:(\d+) - (.*)", result.stdout)
    assert [int(step) for step, _ in steps] == [1, 2, 3], result.stdout[-4000:]
    wanted = ("critic/rewards/mean", "actor/grad_norm", "actor/pg_loss")
    return [
        {name: float(re.search(rf"{name}:(?:np\.float64\()?([-\d.e]+)", line)[1]) for name in wanted}
        for _, line in steps
    ]


def test_verl_gives_the_same_numbers_through_this_command_as_through_its_own(arguments):
    ours = numbers("verl_mas.main", ["recipe=verl", "hardware=cpu", *arguments])
    theirs = numbers("verl.trainer.main_ppo", arguments, VERL_PLATFORM="cpu")
    for our_step, their_step in zip(ours, theirs, strict=True):
        assert our_step["critic/rewards/mean"] == their_step["critic/rewards/mean"]
        assert our_step == pytest.approx(their_step, **FLOAT32)
    assert all(step["actor/grad_norm"] > 0 for step in ours), ours
