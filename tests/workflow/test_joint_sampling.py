"""Joint sampling by MAGRPO, Alg. 1. Expected numbers come from replaying the formula of the environment by hand."""

import asyncio
from collections import defaultdict
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_mas.config.suggest import UnknownNameError
from verl_mas.workflow import (
    ControllerError,
    Edge,
    GraphWorkflow,
    InternalError,
    JointSampling,
    Node,
    ScriptedModel,
    TurnWorkflow,
    WorkflowError,
    derive_seed,
    make_scheme,
)

ROLES = ("first", "second")


class Together(TurnWorkflow):
    """Both roles answer a turn at once."""

    roles = ROLES

    async def turn(self, env, agents):
        async with asyncio.TaskGroup() as group:
            for role in self.roles:
                group.create_task(agents[role].act(env))


def digits(salt):
    return ScriptedModel(dict.fromkeys(ROLES, lambda request: str(derive_seed(salt, request.row) % 10)))


def sample(world, scheme, *, turns=2, model=None, workflow=Together, tasks=1, **changes):
    """The trajectories, the family and the model of one call."""
    family, model = changes.pop("family", None) or world.SumFamily(), model or digits(0)
    controller = world.make_controller(model, family, lambda: workflow(max_turns=turns), scheme, **changes)
    return world.run(controller, family, tasks), family, model


def rows_of(trajectories):
    return {one.row for trajectory in trajectories for one in trajectory.invocations}


def check_as_an_execution_of_its_own(trajectory):
    """Each path obeys the environment's formula and was prompted from the state at the start of each turn."""
    history, total, rows = [], 0, []
    turns = defaultdict(list)
    for one in trajectory.invocations:
        turns[one.turn].append(one)
    assert list(turns) == list(range(len(turns)))
    for members in turns.values():
        assert [one.role for one in members] == ["first", "second"]
        for one in members:
            assert one.prompt == f"You are {one.role}. {' '.join(history)}"
            assert one.parents == tuple(rows)
        for one in members:
            total += int(one.response)
            assert one.reward == pytest.approx(total % 10 / 9)
            assert one.breakdown == {"team": one.reward}
            assert one.info == {"total": total}
            assert one.chosen
        history += [f"{one.role}={one.response}" for one in members]
        rows += [one.row for one in members]
    assert trajectory.success == (total % 2 == 0)
    assert trajectory.turns == len(turns)


@settings(max_examples=25)
@given(n=st.integers(1, 4), turns=st.integers(1, 3), tasks=st.integers(1, 2), salt=st.integers(0, 10**6))
def test_aligned_linear_groups_hold_sample_g_of_every_role(world, n, turns, tasks, salt):
    trajectories, _, model = sample(world, JointSampling(n), turns=turns, tasks=tasks, model=digits(salt))
    assert [(t.task, t.sample) for t in trajectories] == [(f"train-{t}", g) for t in range(tasks) for g in range(n)]
    for trajectory in trajectories:
        check_as_an_execution_of_its_own(trajectory)
        assert {(one.sample, one.parent) for one in trajectory.invocations} == {(trajectory.sample, None)}
    rows = [one.row for trajectory in trajectories for one in trajectory.invocations]
    assert len(rows) == len(set(rows)) == tasks * n * turns * 2
    assert sorted(model.published) == sorted(rows)  # each once
    assert not model.pending
    # the prompts of the first turn are one prompt per role
    firsts = {(one.task, one.role, one.prompt_digest) for t in trajectories for one in t.invocations if one.turn == 0}
    assert len(firsts) == tasks * 2


@settings(max_examples=15)
@given(n=st.integers(1, 3), turns=st.integers(1, 2), salt=st.integers(0, 10**6))
def test_cross_is_the_product_of_the_roles_responses(world, n, turns, salt):
    trajectories, _, model = sample(world, JointSampling(n, "cross"), turns=turns, model=digits(salt))
    assert [t.sample for t in trajectories] == list(range(n**2))
    pairs = set()
    for trajectory in trajectories:
        check_as_an_execution_of_its_own(trajectory)
        pairs.add(tuple(one.row for one in trajectory.invocations if one.turn == 0))
    of_role = {role: {f"train-0.{k}.{role}.0.0" for k in range(n)} for role in ROLES}
    assert pairs == set(product(of_role["first"], of_role["second"]))
    # the joint action's number says which responses it holds: first + n * second
    for trajectory in trajectories:
        first, second = (int(one.row.split(".")[1]) for one in trajectory.invocations[:2])
        assert trajectory.sample == first + n * second
    # in the first turn n responses per role, later one per role and path; each is published once
    assert sorted(model.published) == sorted(rows_of(trajectories))
    assert len(model.published) == len(model.requests) == 2 * n + (turns - 1) * 2 * n**2
    assert not model.pending


@pytest.mark.parametrize(("joint", "width"), [("aligned", 2), ("cross", 4)])
def test_a_tree_samples_a_group_below_every_joint_action(world, joint, width):
    trajectories, _, model = sample(world, JointSampling(2, joint, "tree"), turns=3)
    assert [t.sample for t in trajectories] == list(range(width**3))
    nodes = defaultdict(set)
    for trajectory in trajectories:
        check_as_an_execution_of_its_own(trajectory)
        path = [-1]
        for turn in range(3):
            of_turn = [one for one in trajectory.invocations if one.turn == turn]
            (number,), (parent,) = {one.sample for one in of_turn}, {one.parent for one in of_turn}
            assert parent == path[-1]
            path.append(number)
            nodes[turn, parent].add(number)
    assert {turn: sum(t == turn for t, _ in nodes) for turn in range(3)} == {0: 1, 1: width, 2: width**2}
    assert all(len(children) == width for children in nodes.values())
    # 2 responses of each of 2 roles at every group
    assert len(model.published) == len(model.requests) == 4 * len(nodes)
    assert sorted(model.published) == sorted(rows_of(trajectories))
    assert not model.pending


@pytest.mark.parametrize("branching", ["linear", "tree"])
@pytest.mark.parametrize("joint", ["aligned", "cross"])
def test_no_environment_is_stepped_twice_for_one_joint_action(world, joint, branching):
    steps = []
    family = world.SumFamily()
    family.before_step = lambda env, role, response: steps.append((env.log, role))
    trajectories, _, _ = sample(world, JointSampling(2, joint, branching), family=family)
    taken = {(one.turn, one.sample, one.role, one.row) for trajectory in trajectories for one in trajectory.invocations}
    assert len(steps) == len(taken)


def test_a_turn_whose_mean_joint_reward_exceeds_the_threshold_is_the_last(world):
    # by hand: everybody says 2, so after turn 0 both roles have scored 2/9 and 4/9: joint reward 6/9
    model = lambda: ScriptedModel(dict.fromkeys(ROLES, "2"))  # noqa: E731
    for threshold, turns in ((0.66, 1), (0.67, 2), (None, 2)):
        for branching in ("linear", "tree"):
            scheme = JointSampling(2, branching=branching, stop_threshold=threshold)
            trajectories, _, used = sample(world, scheme, model=model())
            assert {t.turns for t in trajectories} == {turns}
            assert len(trajectories) == (2**turns if branching == "tree" else 2)
            assert sorted(used.published) == sorted(rows_of(trajectories))
            assert all(t.error is None for t in trajectories)


def test_in_a_tree_each_group_stops_on_its_own(world):
    # by hand: below joint action 0 (0 + 0 said) both say 1: joint reward 1/9 + 2/9 each; below 1 (0 + 1 said) both say
    # 4 on top of 1: 5/9 + 9/9. The mean of the first group is 1/9 / 2
    def answer(request):
        _, number, role, turn, _ = request.row.split(".")
        if turn == "0":
            return number if role == "second" else "0"
        return "1" if int(number) < 2 else "4"

    model = ScriptedModel(dict.fromkeys(ROLES, answer))
    scheme = JointSampling(2, branching="tree", stop_threshold=1.0)
    trajectories, _, _ = sample(world, scheme, model=model, turns=3)
    assert sorted(t.turns for t in trajectories) == [2, 2, 3, 3, 3, 3]


def test_the_threshold_waits_for_the_whole_group_whatever_finishes_first(world):
    others = asyncio.Event()
    asked = []

    async def answer(request):
        asked.append(request.row)
        if request.row == "train-0.0.first.0.0":
            await others.wait()
        if len(asked) == 6:
            others.set()
        return "9" if request.row == "train-0.0.first.0.0" else "0"

    model = ScriptedModel(dict.fromkeys(ROLES, answer))
    # by hand: joint action 0 scores 1 + 1, the others 0: mean 2/3
    trajectories, _, _ = sample(world, JointSampling(3, stop_threshold=0.6), model=model)
    assert {t.turns for t in trajectories} == {1}
    assert len(asked) == 6


def test_paths_may_end_at_different_turns(world):
    class EndsAboveNine(world.SumEnvironment):
        @property
        def done(self):
            return sum(int(response) for _, response in self.log) > 9

        def copy(self):
            return EndsAboveNine(self.log, origin=self)

    model = ScriptedModel(dict.fromkeys(ROLES, lambda r: "5" if r.row.split(".")[1] == "1" else "1"))
    trajectories, _, _ = sample(world, JointSampling(3), model=model, family=world.SumFamily(EndsAboveNine), turns=3)
    assert [t.turns for t in trajectories] == [3, 1, 3]


def test_roles_that_see_each_other_within_a_turn_are_refused(world):
    with pytest.raises(
        WorkflowError, match=r"role 'second' observes depends on what another role did in the same turn.*=parallel"
    ):
        sample(world, JointSampling(2), workflow=world.BothAct, retries=3, max_failure_rate=1.0)


def test_roles_may_act_one_after_the_other_if_they_do_not_see_it(world):
    class Hidden(world.SumEnvironment):
        """Shows what was said in full turns alone."""

        def observe(self, role):
            shown = self.log[: len(self.log) // 2 * 2]
            return {"history": " ".join(f"{who}={text}" for who, text in shown)}

        def copy(self):
            return Hidden(self.log, origin=self)

    trajectories, _, _ = sample(world, JointSampling(2), workflow=world.BothAct, family=world.SumFamily(Hidden))
    for trajectory in trajectories:
        check_as_an_execution_of_its_own(trajectory)


def test_actions_take_effect_in_the_order_in_which_the_roles_began(world):
    second_answered = asyncio.Event()

    async def slow(request):
        await second_answered.wait()
        return "1"

    def fast(request):
        second_answered.set()
        return "2"

    model = ScriptedModel({"first": slow, "second": fast})
    (trajectory,), _, _ = sample(world, JointSampling(1), turns=1, model=model)
    assert [one.info["total"] for one in trajectory.invocations] == [1, 3]


def test_a_graph_with_parallel_branches_is_sampled_jointly(world):
    def graph(max_turns):
        return GraphWorkflow(
            ROLES,
            {"start": Node(), "a": Node("first"), "b": Node("second")},
            [Edge("start", "a"), Edge("start", "b")],
            "start",
        )

    trajectories, _, _ = sample(world, JointSampling(2, "cross"), workflow=graph)
    assert len(trajectories) == 4
    for trajectory in trajectories:
        check_as_an_execution_of_its_own(trajectory)


def test_a_role_that_acts_only_sometimes_takes_part_in_the_joint_actions_it_acts_in(world):
    class Optional(TurnWorkflow):
        roles = ROLES

        async def turn(self, env, agents):
            await agents["first"].act(env)
            if env.log[-1][1] == "1":
                await agents["second"].act(env)

    class Blind(world.SumEnvironment):
        def observe(self, role):
            return {"history": ""}

        def copy(self):
            return Blind(self.log, origin=self)

    model = ScriptedModel({"first": lambda r: r.row.split(".")[1], "second": "3"})
    for joint, expected in (("aligned", [1, 2, 1]), ("cross", [1, 2, 1, 2, 2])):
        trajectories, _, used = sample(
            world, JointSampling(3, joint), turns=1, model=model, workflow=Optional, family=world.SumFamily(Blind)
        )
        assert [len(t.invocations) for t in trajectories] == expected
        assert rows_of(trajectories) == set(used.published) == {request.row for request in used.requests}


def test_a_failure_fails_the_whole_group_and_a_retry_repeats_it(world):
    def model(times):
        left = [times]

        def answer(request):
            if request.row == "train-1.1.second.1.0" and left[0]:
                left[0] -= 1
                raise ConnectionError("gone")
            return "1"

        return ScriptedModel({"first": "1", "second": answer})

    trajectories, _, used = sample(world, JointSampling(2), tasks=2, model=model(1), retries=1)
    assert [t.error for t in trajectories] == [None] * 4
    assert len(used.published) == len(set(used.published)) == 16
    assert {row.split(".")[0] for row in used.discarded} == {"train-1"}

    trajectories, _, used = sample(world, JointSampling(2), tasks=2, model=model(9), retries=1, max_failure_rate=0.5)
    assert [(t.task, t.sample, t.error is None) for t in trajectories] == [
        ("train-0", 0, True),
        ("train-0", 1, True),
        ("train-1", 0, False),
        ("train-1", 1, False),
    ]
    assert "gone; role 'second', turn 1, task 'train-1'" in trajectories[2].error
    assert len({(s["role"], s["turn"]) for s in trajectories[2].info["transcript"]}) >= 2
    assert {row.split(".")[0] for row in used.published} == {"train-0"}
    assert not used.pending

    with pytest.raises(ControllerError, match="2 of 4 trajectories failed"):
        sample(world, JointSampling(2), tasks=2, model=model(9), max_failure_rate=0.4)


def test_a_group_needs_one_slot_however_large_it_is(world):
    trajectories, _, _ = sample(world, JointSampling(4, branching="tree", stop_threshold=99.0), tasks=2, concurrency=1)
    assert len(trajectories) == 2 * 16


def test_a_workflow_that_does_not_repeat_itself_is_refused(world):
    executions = []

    class Moody(Together):
        async def run(self, env, agents):
            executions.append(self)
            if len(executions) < 4:  # the check of the settings makes no execution
                await super().run(env, agents)

    with pytest.raises(WorkflowError, match="did not do twice the same"):
        sample(world, JointSampling(2, branching="tree"), workflow=Moody, max_failure_rate=1.0)


def test_a_turn_that_begins_before_the_last_one_is_over_is_refused(world):
    class Hasty(TurnWorkflow):
        roles = ROLES

        async def run(self, env, agents):
            async with asyncio.TaskGroup() as group:
                group.create_task(agents["first"].act(env, turn=0))
                group.create_task(agents["second"].act(env, turn=1))

        async def turn(self, env, agents):
            """Unused."""

    with pytest.raises(WorkflowError, match="role 'second' begins turn 1 before turn 0 is over"):
        sample(world, JointSampling(1), workflow=Hasty, max_failure_rate=1.0)


def test_prompts_that_differ_as_token_ids_within_a_group_are_an_internal_error(world):
    class Differing(ScriptedModel):
        async def complete(self, request):
            return replace(await super().complete(request), prompt_digest=request.row)

    model = Differing(dict.fromkeys(ROLES, "1"))
    with pytest.raises(
        InternalError, match="prompts of role 'first' differ within the group of task 'train-0', turn 0"
    ):
        sample(world, JointSampling(2), turns=1, model=model, retries=2, max_failure_rate=1.0)
    assert not model.published
    assert not model.pending


def test_a_workflow_cannot_change_the_environment_behind_the_branches(world):
    class Steps(Together):
        async def turn(self, env, agents):
            env.step("first", "1")

    class Sets(Together):
        async def turn(self, env, agents):
            env.log = ()

    class Copies(Together):
        async def turn(self, env, agents):
            await agents["first"].act(env.copy())

    for workflow, message in (
        (Steps, "agents.role..act"),
        (Sets, "sets 'log' of the environment"),
        (Copies, "on the environment that it was given"),
    ):
        with pytest.raises(WorkflowError, match=message):
            sample(world, JointSampling(2), workflow=workflow, max_failure_rate=1.0)


def test_deterministic_seeds_are_distinct_and_do_not_depend_on_timing(world):
    def seeds():
        _, _, model = sample(world, JointSampling(2, "cross", "tree"), deterministic=True)
        return {request.row: request.sampling.seed for request in model.requests}

    first = seeds()
    assert first == seeds()
    assert len(set(first.values())) == len(first)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "needs the option 'n'"),
        ({"n": 0}, ValueError, "'n' must be at least 1"),
        ({"n": 2, "joint": "crossed"}, UnknownNameError, "did you mean 'cross'"),
        ({"n": 2, "branching": "trees"}, UnknownNameError, "did you mean 'tree'"),
        ({"n": 2, "stop_threshold": float("nan")}, ValueError, "'stop_threshold' must be a finite number or null"),
        ({"n": 2, "threshold": 1.0}, UnknownNameError, "did you mean 'stop_threshold'"),
    ],
)
def test_a_wrong_option_is_named_with_the_nearest(options, error, message):
    with pytest.raises(error, match=message):
        make_scheme("joint", **options)
