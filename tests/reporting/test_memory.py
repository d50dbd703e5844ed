"""The peak is the largest sample, over the process and its children."""

import subprocess
import sys
import threading

import psutil
import pytest

from verl_mas.reporting.memory import PeakMemory, process_tree_memory

HOLD_64_MIB = """
import sys
block = b"x" * (64 * 2**20)
print("held", flush=True)
sys.stdin.read()
"""


def test_the_largest_sample_is_kept() -> None:
    samples = iter([3, 9, 4])
    memory = PeakMemory(measure=lambda: next(samples))
    assert [memory.sample(), memory.sample(), memory.sample()] == [3, 9, 9]


def test_samples_are_taken_while_it_is_entered() -> None:
    third = threading.Event()
    taken: list[int] = []

    def measure() -> int:
        taken.append(len(taken))
        if len(taken) == 3:
            third.set()
        return len(taken)

    with PeakMemory(interval=0.001, measure=measure) as memory:
        assert third.wait(timeout=30)
    assert memory.peak == len(taken)


def test_an_error_while_sampling_is_raised_on_the_way_out() -> None:
    failed = threading.Event()
    outcomes = iter([1])

    def measure() -> int:
        try:
            return next(outcomes)
        except StopIteration:
            failed.set()
            raise RuntimeError("no such file") from None

    memory = PeakMemory(interval=0.001, measure=measure)
    with pytest.raises(RuntimeError, match="no such file"), memory:
        assert failed.wait(timeout=30)


def test_a_childs_memory_counts() -> None:
    alone = process_tree_memory(psutil.Process())
    with subprocess.Popen([sys.executable, "-c", HOLD_64_MIB], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        assert process_tree_memory(psutil.Process()) > alone + 56 * 2**20
