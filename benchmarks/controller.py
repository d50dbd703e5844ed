"""Overhead of the controller, with a scripted model: `python benchmarks/controller.py`. Exits 1 if a limit is exceeded.

512 tasks of 8 dependent calls, each answered after 500 ms, all tasks at once: the critical path is 4 s of waiting, and
what the wall shows beyond it is the controller's. The environment is trivial and runs on threads, the default (and
slower) way. The bytes are those of the pickled trajectories with empty prompts and responses.
"""

import argparse
import asyncio
import pickle
import sys
import time
from collections.abc import Mapping
from dataclasses import replace

from verl_mas.rewards import Component, RewardParts, RuleRewardManager
from verl_mas.trajectory import Trajectory
from verl_mas.workflow import (
    Agents,
    Controller,
    Environment,
    ParallelSampling,
    Sampling,
    ScriptedModel,
    Split,
    StepOutcome,
    Task,
    TaskFamily,
    TurnWorkflow,
)

ROLES = ("tool", "planner")
MAX_RATIO = 1.15
MAX_BYTES = 2048


class Counter(Environment):
    """Counts the actions; the task is solved after `calls` of them."""

    def __init__(self, calls: int, made: int = 0) -> None:
        self.calls = calls
        self.made = made

    def observe(self, role: str) -> Mapping[str, str]:
        return {"made": str(self.made)}

    def step(self, role: str, response: str) -> StepOutcome:
        self.made += 1
        parts = RewardParts(team=self.made / self.calls, local={"format": Component(1.0, 1.0)})
        return StepOutcome(parts, {"made": self.made})

    def copy(self) -> "Counter":
        return Counter(self.calls, self.made)

    @property
    def done(self) -> bool:
        return self.made == self.calls

    @property
    def success(self) -> bool:
        return self.done


class Counting(TaskFamily):
    """Tasks that ask for a number of calls."""

    prompts = {role: f"You are the {role}. {{made}} actions have been made. Make the next one." for role in ROLES}  # noqa: RUF012

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def task(self, split: Split, index: int) -> Task:
        return Task(id=f"{split}-{index}", digest=f"{index:016x}", payload={"calls": self.calls})

    def environment(self, task: Task) -> Counter:
        return Counter(task.payload["calls"])


class Rounds(TurnWorkflow):
    """Both roles act once per turn."""

    roles = ROLES

    async def turn(self, env: Environment, agents: Agents) -> None:
        for role in self.roles:
            await agents[role].act(env)


def bytes_beyond_text(trajectories: list[Trajectory]) -> float:
    """Pickled bytes per invocation, without prompts and responses."""
    bare = [
        replace(t, invocations=[replace(invocation, prompt="", response="") for invocation in t.invocations])
        for t in trajectories
    ]
    return len(pickle.dumps(bare)) / sum(len(t.invocations) for t in trajectories)


def main() -> int:
    """Run the benchmark. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=512)
    parser.add_argument("--calls", type=int, default=8, help="dependent calls of each task; even")
    parser.add_argument("--latency", type=float, default=0.5, help="seconds until the model answers")
    options = parser.parse_args()

    family = Counting(options.calls)
    model = ScriptedModel({"tool": "look left", "planner": "go left"}, latency_s=options.latency)
    controller = Controller(
        model,
        family,
        lambda: Rounds(max_turns=options.calls // len(ROLES)),
        ParallelSampling(n=1),
        RuleRewardManager(),
        roles={role: Sampling() for role in ROLES},
        concurrency=options.tasks,
        env_timeout_s=60.0,
        max_failure_rate=0.0,
        retries=0,
        deterministic=True,
    )
    tasks = [family.task("train", index) for index in range(options.tasks)]
    started = time.perf_counter()
    trajectories = asyncio.run(controller.run(tasks, split="train", step=0, seed=0))
    wall = time.perf_counter() - started

    invocations = sum(len(trajectory.invocations) for trajectory in trajectories)
    if invocations != options.tasks * options.calls or len(model.published) != invocations:
        raise RuntimeError(f"{invocations} invocations, {len(model.published)} published, instead of tasks * calls")
    critical_path = options.calls * options.latency
    ratio, size = wall / critical_path, bytes_beyond_text(trajectories)
    lines = [
        f"{options.tasks} tasks of {options.calls} dependent calls, {options.latency:g} s each",
        f"critical path      {critical_path:8.3f} s",
        f"wall               {wall:8.3f} s",
        f"ratio              {ratio:8.3f}   (limit {MAX_RATIO})",
        f"text               {model.text_bytes / invocations:8.0f} bytes per invocation",
        f"beyond the text    {size:8.0f} bytes per invocation (limit {MAX_BYTES})",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(ratio > MAX_RATIO or size >= MAX_BYTES)


if __name__ == "__main__":
    sys.exit(main())
