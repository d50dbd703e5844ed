"""summary.json says what came of the run."""

import platform

import pytest

from verl_mas.reporting.records import phase_totals
from verl_mas.reporting.statistics import SuccessRate, wilson_interval
from verl_mas.reporting.summary import build_summary, describe_summary, package_versions

RECORDS = [
    {"step": 1, "phase_seconds": {"rollout": 2.0, "learn": 3.0, "learn/update_actor": 2.0}},
    {"step": 2, "phase_seconds": {"rollout": 2.5, "validate": 1.0}},
]


def test_phases_add_up_over_the_steps_and_parts_count_once() -> None:
    assert phase_totals(RECORDS) == {"rollout": 4.5, "learn": 3.0, "validate": 1.0}


def test_the_summary_holds_success_with_intervals_cost_and_versions() -> None:
    summary = build_summary(
        before=SuccessRate(40, 200),
        after=SuccessRate(90, 200),
        records=RECORDS,
        wall_seconds=61.5,
        seed=7,
        versions={"python": "3.11.7"},
        peak_memory_bytes=3 * 2**30,
    )
    assert summary == {
        "success_rate_before": 0.2,
        "success_rate_before_interval": list(wilson_interval(40, 200)),
        "success_rate_after": 0.45,
        "success_rate_after_interval": list(wilson_interval(90, 200)),
        "n_validation": 200,
        "steps": 2,
        "wall_seconds": 61.5,
        "phase_seconds": {"rollout": 4.5, "learn": 3.0, "validate": 1.0},
        "peak_memory_bytes": 3 * 2**30,
        "seed": 7,
        "resumed_from_step": None,
        "versions": {"python": "3.11.7"},
    }
    # Wilson by hand (z^2 = 3.841459): 40 of 200: centre .20565, half width .05520; 90 of 200: .45094, .06830.
    assert describe_summary(summary).splitlines() == [
        "success before training: 20.0% (95% interval 15.0% to 26.1%, 200 held-out problems)",
        "success after training: 45.0% (95% interval 38.3% to 51.9%, 200 held-out problems)",
        "2 steps in 1m02s (rollout 4s, learn 3s, validate 1s)",
        "peak memory 3.0 GiB",
    ]


def test_what_was_not_validated_is_null_and_not_a_number() -> None:
    summary = build_summary(before=None, after=None, records=[], wall_seconds=1.0, seed=0, versions={})
    assert summary["success_rate_before"] is None
    assert summary["success_rate_after_interval"] is None
    assert (summary["n_validation"], summary["steps"]) == (0, 0)
    assert describe_summary(summary) == "0 steps in 1s"


def test_validations_on_different_numbers_of_problems_are_not_compared() -> None:
    with pytest.raises(ValueError, match="before is on 100 problems, after on 200"):
        build_summary(
            before=SuccessRate(1, 100), after=SuccessRate(1, 200), records=[], wall_seconds=1.0, seed=0, versions={}
        )


def test_versions_name_python_and_what_is_installed() -> None:
    versions = package_versions(["numpy", "no-such-distribution-anywhere"])
    assert versions["python"] == platform.python_version()
    assert set(versions) == {"python", "numpy"}
