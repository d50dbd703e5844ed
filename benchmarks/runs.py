"""What the benchmarks that train have in common: runs that are done once, and the table of what came of them."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLUMNS = ("seed", "before", "after", "minutes", "peak GiB")


def run_once(folder: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """The summary of the run in `folder`: of the one that has already been done there, or else of `verl_mas.main`.

    A run that was interrupted goes on from its last checkpoint, unless the arguments say what to resume.

    Raises:
        RuntimeError: the run failed; its log says why.
    """
    summary = folder / "summary.json"
    if not summary.is_file():
        command = [sys.executable, "-m", "verl_mas.main", "hardware=cpu", f"run_dir={folder}", *arguments]
        if folder.is_dir() and not any(argument.startswith("resume=") for argument in arguments):
            command.append("resume=auto")
        if subprocess.run(command, check=False).returncode != 0:
            raise RuntimeError(f"the run in {folder} failed: see {folder / 'run.log'}")
    if not summary.is_file():
        raise RuntimeError(f"there is no summary in {folder}: was dry_run given?")
    return json.loads(summary.read_text())


def write_header(name: str) -> None:
    """The head of the table, whose first column is `name`."""
    _write(f"| {name} | {' | '.join(COLUMNS)} |", "|---" * (1 + len(COLUMNS)) + "|")


def write_row(name: str, seed: int, summary: dict[str, Any]) -> None:
    """One run: success on held-out tasks before and after, with 95% Wilson intervals, and what it cost."""
    minutes, memory = summary["wall_seconds"] / 60, summary["peak_memory_bytes"] / 2**30
    before, after = success(summary, "before"), success(summary, "after")
    _write(f"| {name} | {seed} | {before} | {after} | {minutes:.1f} | {memory:.1f} |")


def success(summary: dict[str, Any], when: str) -> str:
    """Success with its interval, in percent."""
    rate, interval = summary[f"success_rate_{when}"], summary[f"success_rate_{when}_interval"]
    return "-" if rate is None else f"{rate:.1%} [{interval[0]:.1%}, {interval[1]:.1%}]"


def _write(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
