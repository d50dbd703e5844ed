"""Runs programs that models write. What such a program prints is untrusted text, to be parsed and never executed."""

from verl_mas.sandbox.base import SandboxError, SandboxLimits, SandboxResult, SandboxUnavailable
from verl_mas.sandbox.bubblewrap import BubblewrapSandbox, find_bubblewrap
from verl_mas.sandbox.printed import parse_printed

__all__ = [
    "BubblewrapSandbox",
    "SandboxError",
    "SandboxLimits",
    "SandboxResult",
    "SandboxUnavailable",
    "find_bubblewrap",
    "parse_printed",
]
