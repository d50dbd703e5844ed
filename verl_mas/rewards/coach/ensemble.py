"""What several coaches said about one action as one judgement (MAPPA, 4.4, "Mitigating Coach Biases")."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from types import MappingProxyType

AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = MappingProxyType({"mean": fmean, "median": median})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one coach said: `value` as the question reads it, None if there is none, then `cause` says why."""

    value: float | None
    reply: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the coaches together said.

    Attributes:
        value: the mean or median of the values that there are, None if there are none. by_coach: every coach's.
        cause: why a coach, or all of them, gave none.
    """

    value: float | None
    cause: str = ""
    by_coach: Mapping[str, float | None] = field(default_factory=dict)


def judge(labels: Sequence[str], verdicts: Sequence[Verdict], how: str) -> Judgement:
    """The judgement from the verdicts of the coaches called `labels`, by mean or median."""
    available = [verdict.value for verdict in verdicts if verdict.value is not None]
    causes = [
        verdict.cause if len(labels) == 1 else f"{label}: {verdict.cause}"
        for label, verdict in zip(labels, verdicts, strict=True)
        if verdict.value is None
    ]
    values = {label: verdict.value for label, verdict in zip(labels, verdicts, strict=True)}
    return Judgement(float(AGGREGATES[how](available)) if available else None, "; ".join(causes), values)
