"""What every sandbox shares: the limits, the result, and the errors."""

from dataclasses import dataclass, fields


class SandboxError(RuntimeError):
    """The sandbox itself failed; says nothing about the program that it was to run."""


class SandboxUnavailable(SandboxError):
    """This machine cannot run the sandbox; the message says why, and what to install."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one program may use. Every limit is positive.

    Memory and CPU time are counted per process, so that a program may use at most `processes` times `memory_bytes`.

    Attributes:
        timeout_s: wall-clock seconds from the program's start, after which every process of the program is killed.
        cpu_s: seconds of CPU time of each process, whole seconds.
        memory_bytes: address space of each process.
        file_bytes: size of a file, and of all files together.
        processes: processes and threads at one time, the first included.
        output_bytes: bytes of standard output, and of standard error; at more the program is killed.
    """

    timeout_s: float = 10.0
    cpu_s: int = 5
    memory_bytes: int = 512 * 2**20
    file_bytes: int = 16 * 2**20
    processes: int = 16
    output_bytes: int = 64 * 2**10

    def __post_init__(self) -> None:
        for limit in fields(self):
            if not getattr(self, limit.name) > 0:
                raise ValueError(f"{limit.name} must be positive, not {getattr(self, limit.name)}")


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """How a program ended. The measurements come from outside of the sandbox; the two texts are the program's own.

    A program may print whatever it likes, "all tests passed" included, and may choose its exit code: neither is a
    verdict. A verdict needs a comparison, made outside, of what was printed with what the caller knows to be right.

    Attributes:
        stdout, stderr: what the program wrote, as UTF-8 (undecodable bytes replaced), cut at `output_bytes` bytes.
        exit_code: the program's exit code, 128 + n if signal n killed it, None if the sandbox killed it.
        timed_out: the wall-clock or the CPU time was used up.
        truncated: the program was killed for writing more than `output_bytes`.
        seconds: wall-clock time, including that of the sandbox's own start.
    """

    stdout: str
    stderr: str
    exit_code: int | None
    timed_out: bool
    truncated: bool
    seconds: float
