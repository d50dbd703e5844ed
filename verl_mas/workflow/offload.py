"""Running environments off the event loop: threads with a time limit per call, which never hold up the process's exit.

`concurrent.futures` joins its threads when the interpreter ends, so that one hanging call would hang the whole run.
Here the threads are daemons, a call that exceeds its limit is given up, and a fresh thread takes the lost one's place.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Self, TypeVar

Result = TypeVar("Result")


class NoAnswerError(RuntimeError):
    """A call exceeded the pool's time limit. (The call itself may raise TimeoutError: that is something else.)"""


async def gather_all(*coroutines: Coroutine[Any, Any, Result]) -> list[Result]:
    """Like `asyncio.gather`, but the first failure cancels the others, waits for their end, and is raised alone.

    Raises:
        RuntimeError: a coroutine was cancelled from within, which would otherwise look like our own cancellation.
    """
    if len(coroutines) == 1:  # no task needed
        return [await coroutines[0]]
    failure: BaseException | None = None
    tasks: list[asyncio.Task[Result]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        failure = failures.exceptions[0]
    if failure is not None:  # raised out here, so that the group does not become its context
        raise failure
    if any(task.cancelled() for task in tasks):
        raise RuntimeError("a call was cancelled, but not by its caller")
    return [task.result() for task in tasks]


def _portable(error: BaseException) -> Exception:
    """What a future can carry into the event loop: not StopIteration, nor what would end the loop's own thread."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"call off the event loop raised {error!r}")
    wrapped.__cause__ = error
    return wrapped


@dataclass(slots=True, eq=False)
class _Job:
    function: Callable[[], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None
    started: float | None = None  # time.monotonic() at which a thread took it
    abandoned: bool = False
    watchdog: asyncio.TimerHandle | None = None


class DaemonPool:
    """Up to `threads` daemon threads for the calls of one event loop; a call may take `timeout_s` seconds.

    Use as a context manager inside a coroutine. Threads start when they are first needed.
    """

    def __init__(self, threads: int, timeout_s: float) -> None:
        self._threads = threads
        self._timeout_s = timeout_s
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._finished: deque[_Job] = deque()
        self._wake_pending = False
        # Both are touched by the event loop's thread only. A thread that hangs counts in neither.
        self._live = 0
        self._in_flight = 0

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)  # each thread that reads it puts it back for the next one

    async def run(self, function: Callable[[], Result]) -> Result:
        """The result of `function()` on another thread.

        Raises:
            NoAnswerError: it ran longer than the limit. Time spent waiting for a free thread does not count.
        """
        job = _Job(function, self._loop.create_future())
        job.watchdog = self._loop.call_later(self._timeout_s, self._watch, job)
        self._in_flight += 1
        self._queue.put(job)
        self._start_thread_if_short()
        return await job.future

    def _start_thread_if_short(self) -> None:
        if self._in_flight > self._live and self._live < self._threads:
            self._live += 1
            threading.Thread(target=self._work, name="verl_mas-environment", daemon=True).start()

    def _watch(self, job: _Job) -> None:
        """Give up `job` if its time is over, else look again when it will be."""
        now = time.monotonic()
        deadline = (job.started if job.started is not None else now) + self._timeout_s
        if deadline > now:
            job.watchdog = self._loop.call_later(deadline - now, self._watch, job)
            return
        job.abandoned = True
        self._in_flight -= 1
        self._live -= 1
        self._start_thread_if_short()
        if not job.future.done():
            job.future.set_exception(NoAnswerError(f"no answer within {self._timeout_s:g} s"))

    def _work(self) -> None:
        """A thread: take jobs until the pool closes, or until one took so long that this thread was replaced."""
        while (job := self._queue.get()) is not None:
            job.started = time.monotonic()
            if not job.future.cancelled():
                try:
                    job.result = job.function()
                except BaseException as error:  # noqa: BLE001 - _deliver hands it to the caller
                    job.error = _portable(error)
            if job.abandoned:
                return
            self._finished.append(job)
            if not self._wake_pending:  # one wake-up serves every job that finishes before the loop gets to it
                self._wake_pending = True
                if not self._wake():
                    return
            del job  # an idle thread must not keep the last environment alive
        self._queue.put(None)

    def _wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            return False  # the run is over: nobody waits for this result
        return True

    def _deliver(self) -> None:
        self._wake_pending = False
        while self._finished:
            job = self._finished.popleft()
            if job.abandoned:
                continue
            self._in_flight -= 1
            if job.watchdog is not None:
                job.watchdog.cancel()
            if job.future.done():  # cancelled
                continue
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)
