"""What is kept on disk: verdicts by the content of the question, and the run's counters. A resumed run finds both."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import diskcache

Result = TypeVar("Result")


def content_key(*parts: Any) -> str:
    """A hash of JSON-able parts: equal for equal content, in every process."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class VerdictCache:
    """Verdicts and counters, shared by all processes that open the same folder; in memory if there is none.

    Values are JSON texts. Nothing is evicted: a known question is never asked again.

    Args:
        keep: whether verdicts go to the folder too, or counters alone.
    """

    def __init__(self, directory: Path | None, *, keep: bool = True) -> None:
        self._keep = keep and directory is not None
        self._memory: dict[str, str] = {}
        self._counters: dict[str, int] = {}
        self._disk: Any = None
        if directory is not None:
            self._disk = diskcache.Cache(str(directory), eviction_policy="none")
            self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="coach-cache")

    async def get(self, key: str) -> dict[str, Any] | None:
        """What was put under `key`, None if nothing."""
        if not self._keep:
            text = self._memory.get(key)
        else:
            text = await self._on_disk(self._disk.get, f"verdict:{key}")
        return None if text is None else json.loads(text)

    async def put(self, key: str, verdict: dict[str, Any]) -> None:
        """Keep `verdict` (JSON-able)."""
        text = json.dumps(verdict)
        if not self._keep:
            self._memory[key] = text
        else:
            await self._on_disk(self._disk.set, f"verdict:{key}", text)

    async def add(self, name: str, amount: int) -> int:
        """Add to the counter `name` in one indivisible step, over all processes, and return what it then says."""
        if self._disk is None:
            self._counters[name] = self._counters.get(name, 0) + amount
            return self._counters[name]
        return int(await self._on_disk(self._disk.incr, f"counter:{name}", amount))

    async def _on_disk(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def close(self) -> None:
        """Close the files. What was put is already on disk."""
        if self._disk is not None:
            self._threads.shutdown(wait=True)
            self._disk.close()


class Once:
    """Lets equal questions that are under way at the same time wait for one answer."""

    def __init__(self) -> None:
        self._pending: dict[str, asyncio.Future[Any]] = {}

    async def __call__(self, key: str, ask: Callable[[], Any]) -> tuple[Any, bool]:
        """The result of `ask()`, and whether somebody else asked. If that one fails, the next asks for itself."""
        while (pending := self._pending.get(key)) is not None:
            await asyncio.wait([pending])
            if not pending.cancelled():
                return pending.result(), True
        future = asyncio.get_running_loop().create_future()
        self._pending[key] = future
        try:
            result = await ask()
        except BaseException:
            future.cancel()
            raise
        else:
            future.set_result(result)
            return result, False
        finally:
            del self._pending[key]
