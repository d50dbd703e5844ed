"""Output goes to the log, children's too, and comes back. Tested in processes of their own: descriptors are global."""

import subprocess
import sys
from pathlib import Path

import pytest


def run_program(program: str, log: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, str(log)], capture_output=True, text=True, check=False, timeout=60
    )


PROGRAM = """
import logging, os, subprocess, sys
from pathlib import Path
from verl_mas.reporting.logs import redirect_output

logging.getLogger().setLevel(logging.WARNING)
streams = sys.stdout, sys.stderr
print("before, buffered")
with redirect_output(Path(sys.argv[1])) as terminal:
    print("python out")
    print("python err", file=sys.stderr)
    os.write(1, b"library out\\n")
    subprocess.run(["sh", "-c", "echo child out; echo child err >&2"], check=True)
    kept = [terminal.out.fileno(), terminal.err.fileno()]
    inherited = [f"test ! -e /proc/self/fd/{fd} || echo leaked" for fd in kept]
    subprocess.run(["sh", "-c", "; ".join(inherited)], check=True, close_fds=False)
    logging.getLogger("library").info("a log record")
    logging.getLogger("library").debug("too fine")
    print("old object", file=streams[0])
    terminal.err.write("progress\\n")
    terminal.out.write("result\\n")
assert (sys.stdout, sys.stderr) == streams
assert logging.getLogger().level == logging.WARNING and not logging.getLogger().handlers
print("after out")
print("after err", file=sys.stderr)
"""


def test_everything_but_the_terminal_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("an earlier run\n")
    process = run_program(PROGRAM, log)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == ["before, buffered", "result", "after out"]
    assert process.stderr.splitlines() == ["progress", "after err"]
    lines = log.read_text().splitlines()
    assert lines[:6] == ["an earlier run", "python out", "python err", "library out", "child out", "child err"]
    assert lines[6].endswith("INFO library: a log record")
    assert lines[7:] == ["old object"]


FAILING = """
import sys
from pathlib import Path
from verl_mas.reporting.logs import redirect_output

try:
    with redirect_output(Path(sys.argv[1])):
        raise RuntimeError("the server died")
except RuntimeError as error:
    print("caught:", error)
"""


def test_an_error_is_logged_with_its_traceback_and_passes_on(tmp_path: Path) -> None:
    process = run_program(FAILING, tmp_path / "run.log")
    assert (process.stdout, process.stderr, process.returncode) == ("caught: the server died\n", "", 0)
    log = (tmp_path / "run.log").read_text()
    assert "Traceback (most recent call last)" in log
    assert log.endswith("RuntimeError: the server died\n")


UNOPENABLE = """
import sys
from pathlib import Path
from verl_mas.reporting.logs import redirect_output

try:
    with redirect_output(Path(sys.argv[1])):
        pass
except OSError as error:
    print("still here:", type(error).__name__)
"""


@pytest.mark.parametrize("name", ["missing/run.log", "."])
def test_a_log_that_cannot_be_opened_redirects_nothing(tmp_path: Path, name: str) -> None:
    process = run_program(UNOPENABLE, tmp_path / name)
    assert process.stdout.startswith("still here: ")
    assert process.returncode == 0
