"""Time per step of verl_mas over verl's own, on the same single-policy work: `python benchmarks/step_time.py`.

The same GRPO on the same parquet file, once through `python -m verl.trainer.main_ppo` and once through the whole
multi-agent path (controller, router, one policy's trainer; recipe=grpo_dataset), on a CPU, one after the other: equal
model, batch, lengths, threads and options of verl. The first steps of each are dropped, and medians compared.

verl's replay buffer looks for finished rollouts every 2 s, which on work as small as this would decide the comparison.
verl is therefore also measured with a buffer that looks more often (more often still, and looking itself takes the time
of the rollout), and the fastest of these is what counts. Exits 1 if the ratio is above 1.05.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.parquet

from verl_mas.training.start import threads_per_model
from verl_mas_cpu.plugin import CpuPlatform
from verl_mas_games.embedded_model import default_model_path
from verl_mas_games.sokoban.environment import Sokoban

MAX_RATIO = 1.05
POLL_SECONDS = (0.1, 0.02)
SAMPLES = 4
HELD_OUT = 4
#: largest relative difference of mean response lengths at which both sides still do the same work
MAX_LENGTH_DIFFERENCE = 0.1
FLOAT32 = "{param_dtype: float32, reduce_dtype: float32, buffer_dtype: float32}"

REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **unused):
    return solution_str.count(ground_truth) / 12
"""

BUFFER = """
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

class QuickReplayBuffer(ReplayBuffer):
    def __init__(self, **options):
        super().__init__(**options, poll_interval={poll_seconds})
"""

#: verl's options for both sides; a learning rate so small that both sides keep sampling responses of the same length
SHARED = (
    "data.max_prompt_length=64",
    "data.max_response_length=12",
    "actor_rollout_ref.model.use_remove_padding=false",
    "actor_rollout_ref.model.enable_gradient_checkpointing=false",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.use_torch_compile=false",
    "actor_rollout_ref.actor.use_kl_loss=false",
    "actor_rollout_ref.actor.use_dynamic_bsz=true",
    "actor_rollout_ref.actor.optim.lr=1e-6",
    "actor_rollout_ref.actor.fsdp_config.model_dtype=float32",
    "actor_rollout_ref.actor.fsdp_config.dtype=float32",
    f"++actor_rollout_ref.actor.fsdp_config.mixed_precision={FLOAT32}",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false",
    "actor_rollout_ref.rollout.dtype=float32",
    "actor_rollout_ref.rollout.enforce_eager=true",
    "actor_rollout_ref.rollout.free_cache_engine=false",
    "+actor_rollout_ref.rollout.enable_sleep_mode=false",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.rollout.max_num_seqs=256",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=true",
    "actor_rollout_ref.rollout.calculate_log_probs=true",
    "trainer.n_gpus_per_node=1",
    "trainer.nnodes=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
)


@dataclass(frozen=True)
class Work:
    """What both sides do. `folder` holds the files that both read."""

    folder: Path
    steps: int
    tasks: int

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def train(self) -> Path:
        return self.folder / "train.parquet"

    @property
    def val(self) -> Path:
        return self.folder / "val.parquet"

    @property
    def reward(self) -> Path:
        return self.folder / "reward.py"

    def buffer(self, poll_seconds: float) -> Path:
        path = self.folder / f"buffer_{poll_seconds}.py"
        path.write_text(BUFFER.format(poll_seconds=poll_seconds))
        return path

    def write(self) -> None:
        """Write levels of Sokoban as prompts that the embedded model knows, that model, and the reward function."""
        shutil.copytree(default_model_path(), self.model)
        family = Sokoban(style="compact", tool="actions")
        for split, path, count in (("train", self.train, self.steps * self.tasks), ("val", self.val, HELD_OUT)):
            rows = []
            for index in range(count):
                values = family.environment(family.task(split, index)).observe("tool")
                rows.append(
                    {
                        "data_source": "letters",
                        "prompt": [{"role": "user", "content": family.prompts["tool"].format(**values)}],
                        "reward_model": {"style": "rule", "ground_truth": "UDLR"[index % 4]},
                        "extra_info": {"index": index},
                    }
                )
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        self.reward.write_text(REWARD)


@dataclass(frozen=True)
class Step:
    """Seconds of one step, and of its parts; mean length of its responses in tokens."""

    seconds: float
    parts: Mapping[str, float]
    response_length: float


def environment() -> dict[str, str]:
    """The environment of both sides: all cores for the one policy."""
    return {**os.environ, **CpuPlatform.environment(threads_per_model(1)), "PYTHONUNBUFFERED": "1"}


def run(command: Sequence[str], log: Path) -> str:
    """The output of a finished command. Raises RuntimeError with the end of it if the command failed."""
    with log.open("w+") as output:
        status = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment(), check=False
        ).returncode
        output.seek(0)
        text = output.read()
    if status != 0:
        raise RuntimeError(f"{' '.join(command[:3])} failed with status {status}; the end of {log}:\n{text[-4000:]}")
    return text


def verl_steps(work: Work, name: str, arguments: Sequence[str]) -> list[Step]:
    """verl's own trainer, as its console logger tells it; `step` includes sending the new weights to the servers."""
    command = [
        *(sys.executable, "-m", "verl.trainer.main_ppo"),
        *SHARED,
        f"actor_rollout_ref.model.path={work.model}",
        f"data.train_files={work.train}",
        f"data.val_files={work.val}",
        f"data.train_batch_size={work.tasks}",
        "data.dataloader_num_workers=0",
        "algorithm.adv_estimator=grpo",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={work.tasks}",
        "actor_rollout_ref.rollout.name=vllm",
        f"actor_rollout_ref.rollout.n={SAMPLES}",
        "actor_rollout_ref.rollout.agent.num_workers=1",
        "reward.num_workers=1",
        f"reward.custom_reward_function.path={work.reward}",
        "trainer.device=cpu",
        "trainer.use_v1=true",
        f"trainer.total_training_steps={work.steps}",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "trainer.val_before_train=false",
        "trainer.logger=[console]",
        "trainer.resume_mode=disable",
        "ray_kwargs.ray_init.num_cpus=16",
        "+ray_kwargs.ray_init.num_gpus=1",
        "+ray_kwargs.ray_init.include_dashboard=false",
        *arguments,
    ]
    text = run(command, work.folder / f"{name}.log")
    lines = re.findall(r"step:\d+ - (.*)", text)
    if len(lines) != work.steps:
        raise RuntimeError(f"{name} reported {len(lines)} steps instead of {work.steps}")
    steps = []
    for line in lines:
        numbers = {
            key: float(value) for key, value in re.findall(r"([\w/]+):(?:np\.\w+\()?(-?[\d.]+(?:e-?\d+)?)", line)
        }
        parts = {key.removeprefix("timing_s/"): value for key, value in numbers.items() if key.startswith("timing_s/")}
        total = parts.pop("step")
        steps.append(Step(total, parts, numbers["response_length/mean"]))
    return steps


def our_steps(work: Work) -> list[Step]:
    """A team of one role through the controller, the router and the policy's trainer, as metrics.jsonl tells it."""
    directory = work.folder / "verl_mas"
    command = [
        *(sys.executable, "-m", "verl_mas.main", "recipe=grpo_dataset", "hardware=cpu"),
        *SHARED,
        f"actor_rollout_ref.model.path={work.model}",
        f"run_dir={directory}",
        f"steps={work.steps}",
        f"tasks_per_step={work.tasks}",
        f"sampling.n={SAMPLES}",
        f"environment.options.train_files={work.train}",
        f"environment.options.val_files={work.val}",
        f"environment.options.reward_function={{path: {work.reward}}}",
        f"validation={{tasks: {HELD_OUT}, before: false, after: false}}",
        "controller.workers=1",
    ]
    run(command, work.folder / "verl_mas.log")
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    if len(records) != work.steps:
        raise RuntimeError(f"verl_mas reported {len(records)} steps instead of {work.steps}")
    return [
        Step(
            sum(seconds for phase, seconds in record["phase_seconds"].items() if "/" not in phase),
            record["phase_seconds"],
            record["response_length/solver"],
        )
        for record in records
    ]


def describe(name: str, steps: Sequence[Step]) -> str:
    """Medians and quartiles over the steps, in one line."""
    seconds = [step.seconds for step in steps]
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    parts = ", ".join(f"{part} {statistics.median(one.parts[part] for one in steps):.3f}" for part in steps[0].parts)
    length = statistics.mean(step.response_length for step in steps)
    return f"{name}: {middle:.3f} s per step [{low:.3f}, {high:.3f}] ({parts}); {length:.2f} tokens per response"


def check_same_work(runs: Mapping[str, Sequence[Step]]) -> None:
    """Raise RuntimeError if the sides sampled responses of different lengths: then the times say nothing."""
    lengths = {name: statistics.mean(step.response_length for step in steps) for name, steps in runs.items()}
    if max(lengths.values()) > (1 + MAX_LENGTH_DIFFERENCE) * min(lengths.values()):
        raise RuntimeError(f"the sides sampled responses of different lengths: {lengths}")


def main() -> int:
    """Run the jobs, print their times and the ratio. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--drop", type=int, default=2, help="first steps that do not count")
    parser.add_argument("--tasks", type=int, default=16, help="prompts per step, each sampled 4 times")
    parser.add_argument("--poll", type=float, nargs="+", default=POLL_SECONDS, help="seconds between verl's looks")
    options = parser.parse_args()
    if options.steps - options.drop < 2:
        parser.error("--steps must be at least --drop plus 2")
    with tempfile.TemporaryDirectory(prefix="step_time_") as folder:
        work = Work(Path(folder), options.steps, options.tasks)
        work.write()
        runs = {"verl": verl_steps(work, "verl", [])[options.drop :]}
        _report("verl", runs["verl"])
        for poll_seconds in options.poll:
            quick = [
                f"trainer.v1.sampler.custom_sampler.path={work.buffer(poll_seconds)}",
                "trainer.v1.sampler.custom_sampler.name=QuickReplayBuffer",
            ]
            name = f"verl_poll_{poll_seconds}"
            runs[name] = verl_steps(work, name, quick)[options.drop :]
            _report(name, runs[name])
        runs["verl_mas"] = our_steps(work)[options.drop :]
        _report("verl_mas", runs["verl_mas"])
    check_same_work(runs)
    medians = {name: statistics.median(step.seconds for step in steps) for name, steps in runs.items()}
    ours, as_it_is = medians.pop("verl_mas"), medians["verl"]
    ratio = ours / min(medians.values())
    sys.stdout.write(f"verl_mas over verl as it is: {ours / as_it_is:.3f}\n")
    sys.stdout.write(f"verl_mas over the fastest verl: {ratio:.3f} (at most {MAX_RATIO})\n")
    return 0 if ratio <= MAX_RATIO else 1


def _report(name: str, steps: Sequence[Step]) -> None:
    sys.stdout.write(f"{describe(name, steps)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
