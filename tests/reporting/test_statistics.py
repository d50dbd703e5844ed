"""Success rates and their intervals."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.reporting.statistics import SuccessRate, wilson_interval

COUNTS = st.integers(1, 500).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials)))


def test_interval_matches_newcombes_published_examples() -> None:
    # Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3 (score).
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0000, 0.1611), abs=5e-5)
    assert wilson_interval(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


def test_interval_at_zero_successes_ends_where_the_algebra_says() -> None:
    # With p = 0 the upper end is z^2 / (n + z^2); z = 1.959964 from tables.
    z2 = 1.959964**2
    assert wilson_interval(0, 10) == pytest.approx((0.0, z2 / (10 + z2)), abs=1e-6)


@given(COUNTS)
def test_the_ends_solve_the_score_equation(counts: tuple[int, int]) -> None:
    successes, trials = counts
    for end in wilson_interval(successes, trials):
        if 0.0 < end < 1.0:
            distance = abs(successes / trials - end) / math.sqrt(end * (1 - end) / trials)
            assert distance == pytest.approx(1.959964, rel=1e-5)


@given(COUNTS)
def test_failures_have_the_mirrored_interval(counts: tuple[int, int]) -> None:
    successes, trials = counts
    low, high = wilson_interval(successes, trials)
    assert wilson_interval(trials - successes, trials) == pytest.approx((1 - high, 1 - low), abs=1e-12)
    assert 0.0 <= low <= successes / trials <= high <= 1.0


@given(COUNTS)
def test_more_confidence_is_a_wider_interval(counts: tuple[int, int]) -> None:
    low, high = wilson_interval(*counts, confidence=0.9)
    wider_low, wider_high = wilson_interval(*counts, confidence=0.99)
    assert wider_low <= low
    assert wider_high >= high


@pytest.mark.parametrize(
    ("successes", "trials", "confidence"), [(0, 0, 0.95), (-1, 5, 0.95), (6, 5, 0.95), (1, 5, 1.0)]
)
def test_impossible_counts_are_refused(successes: int, trials: int, confidence: float) -> None:
    with pytest.raises(ValueError, match=r"must lie|needs at least"):
        wilson_interval(successes, trials, confidence)


def test_outcomes_are_counted() -> None:
    rate = SuccessRate.of([True, False, False, True])
    assert rate == SuccessRate(2, 4)
    assert rate.rate == 0.5
    assert rate.interval == wilson_interval(2, 4)


def test_no_outcomes_are_no_rate() -> None:
    with pytest.raises(ValueError, match="at least one trial"):
        SuccessRate.of([])
