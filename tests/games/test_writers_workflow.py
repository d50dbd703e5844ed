"""Writers under the real controller and every sampling scheme, with answers from a script.

The rewards are derived by hand from the words; the roles' weights of the team score from the mixing.
"""

import asyncio
from collections.abc import Callable

import pytest

from verl_mas.advantages import get_estimator
from verl_mas.rewards import RuleRewardManager
from verl_mas.training.metrics import credits_of
from verl_mas.trajectory.records import Trajectory
from verl_mas.workflow import Controller, Request, Sampling, ScriptedModel, make_scheme
from verl_mas_games import plugin
from verl_mas_games.writers.environment import Writers
from verl_mas_games.writers.workflow import WritersWorkflow

#: by sample or candidate
FIRST = ["UUUU", "UU", "LLLL", "nothing"]
SECOND = ["DDDD", "DDDD", "LLLL", "LLLL"]
OPTIONS: dict[str, dict[str, object]] = {
    "parallel": {"n": 4},
    "joint": {"n": 4},
    "tree": {"candidates": 4, "selection": "first"},
}


def by_number(words: list[str]) -> Callable[[Request], str]:
    def answer(request: Request) -> str:
        _, sample, _, _, candidate = request.row.rsplit(".", 4)
        return words[max(int(sample), int(candidate))]

    return answer


async def play(
    scheme: str,
    goal: str,
    *,
    first: Callable[[Request], object] | None = None,
    second: Callable[[Request], object] | None = None,
    max_turns: int = 1,
    **mixing: object,
) -> list[Trajectory]:
    family = Writers(goal=goal)  # type: ignore[arg-type]
    model = ScriptedModel({"first": first or by_number(FIRST), "second": second or by_number(SECOND)})  # type: ignore[dict-item]
    controller = Controller(
        model,
        family,
        lambda: WritersWorkflow(max_turns),
        make_scheme(scheme, **OPTIONS[scheme]),
        RuleRewardManager(rules=family.reward_rules, **mixing),  # type: ignore[arg-type]
        roles={"first": Sampling(), "second": Sampling()},
        concurrency=8,
        env_timeout_s=10,
        max_failure_rate=0.0,
        retries=0,
        deterministic=False,
    )
    return await controller.run([family.task("train", 0)], split="train", step=0, seed=0)


def rewards(trajectories: list[Trajectory], role: str) -> list[float | None]:
    return [one.reward for trajectory in trajectories for one in trajectory.invocations if one.role == role]


def assert_breakdowns_add_up(trajectories: list[Trajectory]) -> None:
    for trajectory in trajectories:
        for one in trajectory.invocations:
            assert sum(one.breakdown.values()) == one.reward


@pytest.mark.parametrize("scheme", ["parallel", "joint"])
async def test_the_joint_score_reaches_both_roles(scheme: str) -> None:
    trajectories = await play(scheme, "fit")
    # UUUU-DDDD fits, UU-DDDD at 2 of 4, LLLL-LLLL nowhere, and without a word there is nothing to fit.
    assert rewards(trajectories, "first") == rewards(trajectories, "second") == [1.0, 0.5, 0.0, 0.0]
    assert [trajectory.success for trajectory in trajectories] == [True, False, False, False]
    assert_breakdowns_add_up(trajectories)


@pytest.mark.parametrize("scheme", ["parallel", "joint"])
@pytest.mark.parametrize("late", ["first", "second"])
async def test_the_joint_score_does_not_depend_on_who_is_slow(scheme: str, late: str) -> None:
    partner_ready = asyncio.Event()

    def paced(role: str, words: list[str]) -> Callable[[Request], object]:
        async def answer(request: Request) -> str:
            if role == late:
                await partner_ready.wait()
            else:
                partner_ready.set()
            return by_number(words)(request)

        return answer

    trajectories = await play(scheme, "fit", first=paced("first", FIRST), second=paced("second", SECOND))
    assert rewards(trajectories, "first") == rewards(trajectories, "second") == [1.0, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("scheme", ["parallel", "joint"])
async def test_the_later_payment_has_the_weight_of_the_team_score(scheme: str) -> None:
    trajectories = await play(scheme, "fit", mixing="convex", lam=0.25)
    assert rewards(trajectories, "first") == rewards(trajectories, "second") == [0.25, 0.125, 0.0, 0.0]


async def test_magrpo_gives_both_roles_the_advantage_of_the_joint_action() -> None:
    trajectories = await play("joint", "fit")
    invocations = [one for trajectory in trajectories for one in trajectory.invocations]
    advantages = get_estimator("magrpo", normalize="none")(credits_of(invocations))
    # Returns are sums over both roles, 2, 1, 0, 0, of mean 3/4.
    expected = [1.25, 0.25, -0.75, -0.75]
    by_role = {
        role: [value for one, value in zip(invocations, advantages, strict=True) if one.role == role]
        for role in ("first", "second")
    }
    assert by_role["first"] == pytest.approx(expected)
    assert by_role["second"] == pytest.approx(expected)


@pytest.mark.parametrize("scheme", ["parallel", "joint"])
async def test_own_letters_are_paid_to_the_role_and_half_of_both_to_the_team(scheme: str) -> None:
    trajectories = await play(scheme, "letters")
    # Shares: first 1, 1/2, 0, 0; second 0, 0, 1, 1. Reward: own share + half of both.
    assert rewards(trajectories, "first") == [1.5, 0.75, 0.5, 0.5]
    assert rewards(trajectories, "second") == [0.5, 0.25, 1.5, 1.5]
    assert_breakdowns_add_up(trajectories)


async def test_in_a_tree_each_candidate_is_paid_what_the_committed_partner_adds() -> None:
    [trajectory] = await play("tree", "letters")
    # Committed: UUUU (share 1) and DDDD (share 0). Candidates of first: share 1, 1/2, 0, 0 and half of it for the team;
    # of second: share 0, 0, 1, 1, half of it for the team, and the half that the first's share 1 adds.
    assert rewards([trajectory], "first") == [1.5, 0.75, 0.0, 0.0]
    assert rewards([trajectory], "second") == [0.5, 0.5, 2.0, 2.0]
    assert_breakdowns_add_up([trajectory])


async def test_no_local_weight_leaves_the_shared_outcome_alone() -> None:
    trajectories = await play("parallel", "guess", mixing="convex", lam=1.0)
    assert rewards(trajectories, "first") == rewards(trajectories, "second")
    own = await play("parallel", "guess", mixing="convex", lam=0.0)
    assert rewards(own, "first") == [1.0, 0.5, 0.0, 0.0]


async def test_candidates_that_were_not_committed_cannot_be_paid_for_fitting() -> None:
    with pytest.raises(ValueError, match="was not committed"):
        await play("tree", "fit")


@pytest.mark.parametrize("scheme", ["parallel", "joint", "tree"])
async def test_neither_role_sees_a_word_of_the_same_turn(scheme: str) -> None:
    trajectories = await play(scheme, "letters", max_turns=2)
    for trajectory in trajectories:
        for one in trajectory.invocations:
            rows_before = {other.row for other in trajectory.invocations if other.turn < one.turn and other.chosen}
            assert set(one.parents) == rows_before
            marker = "T" if one.role == "first" else "P"
            shown = one.prompt.split("\n")[-1].removeprefix(marker).removesuffix(">")
            partners = [
                other.info["word"]
                for other in trajectory.invocations
                if other.turn == one.turn - 1 and other.role != one.role and other.chosen
            ]
            assert [shown] == (partners or [""])


@pytest.mark.parametrize("scheme", ["parallel", "joint"])
async def test_each_turn_is_paid_for_its_own_words(scheme: str) -> None:
    def improving(words: str) -> Callable[[Request], str]:
        return lambda request: words if request.row.rsplit(".", 2)[1] == "1" else ""

    trajectories = await play(scheme, "fit", first=improving("UUUL"), second=improving("DDDD"), max_turns=2)
    for trajectory in trajectories:
        assert [(one.turn, one.reward) for one in trajectory.invocations] == [(0, 0.0), (0, 0.0), (1, 0.75), (1, 0.75)]


async def test_a_turn_that_succeeds_is_the_last() -> None:
    trajectories = await play("parallel", "fit", max_turns=3)
    assert [trajectory.turns for trajectory in trajectories] == [1, 3, 3, 3]


def test_the_plugin_provides_workflow_and_environment_by_name() -> None:
    assert plugin.verl_mas_workflows()["writers"] is WritersWorkflow
    assert plugin.verl_mas_environments()["writers"] is Writers


def test_one_turn_is_the_default() -> None:
    assert WritersWorkflow().max_turns == 1
    assert WritersWorkflow.roles == ("first", "second")
