"""Is the machinery real? The Sokoban demo against itself, with one thing changed at a time.

    python benchmarks/sokoban_ablation.py --out FOLDER [--seeds 0 1 2] [--only per_role swapped ...] [key=value ...]

Variants:

- per_role: the demo, one policy for each role, tree sampling;
- shared: one policy for both roles;
- parallel: n independent trajectories instead of the tree, at the same number of samples (AT-GRPO's groups then hold
  different prompts after the first turn);
- local_rewards: the paper's reward, alpha * team + local (appendix A.1.5), instead of the team score alone;
- swapped: the trained policies of per_role, exchanged between the roles, validated without further training;
- zero_lr: the demo with a learning rate of zero; success must stay within its interval.

Every run has its own folder below FOLDER; finished runs are not repeated, so the command can be interrupted. Prints one
line per variant and seed: success on held-out levels before and after, with 95% Wilson intervals, minutes and GiB.
"""

import argparse
from pathlib import Path
from typing import Any

from runs import run_once, write_header, write_row

VARIANTS: dict[str, list[str]] = {
    "per_role": [],
    "shared": ["roles.planner.policy=tool"],
    "parallel": ["sampling.scheme=parallel", "sampling.n=4", "algorithm.options.same_prompt=false"],
    "local_rewards": ["reward.mixing=sum"],
    "zero_lr": ["actor_rollout_ref.actor.optim.lr=0"],
    "swapped": ["roles.tool.policy=planner", "roles.planner.policy=tool"],
}


def run(out: Path, variant: str, seed: int, extra: list[str]) -> dict[str, Any]:
    """The summary of one run, from its folder if it has already been done."""
    arguments = ["recipe=atgrpo_sokoban", f"seed={seed}", *VARIANTS[variant], *extra]
    if variant == "swapped" and not (out / f"swapped-seed{seed}" / "summary.json").is_file():
        checkpoint = trained(out / f"per_role-seed{seed}")
        arguments += [f"resume={checkpoint}", f"steps={int(checkpoint.name.removeprefix('step_'))}"]
    return run_once(out / f"{variant}-seed{seed}", arguments)


def trained(folder: Path) -> Path:
    """The last checkpoint of a finished run."""
    checkpoints = sorted((folder / "checkpoints").glob("step_*/manifest.json"))
    if not checkpoints:
        raise RuntimeError(f"swapped needs the trained policies of {folder}: run per_role first")
    return checkpoints[-1].parent


def main() -> None:
    """Run the variants and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    options, extra = parser.parse_known_args()
    write_header("variant")
    for variant in [name for name in VARIANTS if name in options.only]:
        for seed in options.seeds:
            write_row(variant, seed, run(options.out, variant, seed, extra))


if __name__ == "__main__":
    main()
