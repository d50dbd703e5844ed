"""The rate limit by the clock, and when failures end the run."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.rewards.coach import CoachUnavailable
from verl_mas.rewards.coach.cache import Once
from verl_mas.rewards.coach.limits import FailureAccount, RateLimit


class Clock:
    """A clock that moves on when somebody sleeps; sleepers that came together wake in order."""

    def __init__(self):
        self.now = 100.0
        self.began = []

    async def requests(self, limit, count):
        """The times at which `count` requests that come at once begin."""

        async def one():
            await limit.wait()

        self.slept = []
        await asyncio.gather(*(one() for _ in range(count)))
        return [self.now + seconds for seconds in self.slept]

    async def sleep(self, seconds):
        self.slept.append(seconds)


@pytest.mark.parametrize(("per_minute", "interval"), [(60, 1.0), (120, 0.5), (0.5, 120.0)])
def test_requests_are_spaced_evenly(per_minute, interval):
    clock = Clock()
    limit = RateLimit(per_minute, clock=lambda: clock.now, sleep=clock.sleep)
    times = asyncio.run(clock.requests(limit, 4))
    assert times == [100 + interval, 100 + 2 * interval, 100 + 3 * interval]  # the first does not wait


@given(st.lists(st.floats(0, 100), max_size=40), st.floats(0.1, 600))
def test_no_minute_has_more_requests_than_the_limit_and_one(pauses, per_minute):
    clock = Clock()
    limit = RateLimit(per_minute, clock=lambda: clock.now, sleep=clock.sleep)
    times = []
    for pause in pauses:
        clock.now += pause
        clock.slept = [0.0]
        asyncio.run(limit.wait())
        times.append(clock.now + clock.slept[-1])
    for start in times:
        assert sum(start <= time < start + 60 for time in times) <= per_minute + 1 + 1e-6


def test_without_a_limit_nobody_waits():
    clock = Clock()
    assert asyncio.run(clock.requests(RateLimit(None, sleep=clock.sleep), 5)) == []


@pytest.mark.parametrize(
    ("rate", "allowance", "actions", "tolerated"),
    [(0.05, 5, 10, 5), (0.05, 5, 1000, 50), (0.05, 5, 1019, 50), (0.5, 0, 10, 5), (0.0, 5, 1000, 0), (1.0, 0, 10, 10)],
)
def test_failures_end_the_run_above_the_share_and_the_allowance(rate, allowance, actions, tolerated):
    account = FailureAccount("coach x at http://y", rate, allowance)
    account.begun(actions)
    for _ in range(tolerated):
        account.failed("first" if account.failures == 0 else "later")
    if tolerated < actions:
        with pytest.raises(CoachUnavailable, match=r"coach x at http://y left .* the first: (first|one more)"):
            account.failed("one more")


async def test_if_the_one_who_asks_fails_the_next_asks_for_itself():
    once, calls, gate = Once(), [], asyncio.Event()

    async def ask():
        calls.append(1)
        await gate.wait()
        if len(calls) == 1:
            raise ValueError("the first")
        return "answer"

    asking = [asyncio.ensure_future(once("key", ask)) for _ in range(3)]
    gate.set()
    first, *others = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(first, ValueError)
    assert [answer for answer, _ in others] == ["answer", "answer"]
    assert len(calls) == 1 + sum(not shared for _, shared in others)
