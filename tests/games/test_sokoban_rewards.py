"""The rewards of AT-GRPO, appendix A.1.5. Every number is calculated by hand from the paper's coefficients.

Planner: .10 fmt + .45 leg + .45 dlk. Tool: .10 fmt + .30 exec + .60 pot.
sum: team + local. convex: .40 team + .60 local.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.rewards import RewardParts, RuleRewardManager
from verl_mas_games.sokoban.game import State, parse_state
from verl_mas_games.sokoban.generator import LevelOptions, generate
from verl_mas_games.sokoban.rewards import (
    PLANNER_WEIGHTS,
    TEAM_WEIGHT,
    TOOL_WEIGHTS,
    planner_reward,
    team_score,
    tool_reward,
)

OPEN = parse_state("######\n#----#\n#-@$.#\n#----#\n#----#\n######")
BY_A_CORNER = parse_state("######\n#-$@-#\n#---.#\n######")
TWO_BOXES = parse_state("######\n#-@$.#\n#----#\n#--$.#\n#----#\n######")

rules = {
    "sum": RuleRewardManager(mixing="sum", alpha=1.0),
    "convex": RuleRewardManager(mixing="convex", lam=TEAM_WEIGHT),
}


def scores(parts: RewardParts) -> dict[str, float]:
    return {name: part.score for name, part in parts.local.items()}


def rewards(role: str, parts: RewardParts) -> tuple[float, float]:
    return rules["sum"].score(role, parts).value, rules["convex"].score(role, parts).value


def test_the_coefficients_are_the_papers() -> None:
    assert PLANNER_WEIGHTS == {"fmt": 0.10, "leg": 0.45, "dlk": 0.45}
    assert TOOL_WEIGHTS == {"fmt": 0.10, "exec": 0.30, "pot": 0.60}
    assert TEAM_WEIGHT == 0.40


@pytest.mark.parametrize(
    ("state", "moves", "list_score", "expected", "team", "by_sum", "by_convex"),
    [
        # solved: 1 + (.10 + .45 + .45) = 2; .4 * 1 + .6 * 1 = 1
        (OPEN, "R", "all", {"fmt": 1, "leg": 1, "dlk": 1}, 1.0, 2.0, 1.0),
        # solved by the first move: what comes after is neither executed nor judged
        (OPEN, "RRRR", "all", {"fmt": 1, "leg": 1, "dlk": 1}, 1.0, 2.0, 1.0),
        # legal, nothing gained: .10 + .45 + .45 = 1; .6 * 1
        (OPEN, "U", "all", {"fmt": 1, "leg": 1, "dlk": 1}, 0.0, 1.0, 0.6),
        # one legal step, then into the wall twice: .10 + 0 + .45 = .55; .6 * .55 = .33
        (OPEN, "UUU", "all", {"fmt": 1, "leg": 0, "dlk": 1}, 0.0, 0.55, 0.33),
        # a third of the moves was legal: .10 + .45 / 3 + .45 = .70; .6 * .70 = .42
        (OPEN, "UUU", "mean", {"fmt": 1, "leg": 1 / 3, "dlk": 1}, 0.0, 0.70, 0.42),
        # box into the corner: .10 + .45 + 0 = .55
        (BY_A_CORNER, "L", "all", {"fmt": 1, "leg": 1, "dlk": 0}, 0.0, 0.55, 0.33),
        # box into the corner and then into the wall: .10
        (BY_A_CORNER, "LL", "all", {"fmt": 1, "leg": 0, "dlk": 0}, 0.0, 0.10, 0.06),
        # one of two boxes: .5 + 1; .4 * .5 + .6
        (TWO_BOXES, "R", "all", {"fmt": 1, "leg": 1, "dlk": 1}, 0.5, 1.5, 0.8),
        # and the other box, from the left: left, down, down, right
        (TWO_BOXES, "RLDDR", "all", {"fmt": 1, "leg": 1, "dlk": 1}, 1.0, 2.0, 1.0),
        # nothing readable, and nothing at all
        (OPEN, None, "all", {"fmt": 0, "leg": 0, "dlk": 0}, 0.0, 0.0, 0.0),
        (OPEN, "", "all", {"fmt": 0, "leg": 0, "dlk": 0}, 0.0, 0.0, 0.0),
        (OPEN, "", "mean", {"fmt": 0, "leg": 0, "dlk": 0}, 0.0, 0.0, 0.0),
    ],
)
def test_planner_rewards(
    state: State,
    moves: str | None,
    list_score,
    expected: dict[str, float],
    team: float,
    by_sum: float,
    by_convex: float,
) -> None:
    parts, _ = planner_reward(state, None if moves is None else tuple(moves), list_score)
    assert scores(parts) == pytest.approx(expected)
    assert parts.mask == 1.0
    assert parts.team == team
    assert rewards("planner", parts) == pytest.approx((by_sum, by_convex))


@pytest.mark.parametrize(
    ("state", "moves", "list_score", "expected", "mask", "team", "by_sum", "by_convex"),
    [
        # solves: 1 + (.10 + .30 + .60) = 2
        (OPEN, "R", "all", {"fmt": 1, "exec": 1, "pot": 1}, 1, 1.0, 2.0, 1.0),
        # the box stays where it is, psi does not fall: .10 + .30 + .60
        (OPEN, "U", "all", {"fmt": 1, "exec": 1, "pot": 1}, 1, 0.0, 1.0, 0.6),
        # into the wall: .10 + 0 + .60 = .70; .6 * .70 = .42
        (OPEN, "UUU", "all", {"fmt": 1, "exec": 0, "pot": 1}, 1, 0.0, 0.70, 0.42),
        # .10 + .30 / 3 + .60 = .80; .6 * .80 = .48
        (OPEN, "UUU", "mean", {"fmt": 1, "exec": 1 / 3, "pot": 1}, 1, 0.0, 0.80, 0.48),
        # the box goes from 3 to 4 cells from its goal: .10 + .30 + 0
        (BY_A_CORNER, "L", "all", {"fmt": 1, "exec": 1, "pot": 0}, 1, 0.0, 0.40, 0.24),
        (BY_A_CORNER, "LL", "all", {"fmt": 1, "exec": 0, "pot": 0}, 1, 0.0, 0.10, 0.06),
        (TWO_BOXES, "R", "all", {"fmt": 1, "exec": 1, "pot": 1}, 1, 0.5, 1.5, 0.8),
        # no execution: no log, no psi_k, so the local reward is masked
        (OPEN, None, "all", {"fmt": 0, "exec": 0, "pot": 0}, 0, 0.0, 0.0, 0.0),
        (OPEN, "", "mean", {"fmt": 0, "exec": 0, "pot": 0}, 0, 0.0, 0.0, 0.0),
    ],
)
def test_tool_rewards(
    state: State,
    moves: str | None,
    list_score,
    expected: dict[str, float],
    mask: float,
    team: float,
    by_sum: float,
    by_convex: float,
) -> None:
    parts, _ = tool_reward(state, None if moves is None else tuple(moves), list_score)
    assert scores(parts) == pytest.approx(expected)
    assert parts.mask == mask
    assert parts.team == team
    assert rewards("tool", parts) == pytest.approx((by_sum, by_convex))


@pytest.mark.parametrize(
    ("reward", "state", "moves", "slots", "local"),
    [
        # solved: all slots count as filled, so the full local reward
        (planner_reward, OPEN, "R", 6, 1.0),
        (tool_reward, OPEN, "R", 6, 1.0),
        # one safe move of four slots: a quarter
        (planner_reward, OPEN, "U", 4, 0.25),
        (tool_reward, OPEN, "U", 4, 0.25),
        # half of six slots filled, a third of them legal: (.10 + .45 / 3 + .45) / 2 and (.10 + .30 / 3 + .60) / 2
        (planner_reward, OPEN, "UUU", 6, 0.35),
        (tool_reward, OPEN, "UUU", 6, 0.40),
        # a quarter filled, the box in the corner: (.10 + .45) / 4 and (.10 + .30) / 4
        (planner_reward, BY_A_CORNER, "L", 4, 0.1375),
        (tool_reward, BY_A_CORNER, "L", 4, 0.10),
        # no list
        (planner_reward, OPEN, "", 4, 0.0),
        (tool_reward, OPEN, None, 4, 0.0),
    ],
)
def test_slots_that_a_list_leaves_empty_earn_nothing(
    reward, state: State, moves: str | None, slots: int, local: float
) -> None:
    parts, _ = reward(state, None if moves is None else tuple(moves), "slots", slots)
    assert parts.local_score == pytest.approx(local)


def test_slots_need_their_number() -> None:
    with pytest.raises(ValueError, match="max_actions"):
        planner_reward(OPEN, ("U",), "slots")


def test_a_malformed_list_keeps_the_team_score_of_boxes_already_home() -> None:
    half = parse_state("######\n#@-*-#\n#-$-.#\n#----#\n######")
    assert tool_reward(half, None)[0].team == 0.5
    assert planner_reward(half, ())[0].team == 0.5
    # sum: 1 * .5 + 0; convex: .4 * .5 + .6 * 0
    assert rewards("tool", tool_reward(half, None)[0]) == pytest.approx((0.5, 0.2))
    assert rewards("planner", planner_reward(half, None)[0]) == pytest.approx((0.5, 0.2))


def test_pushing_a_box_off_its_goal_costs_team_score_and_potential() -> None:
    half = parse_state("######\n#@*--#\n#-$-.#\n#----#\n######")
    parts, _ = tool_reward(half, ("R",))
    assert parts.team == 0.0
    assert parts.local["pot"].score == 0.0


@given(
    st.integers(0, 300),
    st.none() | st.lists(st.sampled_from("UDLR"), max_size=20).map(tuple),
    st.sampled_from(["all", "mean", "slots"]),
    st.sampled_from([planner_reward, tool_reward]),
)
def test_every_score_and_every_mix_lies_in_its_range(index: int, moves, list_score, reward) -> None:
    state = generate(LevelOptions(boxes=1 + index % 2, max_length=15), 0, "train", index).state
    parts, rollout = reward(state, moves, list_score, slots=20)
    assert sum(part.weight for part in parts.local.values()) == pytest.approx(1.0)
    assert all(0.0 <= part.score <= 1.0 for part in parts.local.values())
    assert 0.0 <= parts.local_score <= 1.0 + 1e-9
    assert parts.team == team_score(rollout.after)
    by_sum, by_convex = rewards("planner", parts)
    assert 0.0 <= by_sum <= 2.0 + 1e-9
    assert 0.0 <= by_convex <= 1.0 + 1e-9


@given(st.integers(0, 300), st.sampled_from("UDLR"))
def test_for_one_move_both_list_scores_are_the_same(index: int, move: str) -> None:
    state = generate(LevelOptions(), 0, "train", index).state
    for reward in (planner_reward, tool_reward):
        assert reward(state, (move,), "all")[0] == reward(state, (move,), "mean")[0]
