"""Programs that take more than they may, in a real sandbox: they are stopped, and nothing of them is left."""

import secrets
import subprocess
import sys
from pathlib import Path

import pytest


def processes_with(marker: str) -> list[int]:
    """Process ids, in any namespace of this machine, with `marker` in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def marked(code: str, marker: str) -> str:
    """A program that becomes a process with `marker` in its command line, and then runs `code`."""
    return f"import os, sys\nos.execv(sys.executable, [sys.executable, '-c', {code!r}, {marker!r}])"


@pytest.fixture
def marker() -> str:
    return f"marker-{secrets.token_hex(8)}"


def test_the_search_for_processes_finds_one_that_runs(marker):
    command = [sys.executable, "-c", "print(1, flush=True)\ninput()", marker]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = processes_with(marker)
        process.communicate(b"\n")

    assert found == [process.pid]
    assert processes_with(marker) == []


def test_an_infinite_loop_is_killed_at_the_deadline(sandbox, marker):
    result = sandbox.run_python(marked("while True: pass", marker), timeout_s=1.5)

    assert result.timed_out
    assert result.exit_code is None
    assert result.seconds >= 1.5
    assert processes_with(marker) == []


def test_what_was_written_before_the_deadline_is_kept(sandbox):
    result = sandbox.run_python("import time\nprint('early', flush=True)\ntime.sleep(60)", timeout_s=1.5)

    assert (result.stdout, result.timed_out) == ("early\n", True)


def test_cpu_time_is_limited_below_the_deadline(sandbox):
    result = sandbox.run_python("while True: pass", cpu_s=1, timeout_s=60)

    assert result.timed_out
    assert result.exit_code == 128 + 24  # SIGXCPU


def test_a_program_that_ignores_the_cpu_limits_signal_is_killed_all_the_same(sandbox):
    code = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"

    assert sandbox.run_python(code, cpu_s=1, timeout_s=60).exit_code == 128 + 9  # SIGKILL, a second later


@pytest.mark.parametrize("code", ["bytearray(10**10)", "x = []\nwhile True: x.append(bytearray(2**20))"])
def test_a_memory_bomb_fails(sandbox, code):
    result = sandbox.run_python(code, memory_bytes=2**28)

    assert result.exit_code == 1
    assert "MemoryError" in result.stderr


def test_a_program_has_as_many_processes_as_it_may_and_no_more(sandbox):
    code = """
import os, time
count = 1
while count < 100:
    try:
        child = os.fork()
    except BlockingIOError:
        break
    if child == 0:
        time.sleep(60)
    count += 1
print(count)
"""
    assert sandbox.run_python(code, processes=10).stdout == "10\n"


def test_two_sandboxes_do_not_share_their_processes(sandbox):
    code = "import os\nchild = os.fork()\nif child == 0: os._exit(0)\nprint(os.waitpid(child, 0)[1])"

    for _ in range(3):
        assert sandbox.run_python(code, processes=2).stdout == "0\n"


def test_a_fork_bomb_is_contained_and_nothing_is_left_of_it(sandbox, marker):
    bomb = """
import os
print("started", flush=True)
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
    result = sandbox.run_python(marked(bomb, marker), timeout_s=1.5, processes=8)

    assert result.stdout == "started\n"
    assert result.timed_out
    assert processes_with(marker) == []


def test_a_daemon_is_dead_after_the_deadline(sandbox, marker):
    daemon = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        while True:
            time.sleep(1)
    os._exit(0)
os.wait()
print("daemon", flush=True)
time.sleep(60)
"""
    result = sandbox.run_python(marked(daemon, marker), timeout_s=1.5)

    assert (result.stdout, result.timed_out) == ("daemon\n", True)
    assert processes_with(marker) == []


def test_a_daemon_dies_with_the_program_that_ends(sandbox, marker):
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\nprint('end')"

    result = sandbox.run_python(marked(daemon, marker), timeout_s=30)

    assert (result.stdout, result.exit_code, result.timed_out) == ("end\n", 0, False)
    assert processes_with(marker) == []


def test_a_program_that_closes_its_output_is_still_killed_at_the_deadline(sandbox, marker):
    code = marked("import os, time\nos.close(1)\nos.close(2)\ntime.sleep(60)", marker)

    result = sandbox.run_python(code, timeout_s=1.5)

    assert result.timed_out
    assert processes_with(marker) == []


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_flood_of_output_is_cut_and_its_program_killed(sandbox, marker, stream):
    flood = f"import sys\nwhile True: sys.{stream}.write('x' * 1000)"

    result = sandbox.run_python(marked(flood, marker), output_bytes=10_000, timeout_s=60)

    assert getattr(result, stream) == "x" * 10_000
    assert result.truncated
    assert not result.timed_out
    assert result.exit_code is None
    assert processes_with(marker) == []


def test_output_up_to_the_limit_is_not_cut(sandbox):
    result = sandbox.run_python("print('x' * 9_999)", output_bytes=10_000)

    assert (result.stdout, result.truncated, result.exit_code) == ("x" * 9_999 + "\n", False, 0)


def test_a_program_that_ends_after_too_much_output_counts_as_cut(sandbox):
    result = sandbox.run_python("print('x' * 10_000)", output_bytes=10_000)

    assert (result.stdout, result.truncated, result.exit_code) == ("x" * 10_000, True, None)


def test_a_huge_file_is_refused(sandbox):
    code = """
with open("/tmp/huge", "wb") as file:
    for _ in range(100):
        file.write(bytes(2**16))
"""
    result = sandbox.run_python(code, file_bytes=2**20)

    assert result.exit_code == 1
    assert "File too large" in result.stderr


def test_many_files_are_refused_when_together_they_are_huge(sandbox):
    code = """
for index in range(100):
    with open(f"/tmp/{index}", "wb") as file:
        file.write(bytes(2**16))
"""
    result = sandbox.run_python(code, file_bytes=2**20)

    assert result.exit_code == 1
    assert "No space left on device" in result.stderr


def test_a_program_cannot_raise_its_own_limits(sandbox):
    code = """
import resource
for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NPROC", "RLIMIT_NOFILE"):
    try:
        resource.setrlimit(getattr(resource, name), (2**40, 2**40))
        print(name)
    except (ValueError, OSError):
        pass
"""
    result = sandbox.run_python(code)

    assert (result.stdout, result.exit_code) == ("", 0)
