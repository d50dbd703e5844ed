"""Quiet by default: what the libraries print goes to the run's log; the terminal is kept for a person."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True, slots=True)
class Terminal:
    """The streams that the process was started with, whatever its standard output is now.

    Attributes:
        out: for results. err: for progress and errors.
    """

    out: TextIO
    err: TextIO


@contextmanager
def redirect_output(log: Path, level: int = logging.INFO) -> Iterator[Terminal]:
    """Send standard output and standard error to the end of `log`, and yield the original ones.

    The file descriptors 1 and 2 themselves are redirected, so that libraries in other languages and every child process
    follow; the descriptors that are kept aside are not passed on to children. Python's root logger writes there too,
    from `level` on. On the way out all of it is as before; an exception that passes is logged with its traceback.

    One at a time in a process, and not from a thread while another one prints: the descriptors are the process's.

    Raises:
        OSError: the log cannot be opened; nothing is redirected then.
    """
    with ExitStack() as stack:
        _flush(sys.stdout, sys.stderr)
        file = stack.enter_context(log.open("ab", buffering=0))
        terminal = Terminal(out=stack.enter_context(_duplicate(1)), err=stack.enter_context(_duplicate(2)))
        python_streams = sys.stdout, sys.stderr
        stack.callback(_restore, terminal, python_streams)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        # New objects, line by line: the old ones may be full-buffered, or bound to something other than descriptors.
        sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        stack.enter_context(_root_logger(logging.StreamHandler(sys.stderr), level))
        try:
            yield terminal
        except BaseException:
            logging.getLogger(__name__).critical("the run ends with an error", exc_info=True)
            raise


def _duplicate(descriptor: int) -> TextIO:
    # os.dup gives a descriptor that child processes do not inherit.
    return open(os.dup(descriptor), "w", buffering=1, encoding="utf-8", errors="backslashreplace")


def _restore(terminal: Terminal, python_streams: tuple[TextIO, TextIO]) -> None:
    _flush(sys.stdout, sys.stderr, *python_streams, terminal.out, terminal.err)
    os.dup2(terminal.out.fileno(), 1)
    os.dup2(terminal.err.fileno(), 2)
    sys.stdout, sys.stderr = python_streams


@contextmanager
def _root_logger(handler: logging.Handler, level: int) -> Iterator[None]:
    root = logging.getLogger()
    previous = root.level
    handler.setFormatter(logging.Formatter(_FORMAT))
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(previous)


def _flush(*streams: TextIO) -> None:
    for stream in streams:
        stream.flush()
