"""Graph workflows: what a graph executes, and what is refused when it is built. Expectations are by hand."""

import asyncio

import pytest

from verl_mas.config.suggest import UnknownNameError
from verl_mas.workflow import (
    Edge,
    GraphError,
    GraphWorkflow,
    Loop,
    Node,
    ParallelSampling,
    PromptError,
    ScriptedModel,
    TreeSampling,
)

ROLES = ("a", "b", "c", "d")


@pytest.fixture
def execute(world):
    """Run a graph once; by default role x answers "1". Gives the trajectory and the environment."""

    def run_graph(graph, answers=None, scheme=None, environment=world.SumEnvironment):
        family = world.SumFamily(environment)
        family.prompts = {role: role + ": {history}" for role in graph.roles}
        model = ScriptedModel(dict.fromkeys(graph.roles, "1") | (answers or {}))
        controller = world.make_controller(model, family, lambda: graph, scheme or ParallelSampling(1))
        (trajectory,) = world.run(controller, family)
        return trajectory, family.made["train-0"][-1]

    return run_graph


def nodes(*names, joins=()):
    return {name: Node(name, join=name in joins) for name in names}


def acted(trajectory):
    return [(i.role, i.turn) for i in trajectory.invocations if i.chosen]


def seen(trajectory):
    """For each committed row, the role and turn of the rows its prompt could see."""
    by_row = {i.row: (i.role, i.turn) for i in trajectory.invocations}
    return {(i.role, i.turn): [by_row[row] for row in i.parents] for i in trajectory.invocations if i.chosen}


def test_a_sequence_runs_in_order(execute):
    graph = GraphWorkflow("abc", nodes("c", "b", "a"), [Edge("a", "b"), Edge("b", "c")], start="a")
    trajectory, env = execute(graph)
    assert [who for who, _ in env.log] == ["a", "b", "c"]
    assert seen(trajectory) == {("a", 0): [], ("b", 0): [("a", 0)], ("c", 0): [("a", 0), ("b", 0)]}


def test_branches_run_concurrently_and_the_join_waits_for_all(execute):
    async def meet(request):
        present.add(request.role)
        if present == {"b", "c"}:
            both.set()
        await both.wait()  # never ends unless the branches overlap
        return "1"

    present, both = set(), asyncio.Event()
    edges = [Edge("a", "b"), Edge("a", "c"), Edge("b", "d"), Edge("c", "d")]
    graph = GraphWorkflow(ROLES, nodes(*ROLES, joins="d"), edges, start="a")
    trajectory, env = execute(graph, {"b": meet, "c": meet})
    assert [who for who, _ in env.log][::3] == ["a", "d"]
    assert seen(trajectory)["b", 0] == seen(trajectory)["c", 0] == [("a", 0)]
    assert seen(trajectory)["d", 0] == [("a", 0), ("b", 0), ("c", 0)]


@pytest.mark.parametrize("slow", ["b", "c"])
def test_records_are_in_the_same_order_whichever_branch_is_slower(execute, slow):
    other_done = asyncio.Event()

    async def wait(request):
        await other_done.wait()
        return "1"

    async def go(request):
        asyncio.get_running_loop().call_soon(other_done.set)
        return "1"

    edges = [Edge("a", "b"), Edge("a", "c"), Edge("b", "d"), Edge("c", "d")]
    graph = GraphWorkflow(ROLES, nodes(*ROLES, joins="d"), edges, start="a")
    fast = "c" if slow == "b" else "b"
    trajectory, _ = execute(graph, {slow: wait, fast: go}, scheme=TreeSampling(2))
    assert acted(trajectory) == [("a", 0), ("b", 0), ("c", 0), ("d", 0)]
    assert seen(trajectory)["d", 0] == [("a", 0), ("b", 0), ("c", 0)]


@pytest.mark.parametrize(("answer", "path"), [("1", ["a", "b", "d"]), ("2", ["a", "c", "d"])])
def test_a_condition_chooses_the_branch_and_the_join_does_not_wait_for_the_other(execute, answer, path):
    odd = [Edge("a", "b", when=lambda env: not env.success), Edge("a", "c", when=lambda env: env.success)]
    graph = GraphWorkflow(ROLES, nodes(*ROLES, joins="d"), [*odd, Edge("b", "d"), Edge("c", "d")], start="a")
    trajectory, _ = execute(graph, {"a": answer})
    assert [role for role, _ in acted(trajectory)] == path


def test_a_branch_that_is_not_taken_is_skipped_to_its_end(execute):
    edges = [Edge("a", "b", when=lambda env: False), Edge("b", "c"), Edge("a", "d"), Edge("c", "d")]
    graph = GraphWorkflow(ROLES, nodes(*ROLES, joins="d"), edges, start="a")
    trajectory, _ = execute(graph)
    assert acted(trajectory) == [("a", 0), ("d", 0)]


def test_a_graph_whose_last_condition_fails_just_ends(execute):
    graph = GraphWorkflow("ab", nodes("a", "b"), [Edge("a", "b", when=lambda env: False)], start="a")
    assert acted(execute(graph)[0]) == [("a", 0)]


def test_a_loop_repeats_its_body_while_the_condition_holds(execute):
    graph = GraphWorkflow(
        "abc",
        nodes("a", "b", "c"),
        [Edge("a", "b"), Edge("b", "c"), Loop("b", "a", when=lambda env: len(env.log) < 6, max_times=9)],
        start="a",
    )
    trajectory, env = execute(graph)
    assert [who for who, _ in env.log] == ["a", "b", "a", "b", "a", "b", "c"]
    assert acted(trajectory) == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 0)]


def test_a_loop_ends_at_its_limit(execute):
    graph = GraphWorkflow("a", nodes("a"), [Loop("a", "a", when=lambda env: True, max_times=3)], start="a")
    assert acted(execute(graph)[0]) == [("a", turn) for turn in range(4)]


def test_an_inner_loop_counts_afresh_in_each_round_of_the_outer_one(execute):
    always = lambda env: True  # noqa: E731
    graph = GraphWorkflow(
        "abc",
        nodes("a", "b", "c"),
        [Edge("a", "b"), Edge("b", "c"), Loop("b", "b", always, max_times=1), Loop("c", "a", always, max_times=2)],
        start="a",
    )
    _, env = execute(graph)
    assert "".join(who for who, _ in env.log) == "abbc" * 3


def test_branches_and_a_join_inside_a_loop_start_afresh(execute):
    edges = [Edge("a", "b"), Edge("a", "c"), Edge("b", "d"), Edge("c", "d")]
    loop = Loop("d", "a", when=lambda env: True, max_times=1)
    graph = GraphWorkflow(ROLES, nodes(*ROLES, joins="d"), [*edges, loop], start="a")
    trajectory, _ = execute(graph)
    assert acted(trajectory) == [(role, turn) for turn in range(2) for role in ROLES]
    assert len(seen(trajectory)["d", 1]) == 7


def test_nothing_starts_once_the_environment_is_done(execute, world):
    class EndsAfterTwo(world.SumEnvironment):
        @property
        def done(self):
            return len(self.log) >= 2

    graph = GraphWorkflow("abc", nodes("a", "b", "c"), [Edge("a", "b"), Edge("b", "c")], start="a")
    assert acted(execute(graph, environment=EndsAfterTwo)[0]) == [("a", 0), ("b", 0)]


def test_a_role_with_several_nodes_gets_a_turn_for_each(execute):
    graph = GraphWorkflow(
        "ab",
        {"begin": Node("a"), "left": Node("b"), "right": Node("b"), "end": Node("a", join=True)},
        [Edge("begin", "left"), Edge("begin", "right"), Edge("left", "end"), Edge("right", "end")],
        start="begin",
    )
    assert acted(execute(graph)[0]) == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]


def test_nodes_without_a_role_only_route(execute):
    graph = GraphWorkflow(
        "ab",
        {"fork": Node(), **nodes("a", "b"), "join": Node(join=True)},
        [Edge("fork", "a"), Edge("fork", "b"), Edge("a", "join"), Edge("b", "join")],
        start="fork",
    )
    assert acted(execute(graph)[0]) == [("a", 0), ("b", 0)]


AB = nodes("a", "b")
NEVER = lambda env: False  # noqa: E731


@pytest.mark.parametrize(
    ("roles", "graph_nodes", "edges", "start", "error", "message"),
    [
        (["planner"], {"x": Node("planer")}, [], "x", UnknownNameError, "'planer'; did you mean 'planner'"),
        ("ab", AB, [Edge("a", "bb")], "a", UnknownNameError, "unknown node 'bb'"),
        ("ab", AB, [Edge("a", "b")], "aa", UnknownNameError, "unknown node 'aa'"),
        ("abc", AB, [Edge("a", "b")], "a", GraphError, "role 'c' has no node"),
        ("ab", AB, [], "a", GraphError, "unreachable node 'b'"),
        ("ab", nodes("a", "b", joins="b"), [], "a", GraphError, "join 'b' needs two or more edges.* has none"),
        ("ab", nodes("a", "b", joins="b"), [Edge("a", "b")], "a", GraphError, "join 'b' needs two .* has 1"),
        (
            "abc",
            nodes("a", "b", "c"),
            [Edge("a", "b"), Edge("a", "c"), Edge("b", "c")],
            "a",
            GraphError,
            "edges from a, b meet in node 'c'",
        ),
        (
            "ab",
            AB,
            [Edge("a", "b"), Edge("b", "a")],
            "a",
            GraphError,
            "cycle without condition: (a -> b -> a|b -> a -> b)",
        ),
        ("a", nodes("a"), [Edge("a", "a")], "a", GraphError, "cycle without condition: a -> a"),
        ("ab", AB, [Edge("a", "b"), Edge("a", "b", NEVER)], "a", GraphError, "two edges lead from 'a' to 'b'"),
        ("ab", AB, [Edge("a", "b"), Loop("a", "b", NEVER, 1)], "a", GraphError, "is no loop"),
        ("ab", AB, [Edge("a", "b"), Loop("b", "a", NEVER, 0)], "a", GraphError, "max_times must be at least 1"),
        (
            "abc",
            nodes("a", "b", "c"),
            [Edge("a", "b"), Edge("a", "c"), Loop("b", "a", NEVER, 1)],
            "a",
            GraphError,
            "edge 'a' -> 'c' leaves its body in the middle",
        ),
        (
            ROLES,
            nodes(*ROLES, joins="c"),
            [Edge("a", "b"), Edge("b", "c"), Edge("a", "d"), Edge("d", "c"), Loop("c", "b", NEVER, 1)],
            "a",
            GraphError,
            "edge 'd' -> 'c' enters its body in the middle",
        ),
    ],
)
def test_a_graph_that_is_no_workflow_is_refused_when_it_is_built(roles, graph_nodes, edges, start, error, message):
    with pytest.raises(error, match=message):
        GraphWorkflow(roles, graph_nodes, edges, start)


def test_the_roles_of_a_graph_need_prompts_like_any_other(world):
    graph = GraphWorkflow("a", nodes("a"), [], start="a")
    with pytest.raises(PromptError, match="role 'a' has no prompt template"):
        world.make_controller(ScriptedModel({"a": "1"}), world.SumFamily(), lambda: graph)
