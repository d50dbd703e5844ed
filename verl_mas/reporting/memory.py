"""The most memory that a run took: this process and everything that it started."""

import threading
from collections.abc import Callable
from types import TracebackType

import psutil


def process_tree_memory(root: psutil.Process) -> int:
    """Bytes of memory that `root` and its descendants take.

    Proportional set sizes, which share out what several processes map (Ray's object store, libraries), so that the sum
    counts every page once. Linux only. A process that ends while the tree is walked, or is not ours to read,
    counts nothing.

    Raises:
        psutil.NoSuchProcess: `root` itself is gone.
    """
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return total


class PeakMemory:
    """Samples the memory of this process and its descendants while it is entered, and keeps the largest.

    What a Ray cluster that was already running holds is not counted: its processes are no descendants.
    A sampling error ends the sampling and is raised on the way out.

    Args:
        interval: seconds between two samples; a shorter peak can be missed.
        measure: bytes taken now.
    """

    def __init__(self, interval: float = 2.0, measure: Callable[[], int] | None = None) -> None:
        self.peak = 0
        self._interval = interval
        self._measure = measure if measure is not None else self._own_tree
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="peak-memory", daemon=True)

    def sample(self) -> int:
        """Measure now; returns the largest so far, in bytes."""
        self.peak = max(self.peak, self._measure())
        return self.peak

    def __enter__(self) -> "PeakMemory":
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    @staticmethod
    def _own_tree() -> int:
        return process_tree_memory(psutil.Process())

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self.sample()
            except Exception as error:  # noqa: BLE001 - raised again in __exit__, in the thread that can handle it
                self._error = error
                return
