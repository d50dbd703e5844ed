"""Runs of the real command on the real stack: verl, Ray, vLLM, FSDP2 and TransferQueue, on a CPU."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

#: the demo's recipe, as small as it gets
SMALL = (
    "recipe=atgrpo_sokoban",
    "hardware=cpu",
    "steps=2",
    "tasks_per_step=3",
    "workflow.max_turns=2",
    "validation.tasks=4",
    # local scores and variety, so that even these few groups have something to learn from
    "reward.mixing=sum",
    "actor_rollout_ref.rollout.temperature=2",
)


@dataclass(frozen=True)
class Finished:
    """What a run left behind."""

    status: int
    output: str
    directory: Path

    def said(self) -> str:
        """The output, and the end of the run's log if it came to have one."""
        log = self.directory / "run.log"
        return f"{self.output}\n{log.read_text()[-4000:] if log.is_file() else ''}"

    def records(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl."""
        return [json.loads(line) for line in (self.directory / "metrics.jsonl").read_text().splitlines()]

    def trajectories(self, step: int) -> list[dict[str, Any]]:
        """The trajectories of one training step."""
        path = self.directory / "trajectories" / f"step_{step:06d}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="session")
def small() -> tuple[str, ...]:
    """Arguments of the small recipe."""
    return SMALL


@pytest.fixture(scope="session")
def start() -> Callable[..., subprocess.Popen[str]]:
    """`start(*arguments)` starts the command; standard output and error come together on a pipe."""
    return _start


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "verl_mas.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Finished]:
    """`run(*arguments)` runs the small recipe to its end in a new folder, or in `run_dir=...` if given.

    An argument replaces that of the small recipe with the same key, `recipe` too.
    """

    def finish(*arguments: str) -> Finished:
        given = [one.removeprefix("run_dir=") for one in arguments if one.startswith("run_dir=")]
        directory = Path(given[0]) if given else tmp_path_factory.mktemp("run") / "run"
        keys = {one.partition("=")[0] for one in arguments}
        kept = [one for one in SMALL if one.partition("=")[0] not in keys]
        process = _start(*kept, f"run_dir={directory}", *arguments)
        output, _ = process.communicate(timeout=900)
        return Finished(process.returncode, output, directory)

    return finish


@pytest.fixture(scope="session")
def install(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], AbstractContextManager[Path]]:
    """`with install(name, plugin) as folder`: a package with this plugin, as pip would install it; then gone again."""

    @contextmanager
    def installed(name: str, plugin: str) -> Iterator[Path]:
        site, module = tmp_path_factory.mktemp("site"), name.replace("-", "_")
        (site / f"{module}.py").write_text(plugin)
        metadata = site / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[verl_mas]\n{name} = {module}\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
            yield site

    return installed
