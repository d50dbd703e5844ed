"""Starts bubblewrap, reads what the program writes up to a limit and a deadline, and leaves no process behind.

Bubblewrap's child is the first process of a new process namespace: when it is killed, the kernel kills every process
in the namespace, daemons included, before anybody sees its end. Bubblewrap itself may end earlier. So the first process
is killed and waited for, through a process descriptor that is opened while it still waits at the gate: a process id may
belong to a stranger by then.

What is known about the program comes from outside: bubblewrap reports the exit code on a pipe that it does not hand on,
and the launcher says on a pipe that closes as the program starts whether the program has started at all.
"""

import json
import os
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

from verl_mas.sandbox.base import SandboxError, SandboxUnavailable

_CHUNK: Final = 2**16
_READY: Final = b"ready"
_START_S: Final = 30.0  # how long the sandbox may take to start: the program's own time begins after that
_DEATH_S: Final = 10.0  # how long killed processes may take to disappear


@dataclass(frozen=True, slots=True)
class Channels:
    """The file descriptors that bubblewrap and the launcher inherit beside the standard ones.

    Attributes:
        info, status: where bubblewrap writes (--info-fd, --json-status-fd).
        gate: where bubblewrap waits until its user namespace has its users (--userns-block-fd).
        report: where the launcher writes "ready", or what went wrong.
    """

    info: int
    status: int
    gate: int
    report: int


@dataclass(frozen=True, slots=True)
class IdMap:
    """The users and groups of the new user namespace, as user_namespaces(7) writes them: inside, outside, count."""

    users: str
    groups: str
    deny_setgroups: bool

    def write(self, process: int) -> None:
        """Give `process`, the first in its user namespace, these users and groups; OSError if that is not allowed."""
        directory = Path("/proc", str(process))
        if self.deny_setgroups:
            (directory / "setgroups").write_text("deny")
        (directory / "uid_map").write_text(self.users)
        (directory / "gid_map").write_text(self.groups)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the program ended; the fields of SandboxResult, with bytes."""

    stdout: bytes
    stderr: bytes
    exit_code: int | None
    timed_out: bool
    truncated: bool
    seconds: float


def supervise(
    command: Callable[[Channels], Sequence[str]],
    *,
    stdin: int,
    inherited: Sequence[int],
    id_map: IdMap,
    timeout_s: float,
    output_bytes: int,
) -> Outcome:
    """Run a program in bubblewrap until all of it is gone.

    Args:
        command: bubblewrap and its arguments, given the channels.
        stdin: file descriptor for the program's standard input. inherited: further descriptors for bubblewrap.
        id_map: the users in the sandbox.
        timeout_s: wall-clock seconds from the program's start.
        output_bytes: the most that is kept of each output stream.

    Raises:
        SandboxUnavailable: bubblewrap could not set the sandbox up.
        SandboxError: the program did not start in time, or bubblewrap failed later.
    """
    started = time.monotonic()
    start_deadline = started + _START_S
    with ExitStack() as stack:
        info, status, gate, report = (_pipe(stack) for _ in range(4))
        channels = Channels(info.write.fileno(), status.write.fileno(), gate.read.fileno(), report.write.fileno())
        bubblewrap = _start(command(channels), stdin, (*inherited, *astuple(channels)))
        for end in (info.write, status.write, gate.read, report.write):
            end.close()
        assert isinstance(bubblewrap.stdout, FileIO)
        assert isinstance(bubblewrap.stderr, FileIO)
        stdout = _Stream(stack.enter_context(bubblewrap.stdout), output_bytes)
        stderr = _Stream(stack.enter_context(bubblewrap.stderr), output_bytes)
        statuses, infos, reports = (_Stream(pipe.read, _CHUNK) for pipe in (status, info, report))
        streams = [stdout, stderr, statuses, reports]
        first: int | None = None
        try:
            end_of_bubblewrap = _process_descriptor(stack, bubblewrap.pid)
            _read([infos], end_of_bubblewrap, start_deadline, until=lambda: infos.data.endswith(b"}\n"))
            if infos.data.endswith(b"}\n"):
                process = json.loads(infos.data)["child-pid"]
                first = _process_descriptor(stack, process)
                _admit(process, id_map, gate.write)
            ended = _read(streams, end_of_bubblewrap, start_deadline, until=lambda: bool(reports.data))
            if not ended and reports.data:
                deadline = time.monotonic() + timeout_s
                ended = _read(streams, end_of_bubblewrap, deadline, until=lambda: stdout.full or stderr.full)
        finally:
            _end(bubblewrap, first)
        for stream in streams:  # what arrived since the last look
            stream.drain()
        seconds = time.monotonic() - started
    truncated = stdout.full or stderr.full
    if reports.data != _READY:
        if not ended and not reports.data:
            raise SandboxError(f"the program did not start within {_START_S:g} s")
        cause = (reports.data or stderr.data).decode("utf-8", "replace").strip()
        raise SandboxUnavailable(f"the sandbox could not be set up: {cause or f'exit code {bubblewrap.returncode}'}")
    exit_code = None if truncated or not ended else _exit_code(bytes(statuses.data), bytes(stderr.data))
    return Outcome(bytes(stdout.data), bytes(stderr.data), exit_code, not ended and not truncated, truncated, seconds)


class _Pipe(NamedTuple):
    read: FileIO
    write: FileIO


def _pipe(stack: ExitStack) -> _Pipe:
    read, write = os.pipe()
    return _Pipe(stack.enter_context(FileIO(read, "rb")), stack.enter_context(FileIO(write, "wb")))


def _start(command: Sequence[str], stdin: int, inherited: tuple[int, ...]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=inherited,
            env={},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxUnavailable(f"{command[0]} cannot be started: {error}") from error


def _process_descriptor(stack: ExitStack, process: int) -> int:
    try:
        descriptor = os.pidfd_open(process)
    except OSError as error:
        raise SandboxUnavailable(f"process descriptors, which need Linux 5.3, do not work: {error}") from error
    stack.callback(os.close, descriptor)
    return descriptor


def _admit(process: int, id_map: IdMap, gate: FileIO) -> None:
    try:
        id_map.write(process)
    except OSError as error:
        raise SandboxUnavailable(f"the sandbox cannot be given its users ({id_map.users!r}): {error}") from error
    with suppress(BrokenPipeError):  # bubblewrap has ended, and has said why on standard error
        gate.write(b"\n")


class _Stream:
    """What has arrived on a pipe: at most `limit` bytes, `full` if there was more."""

    def __init__(self, file: FileIO, limit: int) -> None:
        self.file = file
        self.data = bytearray()
        self.full = False
        self._limit = limit
        os.set_blocking(file.fileno(), False)

    def read(self) -> bool:
        """Take one chunk; False if there is none now, or never again."""
        chunk = self.file.read(_CHUNK)
        if not chunk:
            return False
        room = self._limit - len(self.data)
        self.data += chunk[:room]
        self.full = self.full or len(chunk) > room
        return True

    def drain(self) -> None:
        """Take all there is, or until the limit."""
        while not self.full and self.read():
            pass


def _read(streams: Sequence[_Stream], process: int, deadline: float, until: Callable[[], bool]) -> bool:
    """Read until the process has ended (then True), `until()` holds, or the deadline passes.

    The ends of the pipes do not count: a process that somebody forks in another thread may hold them open.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(process, selectors.EVENT_READ, None)
        for stream in streams:
            selector.register(stream.file, selectors.EVENT_READ, stream)
        while not until():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            ready = [key.data for key, _ in selector.select(remaining)]
            for stream in ready:
                if stream is not None and not stream.read():
                    selector.unregister(stream.file)
            if None in ready:
                return True
    return False


def _end(bubblewrap: subprocess.Popen[bytes], first: int | None) -> None:
    """Kill every process of the sandbox, and wait until they are gone."""
    gone = True
    if first is None:
        bubblewrap.kill()  # and with it its child, which has not passed the gate: --die-with-parent
    else:
        with suppress(ProcessLookupError):  # it has ended by itself
            signal.pidfd_send_signal(first, signal.SIGKILL)
        poll = select.poll()
        poll.register(first, select.POLLIN)
        gone = bool(poll.poll(_DEATH_S * 1000))
    try:
        bubblewrap.wait(_DEATH_S)
    except subprocess.TimeoutExpired:
        gone = False
    if not gone:
        raise SandboxError(f"processes of the sandbox are alive {_DEATH_S:g} s after they were killed")


def _exit_code(status: bytes, stderr: bytes) -> int:
    """The exit code in what bubblewrap wrote, one JSON document in a line."""
    for line in status.splitlines():
        document = json.loads(line)
        if "exit-code" in document:
            return int(document["exit-code"])
    message = stderr.decode("utf-8", "replace").strip()
    raise SandboxError(f"bubblewrap ended without the program's exit code; standard error: {message}")
