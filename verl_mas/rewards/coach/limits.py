"""What keeps a coach within bounds: requests per minute, calls and tokens of the run, and the share of failures."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from verl_mas.rewards.coach.errors import BudgetExceeded, CoachUnavailable


class RateLimit:
    """Spaces requests evenly: the n-th to come begins no earlier than (n - 1) * 60 / per_minute s after the first.

    Args:
        per_minute: None lets everything pass. clock, sleep: seconds now, and waiting for some.
    """

    def __init__(
        self,
        per_minute: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval = 0.0 if per_minute is None else 60.0 / per_minute
        self._clock = clock
        self._sleep = sleep
        self._next = 0.0

    async def wait(self) -> None:
        """Return when the next request may begin."""
        if not self._interval:
            return
        now = self._clock()
        turn = max(now, self._next)
        self._next = turn + self._interval
        if turn > now:
            await self._sleep(turn - now)


class Ledger(Protocol):
    """Counters that the workers of a run share."""

    async def add(self, name: str, amount: int) -> int:
        """Add to a counter and return what it then says."""


class Budget:
    """Calls and tokens that the run may use; None is no limit. Calls under way when the tokens run out are paid for."""

    def __init__(self, ledger: Ledger, max_calls: int | None, max_total_tokens: int | None) -> None:
        self._ledger = ledger
        self._max_calls = max_calls
        self._max_total_tokens = max_total_tokens

    async def before_call(self) -> None:
        """Account for a call that is about to be made.

        Raises:
            BudgetExceeded: it would be one too many, or the tokens are used up.
        """
        if self._max_total_tokens is not None:
            tokens = await self._ledger.add("tokens", 0)
            if tokens >= self._max_total_tokens:
                raise BudgetExceeded(
                    f"the coach has used {tokens} tokens; reward.options.max_total_tokens is {self._max_total_tokens}"
                )
        if self._max_calls is not None and await self._ledger.add("calls", 1) > self._max_calls:
            raise BudgetExceeded(
                f"another call of the coach is needed after {self._max_calls}; that is reward.options.max_calls"
            )

    async def after_call(self, tokens: int) -> None:
        """Account for the tokens of a call."""
        if self._max_total_tokens is not None and tokens:
            await self._ledger.add("tokens", tokens)


class FailureAccount:
    """Ends the run when too many actions stay without a score.

    Args:
        coach: what the error calls the coach. max_failure_rate: largest tolerated share of the actions that the coach
            has been asked about in the run so far. allowance: failures that are tolerated whatever their share, unless
            the rate is 0.
    """

    def __init__(self, coach: str, max_failure_rate: float, allowance: int) -> None:
        self._coach = coach
        self._max_failure_rate = max_failure_rate
        self._allowance = allowance if max_failure_rate > 0 else 0
        self._first_cause = ""
        self.actions = 0
        self.failures = 0

    def begun(self, actions: int) -> None:
        """The coach is asked about further actions."""
        self.actions += actions

    def failed(self, cause: str) -> None:
        """One of them stays without a score.

        Raises:
            CoachUnavailable: one too many; it names the coach, the numbers and the first cause.
        """
        self.failures += 1
        self._first_cause = self._first_cause or cause
        if self.failures > max(self._allowance, self._max_failure_rate * self.actions):
            raise CoachUnavailable(
                f"{self._coach} left {self.failures} of {self.actions} actions without a score, above "
                f"reward.options.max_failure_rate {self._max_failure_rate:g}; the first: {self._first_cause}"
            )
