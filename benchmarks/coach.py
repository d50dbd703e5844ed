"""What a slow coach adds to a step: `python benchmarks/coach.py`. Exits 1 if a limit is exceeded.

Rollouts of 4 s (a scripted model through the real controller) and 300 concurrent calls of a coach that takes 2 s for
each (an HTTP server on loopback, in a process of its own). Nobody can hide the call about an action that ends the
rollouts, so two cases are measured, each beside a step without a coach:

- during: trajectories with 300 actions end early, others go on to the end and their verdicts are already known. All
  calls can overlap with rollouts: the base is the step without a coach.
- after: all 300 actions come at the end of the rollouts. Nothing can overlap: the base is the step without a coach and
  one call's 2 s.
"""

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection

from aiohttp import web

from verl_mas.rewards import RewardManager, RewardParts, RuleRewardManager
from verl_mas.rewards.coach import CoachRewardManager, coach_reward_manager
from verl_mas.workflow import (
    Agents,
    Controller,
    Environment,
    ParallelSampling,
    Request,
    Sampling,
    ScriptedModel,
    Split,
    StepOutcome,
    Task,
    TaskFamily,
    TurnWorkflow,
)

ROLES = ("solver", "executor", "verifier")
MAX_RATIO = 1.10
LONG = 20  # trajectories of the first case that go on to the end


class Talk(Environment):
    """Nothing happens but talk."""

    inline = True

    def __init__(self, task: str) -> None:
        self._task = task

    def observe(self, role: str) -> Mapping[str, str]:
        return {"task": self._task}

    def step(self, role: str, response: str) -> StepOutcome:
        return StepOutcome(RewardParts(team=0.5), {"problem": self._task})

    def copy(self) -> "Talk":
        return Talk(self._task)

    @property
    def done(self) -> bool:
        return False

    @property
    def success(self) -> bool:
        return True


class Talks(TaskFamily):
    """Tasks without content."""

    prompts = {role: f"You are the {role} of task {{task}}." for role in ROLES}  # noqa: RUF012

    def task(self, split: Split, index: int) -> Task:
        return Task(id=f"{split}-{index}", digest=str(index), payload={})

    def environment(self, task: Task) -> Talk:
        return Talk(task.id)


class Pipeline(TurnWorkflow):
    """Every role acts once, in order."""

    roles = ROLES

    async def turn(self, env: Environment, agents: Agents) -> None:
        for role in self.roles:
            await agents[role].act(env)


def serve(latency_s: float, port: Connection) -> None:
    """A coach that takes `latency_s` for every answer, and sends its port and then its largest load when asked."""
    load, most = 0, 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal load, most
        await request.read()
        load += 1
        most = max(most, load)
        await asyncio.sleep(latency_s)
        load -= 1
        message = {"role": "assistant", "content": "Evaluation.\nPROCESS_SCORE: 8"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response(
            {"id": "", "object": "chat.completion", "created": 0, "model": "", "choices": [choice]}
        )

    async def run() -> None:
        nonlocal most
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        port.send(runner.addresses[0][1])
        while await asyncio.to_thread(port.recv):
            port.send(most)
            most = 0

    asyncio.run(run())


def step(manager: RewardManager, tasks: list[Task], seconds: Mapping[str, float]) -> tuple[float, float]:
    """One step over the tasks, whose rollouts take the seconds: (wall, when the last rollout ended), in seconds."""

    async def say(request: Request) -> str:
        nonlocal spoke
        task = request.row.split(".")[0]
        await asyncio.sleep(seconds[task] / len(ROLES))
        spoke = time.perf_counter()
        return f"My answer is {request.row}."

    spoke = 0.0
    controller = Controller(
        ScriptedModel(dict.fromkeys(ROLES, say)),
        Talks(),
        lambda: Pipeline(max_turns=1),
        ParallelSampling(n=1),
        manager,
        roles={role: Sampling() for role in ROLES},
        concurrency=len(tasks),
        env_timeout_s=60.0,
        max_failure_rate=0.0,
        retries=0,
        deterministic=True,
    )

    async def run() -> tuple[float, float]:
        started = time.perf_counter()
        trajectories = await controller.run(tasks, split="train", step=0, seed=0)
        ended = time.perf_counter()
        if isinstance(manager, CoachRewardManager):
            await manager.close()
            if not all(one.reward == 0.8 for each in trajectories for one in each.invocations):
                raise RuntimeError("an action does not have the coach's score")
        return ended - started, spoke - started

    return asyncio.run(run())


def main() -> int:
    """Run the benchmark. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=300, help="concurrent calls; a multiple of 3")
    parser.add_argument("--latency", type=float, default=2.0, help="seconds that the coach takes for each")
    parser.add_argument("--rollouts", type=float, default=4.0, help="seconds that the rollouts take")
    options = parser.parse_args()

    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(options.latency, there), daemon=True)
    server.start()
    settings = {"model": "coach", "base_url": f"http://127.0.0.1:{here.recv()}/v1", "api_key_env": None}
    tasks = [Talks().task("train", index) for index in range(options.calls // len(ROLES) + LONG)]
    scored, long = tasks[:-LONG], tasks[-LONG:]
    soon = {task.id: 0.75 * (options.rollouts - options.latency) for task in scored}
    early = {**soon, **{task.id: options.rollouts for task in long}}
    late = {task.id: options.rollouts for task in scored}

    folder = tempfile.TemporaryDirectory()
    knowing = coach_reward_manager(**settings, cache_dir=folder.name)
    step(knowing, long, {task.id: 0.0 for task in long})  # the verdicts that are already known
    here.send(True)
    here.recv()

    lines, worst = [f"{options.calls} calls of {options.latency:g} s, rollouts of {options.rollouts:g} s"], 0.0
    for name, manager, chosen, seconds, extra in (
        ("during", knowing, tasks, early, 0.0),
        ("after", coach_reward_manager(**settings), scored, late, options.latency),
    ):
        began = time.process_time()
        alone, _ = step(RuleRewardManager(), chosen, seconds)
        between = time.process_time()
        wall, rollouts = step(manager, chosen, seconds)
        processor = (time.process_time() - between) - (between - began)
        here.send(True)
        load = here.recv()
        base = alone + extra
        worst = max(worst, wall / base)
        lines += [
            f"{name}: at most {load} calls at once",
            f"  step without a coach  {alone:7.3f} s",
            f"  base                  {base:7.3f} s",
            f"  rollouts with coach   {rollouts:7.3f} s",
            f"  step with coach       {wall:7.3f} s",
            f"  ratio to the base     {wall / base:7.3f}   (limit {MAX_RATIO})",
            f"  ratio to no coach     {wall / alone:7.3f}",
            f"  processor time        {1000 * processor / options.calls:7.3f} ms more per call",
        ]
    here.send(False)
    folder.cleanup()
    sys.stdout.write("\n".join(lines) + "\n")
    return int(worst > MAX_RATIO)


if __name__ == "__main__":
    sys.exit(main())
