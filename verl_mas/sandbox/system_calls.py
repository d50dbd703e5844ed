"""A seccomp filter, as bytes for bubblewrap's --seccomp, against what would get around the sandbox's limits.

Refused with EPERM: new user namespaces (within one, a program could mount a file system without a size limit), memory
that no resource limit counts (System V IPC, memfd), reaching into other processes of the sandbox (ptrace and the like:
bubblewrap's own first process is one), kernel keyrings (not separated by namespaces), and interfaces that untrusted
code has no use for and that widen the reach into the kernel (bpf, perf, userfaultfd, io_uring).
clone3 passes its flags in memory, which a filter cannot read: it is reported as missing, and libc falls back to clone.
System calls in another architecture's numbering are refused.
"""

import errno
import struct
from dataclasses import dataclass
from typing import Final

_LOAD_WORD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_IF_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_IF_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_IF_ANY_BIT: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K

_ALLOW: Final = 0x7FFF0000  # SECCOMP_RET_ALLOW
_FAIL_WITH: Final = 0x00050000  # SECCOMP_RET_ERRNO, the error number in the low bits
_KILL: Final = 0x80000000  # SECCOMP_RET_KILL_PROCESS

# struct seccomp_data {int nr; __u32 arch; __u64 instruction_pointer; __u64 args[6];}, on little-endian machines
_NUMBER_AT: Final = 0
_ARCHITECTURE_AT: Final = 4
_FIRST_ARGUMENT_AT: Final = 16

_CLONE_NEWUSER: Final = 0x10000000
_X32_NUMBERS: Final = 0x40000000  # x86-64 only: the first number of the x32 calling convention


@dataclass(frozen=True, slots=True)
class _Architecture:
    """`audit` identifies it to the kernel (linux/audit.h); the rest are numbers of system calls (asm/unistd.h)."""

    audit: int
    clone: int
    clone3: int
    refused: dict[str, int]


_NAMES: Final = (
    "unshare",
    "shmget",
    "msgget",
    "semget",
    "memfd_create",
    "memfd_secret",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "pidfd_getfd",
    "add_key",
    "request_key",
    "keyctl",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
)


def _refused(*numbers: int) -> dict[str, int]:
    return dict(zip(_NAMES, numbers, strict=True))


_ARCHITECTURES: Final = {
    "x86_64": _Architecture(
        0xC000003E,
        56,
        435,
        _refused(272, 29, 68, 64, 319, 447, 101, 310, 311, 438, 248, 249, 250, 321, 298, 323, 425),
    ),
    "aarch64": _Architecture(
        0xC00000B7,
        220,
        435,
        _refused(97, 194, 186, 190, 279, 447, 117, 270, 271, 438, 217, 218, 219, 280, 241, 282, 425),
    ),
}


def seccomp_filter(machine: str) -> bytes:
    """The filter program (an array of struct sock_filter) for `machine`, as `platform.machine()` names it.

    Raises:
        ValueError: there is no filter for this machine.
    """
    architecture = _ARCHITECTURES.get(machine)
    if architecture is None:
        raise ValueError(f"no system call filter for {machine!r} (known: {', '.join(_ARCHITECTURES)})")
    program = [
        _instruction(_LOAD_WORD, _ARCHITECTURE_AT),
        _instruction(_JUMP_IF_EQUAL, architecture.audit, if_true=1),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD_WORD, _NUMBER_AT),
        *_when(_JUMP_IF_AT_LEAST, _X32_NUMBERS, _KILL),
        *_when(_JUMP_IF_EQUAL, architecture.clone3, _FAIL_WITH | errno.ENOSYS),
    ]
    for number in architecture.refused.values():
        program += _when(_JUMP_IF_EQUAL, number, _FAIL_WITH | errno.EPERM)
    program += [
        _instruction(_JUMP_IF_EQUAL, architecture.clone, if_false=3),
        _instruction(_LOAD_WORD, _FIRST_ARGUMENT_AT),
        *_when(_JUMP_IF_ANY_BIT, _CLONE_NEWUSER, _FAIL_WITH | errno.EPERM),
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _when(jump: int, value: int, verdict: int) -> list[bytes]:
    return [_instruction(jump, value, if_false=1), _instruction(_RETURN, verdict)]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
