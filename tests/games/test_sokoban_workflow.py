"""The Sokoban workflow under the real controller, with answers from a script; and what the plugin provides."""

import pytest

from verl_mas.rewards import RuleRewardManager
from verl_mas.trajectory.records import Trajectory
from verl_mas.workflow import Controller, Request, Sampling, ScriptedModel, TreeSampling
from verl_mas_games import plugin
from verl_mas_games.sokoban.environment import Sokoban
from verl_mas_games.sokoban.game import parse_state
from verl_mas_games.sokoban.solver import solve
from verl_mas_games.sokoban.workflow import SokobanWorkflow

FAMILY = Sokoban(style="compact", tool="actions")


def solution(request: Request) -> str:
    inner = request.prompt.split("\n")[:4]
    found = solve(parse_state("\n".join(["######", *(f"#{row}#" for row in inner), "######"])))
    assert found is not None
    return found


def second_candidate_solves(request: Request) -> str:
    return solution(request) if request.row.endswith(".1") else "nonsense"


async def play(tool, planner, max_turns: int = 4) -> Trajectory:
    controller = Controller(
        ScriptedModel({"tool": tool, "planner": planner}),
        FAMILY,
        lambda: SokobanWorkflow(max_turns),
        TreeSampling(candidates=3),
        RuleRewardManager(),
        roles={"tool": Sampling(), "planner": Sampling()},
        concurrency=1,
        env_timeout_s=10,
        max_failure_rate=0.0,
        retries=0,
        deterministic=False,
    )
    [trajectory] = await controller.run([FAMILY.task("train", 0)], split="train", step=0, seed=0)
    return trajectory


async def test_the_planner_sees_the_proposal_that_won_among_the_tools_candidates() -> None:
    trajectory = await play(second_candidate_solves, second_candidate_solves)
    tool, planner = trajectory.invocations[:3], trajectory.invocations[3:]
    assert [invocation.chosen for invocation in tool] == [False, True, False]
    assert all(invocation.prompt.endswith(f"P{tool[1].response}>") for invocation in planner)
    # A solving list: team 1 + local 1. Nonsense: team 0, local 0 (planner) or masked (tool).
    assert [invocation.reward for invocation in tool] == pytest.approx([0.0, 2.0, 0.0])
    assert [invocation.reward for invocation in planner] == pytest.approx([0.0, 2.0, 0.0])
    assert trajectory.success
    assert trajectory.turns == 1


async def test_only_the_planner_moves_the_state() -> None:
    trajectory = await play(solution, "nonsense", max_turns=2)
    assert not trajectory.success
    assert trajectory.turns == 2
    assert len({invocation.prompt for invocation in trajectory.invocations if invocation.role == "tool"}) == 1


def test_the_plugin_provides_workflow_and_environment_by_name() -> None:
    assert plugin.verl_mas_workflows()["sokoban"] is SokobanWorkflow
    assert plugin.verl_mas_environments()["sokoban"] is Sokoban


def test_the_papers_four_turns_are_the_default() -> None:
    assert SokobanWorkflow().max_turns == 4
    assert SokobanWorkflow.roles == ("tool", "planner")
