"""A real sandbox, or the reason why this machine has none."""

from pathlib import Path

import pytest

from verl_mas.sandbox import BubblewrapSandbox, SandboxUnavailable


@pytest.fixture(scope="session")
def sandbox() -> BubblewrapSandbox:
    try:
        sandbox = BubblewrapSandbox()
        sandbox.check()
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox on this machine: {error}")
    return sandbox


@pytest.fixture
def executable(tmp_path: Path):
    """executable(text): a shell script that stands in for bubblewrap."""

    def write(text: str) -> Path:
        path = tmp_path / "bwrap"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return write
