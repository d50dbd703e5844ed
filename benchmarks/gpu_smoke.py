"""Does a GPU machine take a step? Two policies, the embedded model, FSDP2 and vLLM on real accelerators.

    python benchmarks/gpu_smoke.py [--devices N] [key=value ...]

Needs `make install HARDWARE=gpu` and two devices, one for each policy; with one device the roles share a policy.
Prints the devices, the steps' gradient norms, the largest difference between the probabilities that vLLM reported and
those that FSDP2 computed, and seconds per phase. Exits non-zero if a step did not change the weights.

Never run so far: no machine with a GPU was at hand.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ARGUMENTS = [
    "recipe=atgrpo_sokoban",
    "hardware=gpu",
    "steps=2",
    "tasks_per_step=8",
    "validation.tasks=16",
    "environment.options={tool: actions, style: compact, max_actions: 10}",
    "actor_rollout_ref.model.path=${package:verl_mas_games}/models/sokoban",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.optim.lr=1e-4",
    "data.max_prompt_length=128",
    "data.max_response_length=16",
    "data.apply_chat_template_kwargs={}",
    "trainer.n_gpus_per_node=1",
]


def main() -> int:
    """Run two steps and judge them."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=torch.cuda.device_count())
    options, extra = parser.parse_known_args()
    if not torch.cuda.is_available() or options.devices < 1:
        sys.stderr.write("no GPU is visible to PyTorch: nothing was run\n")
        return 2
    sys.stdout.write("\n".join(torch.cuda.get_device_name(one) for one in range(options.devices)) + "\n")
    sharing = [] if options.devices > 1 else ["roles.planner.policy=tool"]
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        command = [sys.executable, "-m", "verl_mas.main", *ARGUMENTS, *sharing, f"run_dir={folder}", *extra]
        if (status := subprocess.run(command, check=False).returncode) != 0:
            sys.stderr.write((folder / "run.log").read_text()[-8000:] if (folder / "run.log").is_file() else "")
            return status
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    moved = True
    for record in records:
        norms = {key: value for key, value in record.items() if key.endswith("actor/grad_norm")}
        gaps = [value for key, value in record.items() if key.endswith("rollout_probs_diff_max")]
        moved = moved and bool(norms) and all(value > 0 for value in norms.values())
        sys.stdout.write(f"step {record['step']}: {norms}, largest probability gap {max(gaps):.2e}\n")
        sys.stdout.write(f"  seconds {record['phase_seconds']}\n")
    return 0 if moved else 1


if __name__ == "__main__":
    sys.exit(main())
