"""The controller: order, limits, seeds, and faults: a workflow, a model or an environment that fails."""

import asyncio
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from verl_mas.config.suggest import UnknownNameError
from verl_mas.rewards import Reward, RuleRewardManager
from verl_mas.workflow import (
    ControllerError,
    EnvironmentTimeout,
    InternalError,
    ParallelSampling,
    Sampling,
    ScriptedModel,
    TreeSampling,
    TurnWorkflow,
    WorkflowError,
    derive_seed,
)

ONES = {"first": "1", "second": "1"}


class ServerDied(ConnectionError):
    """What a router raises when its server is gone."""


def dying(times, role="second", task=None):
    """Answers "1", but raises on the role's first requests (of a task)."""
    left = [times]

    def answer(request):
        if left[0] and (task is None or request.row.startswith(task + ".")):
            left[0] -= 1
            raise ServerDied("connection refused")
        return "1"

    return ScriptedModel({**ONES, role: answer})


def test_results_are_in_order_of_task_and_sample_whatever_finishes_first(world):
    finished = []
    gates = {}

    async def answer(request):
        task, sample = request.row.split(".")[:2]
        key = (task, int(sample))
        gates.setdefault(key, asyncio.Event())
        if len(gates) == 6 and not finished:
            gates[max(gates)].set()  # all wait: let the last one go first, and each one that ends the one before it
        await gates[key].wait()
        return "1"

    def ended(trajectory):
        key = (trajectory.task, trajectory.sample)
        finished.append(key)
        for other in sorted(gates, reverse=True):
            if other < key:
                gates[other].set()
                break

    family = world.SumFamily()
    model = ScriptedModel({"first": answer, "second": "1"})
    controller = world.make_controller(
        model, family, lambda: world.BothAct(max_turns=1), ParallelSampling(2), on_trajectory=ended
    )
    order = [(f"train-{task}", sample) for task in range(3) for sample in range(2)]
    trajectories = world.run(controller, family, tasks=3)
    assert finished == order[::-1]
    assert [(t.task, t.sample) for t in trajectories] == order
    assert [row.split(".")[0] for row in model.published] == sorted(row.split(".")[0] for row in model.published)


def test_no_more_trajectories_than_allowed_run_at_once(world):
    running, most = set(), []

    async def answer(request):
        running.add(request.row)
        await asyncio.sleep(0)
        most.append(len(running))
        running.discard(request.row)
        return "1"

    family = world.SumFamily()
    model = ScriptedModel({"first": answer, "second": answer})
    world.run(world.make_controller(model, family, scheme=ParallelSampling(5), concurrency=3), family, tasks=4)
    assert max(most) <= 3
    assert len(most) == 4 * 5 * 4


def test_deterministic_requests_carry_seeds_that_depend_on_what_they_are_for_alone(world):
    def seeds(tasks, **options):
        family, model = world.SumFamily(), ScriptedModel(ONES)
        world.run(world.make_controller(model, family, deterministic=True), family, tasks=tasks, **options)
        return {request.row: request.sampling.seed for request in model.requests}

    all_seeds = seeds(4, seed=7, step=2)
    assert len(set(all_seeds.values())) == len(all_seeds) == 4 * 2 * 2 * 3
    assert seeds(1, seed=7, step=2).items() <= all_seeds.items()
    assert not set(seeds(4, seed=8, step=2).values()) & set(all_seeds.values())
    assert not set(seeds(4, seed=7, step=3).values()) & set(all_seeds.values())


def test_derived_seeds_do_not_change_between_processes_and_versions():
    # sha256(b'[7, "train-0", 1]').digest()[:4], big-endian, shifted right by one: computed with the sha256sum tool
    assert derive_seed(7, "train-0", 1) == 1102247206


def test_other_requests_carry_no_seed(world):
    family, model = world.SumFamily(), ScriptedModel(ONES)
    world.run(world.make_controller(model, family), family)
    assert {request.sampling.seed for request in model.requests} == {None}


def test_a_workflow_that_raises_ends_the_call_with_its_error_as_the_cause(world):
    class Broken(world.BothAct):
        async def turn(self, env, agents):
            await super().turn(env, agents)
            raise ZeroDivisionError("in the workflow")

    family, model = world.SumFamily(), ScriptedModel(ONES)
    controller = world.make_controller(model, family, Broken)
    with pytest.raises(
        ControllerError, match=r"1 of 3 trajectories failed.*ZeroDivisionError: in the workflow"
    ) as caught:
        world.run(controller, family, tasks=3)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not model.published
    assert not model.pending


def test_a_model_that_dies_ends_the_call_and_names_role_turn_and_task(world):
    family, model = world.SumFamily(), dying(times=10**6)
    with pytest.raises(
        ControllerError, match="connection refused; role 'second', turn 0, task 'train-0', sample 0"
    ) as caught:
        world.run(world.make_controller(model, family), family, tasks=2)
    assert isinstance(caught.value.__cause__, ServerDied)
    assert not model.published
    assert not model.pending


def test_rows_of_finished_trajectories_are_not_published_when_a_later_one_ends_the_call(world):
    first_ended = asyncio.Event()

    async def answer(request):
        if request.row.startswith("train-1."):
            await first_ended.wait()
            raise ServerDied("gone")
        return "1"

    family, model = world.SumFamily(), ScriptedModel({"first": answer, "second": "1"})
    controller = world.make_controller(model, family, on_trajectory=lambda trajectory: first_ended.set())
    with pytest.raises(ControllerError):
        world.run(controller, family, tasks=2)
    assert not model.published
    assert not model.pending


def test_a_retry_that_succeeds_leaves_no_trace_of_the_failed_attempt(world):
    family, model = world.SumFamily(), dying(times=1, task="train-1")
    controller = world.make_controller(model, family, retries=1)
    trajectories = world.run(controller, family, tasks=3)
    assert [t.error for t in trajectories] == [None] * 3
    assert [len(t.invocations) for t in trajectories] == [12] * 3
    assert sorted(model.published) == sorted(i.row for t in trajectories for i in t.invocations)
    assert len(set(model.published)) == 36
    assert {row.split(".")[0] for row in model.discarded} == {"train-1"}
    # the first attempt's environment is not used again: its log holds one action, the new one's all four
    assert [len(env.log) for env in family.made["train-1"]] == [1, 4]


def test_a_tolerated_failure_is_recorded_and_not_published(world):
    family, model = world.SumFamily(), dying(times=6, task="train-1")  # 3 candidates in each of 2 attempts
    ended = []
    controller = world.make_controller(model, family, retries=1, max_failure_rate=0.25, on_trajectory=ended.append)
    trajectories = world.run(controller, family, tasks=4)
    failed = trajectories[1]
    assert failed.error == "ServerDied: connection refused; role 'second', turn 0, task 'train-1', sample 0"
    assert not failed.invocations
    assert not failed.success
    assert [(said["role"], said["response"]) for said in failed.info["transcript"]] == [("first", "1")] * 3
    assert [t.error for t in trajectories if t is not failed] == [None] * 3
    assert not [row for row in model.published if row.startswith("train-1.")]
    assert len(model.published) == 36
    assert sorted(t.task for t in ended) == [f"train-{n}" for n in range(4)]


def test_one_failure_above_the_limit_ends_the_call(world):
    def broken(request):
        if request.row.startswith(("train-0.", "train-1.")):
            raise ServerDied(request.row)
        return "1"

    family = world.SumFamily()
    for rate, tolerated in ((0.5, True), (0.49, False)):
        model = ScriptedModel({**ONES, "first": broken})
        controller = world.make_controller(model, family, max_failure_rate=rate)
        if tolerated:
            trajectories = world.run(controller, family, tasks=4)
            assert [t.error is None for t in trajectories] == [False, False, True, True]
        else:
            with pytest.raises(
                ControllerError, match=r"2 of 4 trajectories failed, above max_failure_rate 0\.49"
            ) as caught:
                world.run(controller, family, tasks=4)
            assert "train-0." in str(caught.value.__cause__)


def test_a_hanging_environment_is_an_error_that_names_task_role_and_turn(world):
    release = threading.Event()
    family, model = world.SumFamily(), ScriptedModel(ONES)

    def hang(env, role, response):
        if role == "second" and len(env.log) == 3:
            release.wait()

    family.before_step = hang
    controller = world.make_controller(model, family, env_timeout_s=0.5)
    try:
        with pytest.raises(
            ControllerError, match="hangs in step on a copy of task 'train-0', role 'second', turn 1"
        ) as caught:
            world.run(controller, family)
    finally:
        release.set()
    assert isinstance(caught.value.__cause__, EnvironmentTimeout)
    assert not model.pending


def test_more_hanging_calls_than_threads_do_not_stop_the_others(world, monkeypatch):
    monkeypatch.setattr("verl_mas.workflow.controller.ENVIRONMENT_THREADS", 2)
    release = threading.Event()
    family, model = world.SumFamily(), ScriptedModel(ONES)

    def hang(env, role, response):
        if role == "first" and env.hangs:
            release.wait()

    class Some(world.SumEnvironment):
        hangs = False

    def environment(task):
        made = world.SumFamily.environment(family, task)
        made.hangs = int(task.id.split("-")[1]) < 5
        return made

    family.environment_type, family.before_step = Some, hang
    controller = world.make_controller(
        model, family, lambda: world.BothAct(max_turns=1), ParallelSampling(1), env_timeout_s=0.5, max_failure_rate=0.5
    )
    family.environment = environment
    try:
        trajectories = world.run(controller, family, tasks=15)
    finally:
        release.set()
    assert [t.error is None for t in trajectories] == [False] * 5 + [True] * 10


def test_a_hung_environment_does_not_hold_up_the_exit_of_the_process():
    script = """
import asyncio, threading
from verl_mas.workflow.offload import DaemonPool, NoAnswerError

async def main():
    with DaemonPool(1, timeout_s=0.1) as pool:
        try:
            await pool.run(threading.Event().wait)
        except NoAnswerError:
            return "given up"

import sys
sys.stdout.write(asyncio.run(main()))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "given up"


def test_environments_run_off_the_event_loop_unless_they_ask_for_it(world):
    def threads_of(environment):
        seen = set()
        family = world.SumFamily(environment)
        family.before_step = lambda env, role, response: seen.add(threading.current_thread() is threading.main_thread())
        world.run(world.make_controller(ScriptedModel(ONES), family), family)
        return seen

    class Inline(world.SumEnvironment):
        inline = True

        def copy(self):
            made = Inline(self.log, origin=self)
            return made

    assert threads_of(world.SumEnvironment) == {False}
    assert threads_of(Inline) == {True}


def test_an_environment_error_is_a_failure_even_if_a_coroutine_could_not_carry_it(world):
    def stop(env, role, response):
        raise StopIteration("in step")

    family = world.SumFamily()
    family.before_step = stop
    with pytest.raises(ControllerError, match="StopIteration"):
        world.run(world.make_controller(ScriptedModel(ONES), family), family)


def test_a_call_cancelled_by_the_model_is_a_failure_and_no_silent_end(world):
    async def cancelled(request):
        raise asyncio.CancelledError

    family = world.SumFamily()
    controller = world.make_controller(ScriptedModel({**ONES, "first": cancelled}), family)
    with pytest.raises(ControllerError, match="cancelled, but not by its caller"):
        world.run(controller, family)


def test_cancelling_the_call_leaves_no_rows(world):
    family = world.SumFamily()

    async def cancel_midway():
        reached = asyncio.Event()

        async def forever(request):
            reached.set()
            await asyncio.Event().wait()

        model = ScriptedModel({**ONES, "second": forever})
        controller = world.make_controller(model, family)
        call = asyncio.create_task(controller.run([family.task("train", 0)], split="train", step=0, seed=0))
        await reached.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return model

    model = asyncio.run(cancel_midway())
    assert not model.pending
    assert not model.published


def test_an_error_of_the_reward_manager_ends_the_call_without_a_retry(world):
    class Broken(RuleRewardManager):
        calls = 0

        async def assign(self, trajectory):
            self.calls += 1
            raise LookupError("coach is out of budget")

    manager, family, model = Broken(), world.SumFamily(), ScriptedModel(ONES)
    controller = world.make_controller(model, family, reward_manager=manager, retries=3, max_failure_rate=1.0)
    with pytest.raises(LookupError, match="out of budget"):
        world.run(controller, family)
    assert manager.calls == 1
    assert not model.pending


def test_closing_the_controller_lets_the_reward_manager_end_what_it_keeps_open(world):
    class Keeps(RuleRewardManager):
        is_open = True

        async def close(self):
            self.is_open = False

    manager, family = Keeps(), world.SumFamily()
    controller = world.make_controller(ScriptedModel(ONES), family, reward_manager=manager)
    world.run(controller, family)
    assert manager.is_open
    asyncio.run(controller.close())
    assert not manager.is_open


def test_an_action_left_without_reward_is_an_internal_error_unless_it_is_masked(world):
    class Forgets(RuleRewardManager):
        masked = False

        async def assign(self, trajectory):
            trajectory.invocations[1].reward = None
            trajectory.invocations[1].masked = self.masked

    family, manager = world.SumFamily(), Forgets()
    controller = world.make_controller(ScriptedModel(ONES), family, reward_manager=manager)
    with pytest.raises(InternalError, match=r"train-0\.0\.first\.0\.1 with reward None"):
        world.run(controller, family)
    manager.masked = True
    controller = world.make_controller(ScriptedModel(ONES), family, reward_manager=manager)
    (trajectory,) = world.run(controller, family)
    assert trajectory.invocations[1].masked


def test_acting_twice_in_a_turn_is_a_mistake_of_the_workflow(world):
    class Twice(world.BothAct):
        async def turn(self, env, agents):
            await agents["first"].act(env)
            await agents["first"].act(env)

    family = world.SumFamily()
    controller = world.make_controller(ScriptedModel(ONES), family, Twice, retries=2, max_failure_rate=1.0)
    with pytest.raises(WorkflowError, match="role 'first' acts twice in turn 0"):
        world.run(controller, family)


def test_asking_for_an_unknown_role_names_the_nearest(world):
    class Typo(world.BothAct):
        async def turn(self, env, agents):
            await agents["secnd"].act(env)

    family = world.SumFamily()
    controller = world.make_controller(ScriptedModel(ONES), family, Typo, max_failure_rate=1.0)
    with pytest.raises(UnknownNameError, match="did you mean 'second'"):
        world.run(controller, family)


def test_a_turn_workflow_stops_when_the_environment_is_done(world):
    class EndsAfterThree(world.SumEnvironment):
        @property
        def done(self):
            return len(self.log) >= 3

    family = world.SumFamily(EndsAfterThree)
    controller = world.make_controller(
        ScriptedModel(ONES), family, lambda: world.BothAct(max_turns=9), ParallelSampling(1)
    )
    (trajectory,) = world.run(controller, family)
    assert trajectory.turns == 2
    assert len(trajectory.invocations) == 4  # the environment is asked between turns, not within one


def test_roles_that_act_concurrently_see_the_same_state(world):
    class Together(TurnWorkflow):
        roles = ("first", "second")

        async def turn(self, env, agents):
            async with asyncio.TaskGroup() as group:
                for role in self.roles:
                    group.create_task(agents[role].act(env))

    family, model = world.SumFamily(), ScriptedModel(ONES)
    (trajectory,) = world.run(world.make_controller(model, family, lambda: Together(max_turns=2)), family)
    committed = [i for i in trajectory.invocations if i.chosen]
    assert [(i.turn, i.role, len(i.parents)) for i in committed] == [
        (0, "first", 0),
        (0, "second", 0),
        (1, "first", 2),
        (1, "second", 2),
    ]


def test_tasks_of_one_call_must_differ(world):
    family = world.SumFamily()
    controller = world.make_controller(ScriptedModel(ONES), family)
    task = family.task("train", 0)
    with pytest.raises(ValueError, match="same id"):
        asyncio.run(controller.run([task, replace(task, digest="other")], split="train", step=0, seed=0))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"concurrency": 0}, ValueError, "concurrency must be at least 1"),
        ({"env_timeout_s": 0.0}, ValueError, "env_timeout_s must be a positive"),
        ({"env_timeout_s": float("inf")}, ValueError, "env_timeout_s must be a positive"),
        ({"max_failure_rate": 1.1}, ValueError, r"max_failure_rate must be in \[0, 1\]"),
        ({"retries": -1}, ValueError, "retries must not be negative"),
        ({"roles": {"first": Sampling()}}, WorkflowError, "role 'second' of the workflow is not configured"),
        ({"roles": {"first": Sampling(), "secnd": Sampling()}}, UnknownNameError, "did you mean 'second'"),
        ({"prompts": {"frist": "{history}"}}, UnknownNameError, "did you mean 'first'"),
    ],
)
def test_wrong_settings_are_refused_at_start(world, settings, error, message):
    with pytest.raises(error, match=message):
        world.make_controller(ScriptedModel(ONES), world.SumFamily(), **settings)


def test_a_reward_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="must be finite"):
        Reward(float("nan"))


def test_a_role_that_is_no_identifier_is_refused(world):
    class Dotted(world.BothAct):
        roles = ("first.a",)

    with pytest.raises(WorkflowError, match=r"'first\.a' must be an identifier"):
        world.make_controller(ScriptedModel(ONES), world.SumFamily(), Dotted)


def test_a_candidate_whose_scoring_raises_fails_the_trajectory_of_its_tree_only(world):
    def fail_on_seven(env, role, response):
        if response == "7":
            raise OSError("cannot play 7")

    family = world.SumFamily()
    family.before_step = fail_on_seven
    model = ScriptedModel({**ONES, "first": lambda r: "7" if r.row == "train-1.0.first.1.2" else "1"})
    controller = world.make_controller(model, family, scheme=TreeSampling(3), max_failure_rate=0.5)
    trajectories = world.run(controller, family, tasks=2)
    assert [t.error is None for t in trajectories] == [True, False]
    assert "cannot play 7; role 'first', turn 1" in trajectories[1].error
