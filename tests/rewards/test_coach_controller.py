"""The coach behind the real controller: rollouts do not wait for it, and a dead one ends the run, nothing trained."""

import asyncio
from collections.abc import Mapping

import pytest

from verl_mas.rewards import RewardParts
from verl_mas.rewards.coach import CoachUnavailable
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
    TreeSampling,
    TurnWorkflow,
)


class Talk(Environment):
    """Whatever is said is done; the team score is the length of the last response in tens."""

    def observe(self, role: str) -> Mapping[str, str]:
        return {}

    def step(self, role: str, response: str) -> StepOutcome:
        return StepOutcome(RewardParts(team=len(response) / 10), {"ground_truth": "42", "task_type": "talk"})

    def copy(self) -> "Talk":
        return Talk()

    @property
    def done(self) -> bool:
        return False

    @property
    def success(self) -> bool:
        return True


class Talks(TaskFamily):
    prompts: Mapping[str, str] = {"solver": "solve", "verifier": "verify"}

    def task(self, split: Split, index: int) -> Task:
        return Task(id=f"{split}-{index}", digest=str(index), payload={})

    def environment(self, task: Task) -> Talk:
        return Talk()


class Both(TurnWorkflow):
    roles = ("solver", "verifier")

    async def turn(self, env: Environment, agents: Agents) -> None:
        for role in self.roles:
            await agents[role].act(env)


def controller(model, manager, scheme=None, concurrency=64):
    return Controller(
        model,
        Talks(),
        lambda: Both(max_turns=1),
        scheme or ParallelSampling(n=1),
        manager,
        roles={role: Sampling() for role in Both.roles},
        concurrency=concurrency,
        env_timeout_s=30.0,
        max_failure_rate=0.0,
        retries=0,
        deterministic=False,
    )


def tasks(count):
    return [Talks().task("train", index) for index in range(count)]


async def test_rollouts_do_not_wait_for_a_slow_coach(coach):
    # the coach answers nothing before the last rollout has ended: did any rollout wait for it, none would ever end
    async def answer(body):
        await rolled_out.wait()
        return "PROCESS_SCORE: 8"

    def verify(request):
        verified.append(request.row)
        if len(verified) == 8:
            rolled_out.set()
        return request.row

    verified, rolled_out = [], asyncio.Event()
    async with coach.Server(answer) as server:
        manager = coach.manager(server)
        model = ScriptedModel({"solver": lambda request: request.row, "verifier": verify})
        trajectories = await controller(model, manager, concurrency=1).run(tasks(8), split="train", step=0, seed=0)
        await manager.close()
    assert [one.reward for trajectory in trajectories for one in trajectory.invocations] == [0.8] * 16
    assert len(model.published) == 16


async def test_the_coach_is_asked_while_other_rollouts_go_on(coach):
    # the second rollout waits for the coach's first question, so it is asked before the rollouts are over
    def answer(body):
        asked.set()
        return "PROCESS_SCORE: 8"

    async def solve(request):
        if request.row.startswith("train-1."):
            await asked.wait()
        return request.row

    asked = asyncio.Event()
    async with coach.Server(answer) as server:
        manager = coach.manager(server)
        model = ScriptedModel({"solver": solve, "verifier": lambda request: request.row})
        await controller(model, manager).run(tasks(2), split="train", step=0, seed=0)
        await manager.close()
    assert len(server.asked) == 4


async def test_the_tree_chooses_by_the_team_score_and_trains_on_the_coachs(coach):
    def answer(body):
        return f"PROCESS_SCORE: {10 - len(coach.field_of(body, 'agent_output'))}"

    async with coach.Server(answer) as server:
        manager = coach.manager(server)
        model = ScriptedModel({role: lambda request: "x" * (1 + int(request.row[-1])) for role in Both.roles})
        (trajectory,) = await controller(model, manager, TreeSampling(candidates=3)).run(
            tasks(1), split="train", step=0, seed=0
        )
        await manager.close()
    assert [(one.chosen, one.reward) for one in trajectory.invocations] == [(False, 0.9), (False, 0.8), (True, 0.7)] * 2
    truths = [coach.field_of(body, "ground_truth_answer") for body in server.asked]
    assert sorted(truths, key=str) == ["42"] * 3 + [None] * 3


async def test_a_dead_coach_ends_the_run_and_nothing_is_trained(coach):
    async with coach.Server(lambda body: coach.web.Response(status=500)) as server:
        manager = coach.manager(server)
        model = ScriptedModel({role: lambda request: request.row for role in Both.roles})
        with pytest.raises(CoachUnavailable, match=rf"coach scripted at {server.url} left \d+ of \d+ actions"):
            await controller(model, manager).run(tasks(20), split="train", step=0, seed=0)
        await manager.close()
    assert model.published == []
    assert model.pending == {}
    assert len(server.asked) <= 2 * 40  # one retry for each of the 40 actions, and no end-less trying


async def test_masked_actions_pass_the_controller_and_keep_their_rows(coach):
    async with coach.Server(
        lambda body: "no score" if coach.field_of(body, "agent_input") == "solve" else "PROCESS_SCORE: 8"
    ) as server:
        manager = coach.manager(server, attempts=1)
        model = ScriptedModel({"solver": "x", "verifier": "y"})
        (trajectory,) = await controller(model, manager).run(tasks(1), split="train", step=0, seed=0)
        await manager.close()
    assert [(one.masked, one.reward) for one in trajectory.invocations] == [(True, None), (False, 0.8)]
    assert len(model.published) == 2
