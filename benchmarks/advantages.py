"""How long the advantage estimators take, and how much faster at_grpo is than verl's own GRPO function.

    python benchmarks/advantages.py

Everything runs on one core. Limits: 1 million invocations in under 1 s per estimator, with columns that are already
whole numbers; and on the same 100 thousand rows at least 20 times faster than verl's
`compute_grpo_outcome_advantage`, the building of the Credits included, with equal results. Strings are coded once, when
the Credits are built: that time is shown beside. Ends with status 1 if a limit is missed.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, compute_grpo_vectorized_outcome_advantage

from verl_mas.advantages import Credits, Estimator, get_estimator

MAX_SECONDS = 1.0
MIN_RATIO = 20.0
MAX_DIFFERENCE = 1e-6
SAMPLES, TURNS, ROLES = 8, 4, ("solver", "verifier")

Columns = dict[str, Any]


def rows(n: int, rng: np.random.Generator) -> Columns:
    """n invocations in random order: tasks of 8 trajectories, each of 4 turns of 2 roles with a policy each."""
    index = rng.permutation(n)
    role, turn, sample = index % 2, index // 2 % TURNS, index // (2 * TURNS) % SAMPLES
    return {
        "reward": np.round(rng.random(n), 2),
        "task": index // (2 * TURNS * SAMPLES),
        "role": role,
        "turn": turn,
        "sample": sample,
        "policy": role,
        "num_tokens": rng.integers(1, 4096, size=n),
    }


def joint_columns(columns: Columns) -> tuple[Columns, Columns]:
    """The same rows as a product of 2 and 4 responses, and as a tree in which two joint actions have one parent."""
    sample, role, turn = columns["sample"], columns["role"], columns["turn"]
    cross = columns | {"candidate": np.where(role == 0, sample // 4, 2 + sample % 4)}
    tree = columns | {"parent": np.where(turn == 0, -1, sample // 2)}
    return cross, tree


def as_strings(columns: Columns) -> Columns:
    """The same rows with names as lists of strings."""
    return columns | {
        "task": [f"train-{task}" for task in columns["task"].tolist()],
        "role": [ROLES[role] for role in columns["role"].tolist()],
        "policy": [f"policy-{policy}" for policy in columns["policy"].tolist()],
    }


def seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """The shortest of some runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def estimate(estimator: Estimator, columns: Columns) -> Any:
    """Build the Credits and compute the advantages."""
    return estimator(Credits(**columns))


def time_estimators(n: int, rng: np.random.Generator, console: Console) -> bool:
    """Whether every estimator stays below the limit."""
    numbers = rows(n, rng)
    strings = as_strings(numbers)
    cross, tree = joint_columns(numbers)
    cases: list[tuple[str, Columns, dict[str, Any]]] = [
        ("at_grpo", numbers, {"group_size": SAMPLES} if n % (2 * TURNS * SAMPLES) == 0 else {}),
        ("reinforce_pp_global", numbers, {}),
        ("reinforce_pp_global", numbers, {"return_over": "action", "normalize_over": "role"}),
        ("magrpo", numbers, {}),
        ("magrpo", cross, {"joint": "cross"}),
        ("magrpo", tree, {"branching": "tree"}),
        ("agent_grpo", numbers, {}),
        ("rloo", numbers, {}),
        ("remax", numbers, {}),
        ("reinforce", numbers, {"baseline": "mean"}),
    ]
    table = Table(title=f"{n:,} invocations, one core, best of 3, seconds")
    for heading in ("estimator", "options", "Credits + estimate", "limit", ""):
        table.add_column(heading)
    met = True
    for name, columns, options in cases:
        estimator = get_estimator(name, **options)
        taken = seconds(partial(estimate, estimator, columns))
        met &= taken < MAX_SECONDS
        shown = ", ".join(f"{option}={value}" for option, value in options.items())
        table.add_row(name, shown, f"{taken:.3f}", f"< {MAX_SECONDS:g}", "ok" if taken < MAX_SECONDS else "MISSED")
    table.add_section()
    table.add_row("Credits alone", "whole numbers", f"{seconds(lambda: Credits(**numbers)):.3f}")
    table.add_row("Credits alone", "task, role, policy: strings", f"{seconds(lambda: Credits(**strings)):.3f}")
    console.print(table)
    return met


def time_verl(
    function: Callable[..., Any], rewards: torch.Tensor, mask: torch.Tensor, index: Any, expected: Any
) -> tuple[float, float]:
    """Seconds that verl's function takes, and its largest difference from the expected advantages."""
    result, _ = function(rewards.clone(), mask, index)
    taken = seconds(lambda: function(rewards.clone(), mask, index), repeats=2)
    return taken, float(np.abs(result[:, 0].numpy() - expected).max())


def compare_with_verl(n: int, rng: np.random.Generator, console: Console) -> bool:
    """Whether at_grpo is fast enough beside verl's GRPO on the same rows, with the same numbers."""
    columns = rows(n, rng)
    index = Credits(**columns).groups("task", "role", "turn").codes
    rewards, mask = torch.tensor(columns["reward"])[:, None], torch.ones(n, 1, dtype=torch.float64)
    estimator = get_estimator("at_grpo")

    ours = seconds(partial(estimate, estimator, columns))
    result = estimate(estimator, columns)
    slow, slow_difference = time_verl(compute_grpo_outcome_advantage, rewards, mask, index, result)
    fast, fast_difference = time_verl(compute_grpo_vectorized_outcome_advantage, rewards, mask, index, result)
    met = slow / ours >= MIN_RATIO and slow_difference <= MAX_DIFFERENCE
    limits = f"ratio >= {MIN_RATIO:g}, difference <= {MAX_DIFFERENCE:g}"

    table = Table(title=f"{n:,} rows, one core, seconds")
    for heading in ("function", "time", "ratio", "largest difference", "limits", ""):
        table.add_column(heading)
    table.add_row("verl_mas at_grpo, Credits included", f"{ours:.4f}", "1")
    slow_row = ("verl compute_grpo_outcome_advantage", f"{slow:.4f}", f"{slow / ours:.1f}", f"{slow_difference:.1e}")
    table.add_row(*slow_row, limits, "ok" if met else "MISSED")
    fast_row = ("verl's vectorized variant", f"{fast:.4f}", f"{fast / ours:.1f}", f"{fast_difference:.1e}")
    table.add_row(*fast_row, "for comparison")
    console.print(table)
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows for the time of each estimator")
    parser.add_argument("--verl-rows", type=int, default=100_000, help="rows for the comparison with verl")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    rng = np.random.default_rng(arguments.seed)
    console = Console(width=140)
    met = [
        time_estimators(arguments.rows, rng, console),
        compare_with_verl(arguments.verl_rows, rng, console),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
