"""What `tool=code` asks of a sandbox, and which one it uses unless told otherwise."""

import math
from typing import Protocol

from verl_mas.sandbox import BubblewrapSandbox, SandboxLimits, SandboxResult


class PythonSandbox(Protocol):
    """Runs programs that a model wrote."""

    def check(self) -> None:
        """Raise SandboxUnavailable, which says what to install, where programs cannot be contained."""

    def run_python(self, code: str) -> SandboxResult:
        """Run a program to its end or its deadline."""


def default_sandbox(time_limit: float) -> PythonSandbox:
    """Bubblewrap with `time_limit` seconds for a program. Raises SandboxUnavailable where it is missing."""
    return BubblewrapSandbox(SandboxLimits(timeout_s=time_limit, cpu_s=math.ceil(time_limit)))
