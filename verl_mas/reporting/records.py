"""Reading a metrics record: {"step": 12, "phase_seconds": {...}, "success_rate": .4, "reward/<role>": .3, ...}."""

from collections.abc import Iterable, Mapping
from typing import Any

_REWARD = "reward/"


def role_rewards(record: Mapping[str, Any]) -> dict[str, float]:
    """Mean reward of each role; "reward/<role>/<term>", a term of the breakdown, is no role's reward."""
    return {
        key.removeprefix(_REWARD): float(value)
        for key, value in record.items()
        if key.startswith(_REWARD) and key.count("/") == 1
    }


def phase_seconds(record: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of each phase of the step; "<phase>/<part>" is part of another and left out, so that they add up."""
    return {name: float(value) for name, value in record.get("phase_seconds", {}).items() if "/" not in name}


def phase_totals(records: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds spent in each phase over all records, in the order in which the phases first occur."""
    totals: dict[str, float] = {}
    for record in records:
        for name, seconds in phase_seconds(record).items():
            totals[name] = totals.get(name, 0.0) + seconds
    return totals
