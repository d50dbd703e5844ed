"""Reward backpropagation (MAPPA, appendix F): Eq. 6 and 7 by hand, and the chain of questions against a real server."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.rewards.coach.outcome import CONSISTENCIES, BackpropagationSettings, consistent

contributions = st.lists(st.floats(-1, 1), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        # by hand: the sum is .4 and 1 is wanted, so .6 is missing; sum|Delta| is 1
        ("proportional", [0.3 + 0.6 * 0.3, 0.0, -0.3 + 0.6 * 0.3, 0.4 + 0.6 * 0.4]),
        ("shift", [0.45, 0.15, -0.15, 0.55]),
        ("prompt", [0.3, 0.0, -0.3, 0.4]),
    ],
)
def test_contributions_are_brought_to_the_outcome(how, expected):
    assert consistent([0.3, 0.0, -0.3, 0.4], 1.0, how) == pytest.approx(expected)


@given(contributions, st.floats(-1, 1), st.sampled_from([how for how in CONSISTENCIES if how != "prompt"]))
def test_their_sum_is_the_outcomes_value(deltas, value, how):
    assert math.fsum(consistent(deltas, value, how)) == pytest.approx(value, abs=1e-9)


@given(contributions.filter(lambda deltas: any(deltas)), st.floats(-1, 1))
def test_an_action_that_did_not_matter_keeps_nothing_under_proportional(deltas, value):
    adjusted = consistent([*deltas, 0.0], value, "proportional")
    assert adjusted[-1] == 0.0


def test_where_nothing_mattered_the_outcome_is_shared_evenly():
    assert consistent([0.0, 0.0], -1.0, "proportional") == [-0.5, -0.5]


def test_the_outcomes_value_is_linear_between_failure_and_success():
    settings_ = BackpropagationSettings(failure_value=-0.5, success_value=1.0)
    assert [settings_.value(outcome) for outcome in (0.0, 0.5, 1.0)] == [-0.5, 0.25, 1.0]


def is_backward(body):
    return "You trace that outcome backward" in body["messages"][0]["content"]


async def score(coach, whole, answer, **options):
    async with coach.Server(answer) as server:
        manager = coach.manager(server, **options)
        try:
            await manager.assign(whole)
        finally:
            await manager.close()
    return server


async def test_the_chain_goes_from_the_last_action_to_the_first_and_hands_on_what_is_left(coach):
    # by hand: p = .8, .6; Delta = 2, -7 points of v(R) = -10, so -5 are missing: proportional to 2 and 7, a ninth each
    # Delta_1 = .2 - .5 * 2/9, Delta_2 = -.7 - .5 * 7/9; f = .75 p + .25 Delta
    def answer(body):
        first = coach.field_of(body, "agent_output") == "one"
        if not is_backward(body):
            return f"PROCESS_SCORE: {8 if first else 6}"
        return f"It is what it is.\nOUTCOME_CONTRIBUTION: {2 if first else -7}"

    actions = [coach.said("solver", 0, "one"), coach.said("verifier", 1, "two", info={"ground_truth": "42"})]
    server = await score(coach, coach.trajectory(*actions), answer, backpropagation={"alpha": 0.75, "beta": 0.25})
    deltas = [0.2 - 0.5 * 2 / 9, -0.7 - 0.5 * 7 / 9]
    assert sum(deltas) == pytest.approx(-1.0)
    for action, process, delta in zip(actions, [0.8, 0.6], deltas, strict=True):
        assert action.breakdown == pytest.approx({"process": 0.75 * process, "outcome": 0.25 * delta})
        assert action.reward == sum(action.breakdown.values())
        assert action.info["coach"]["contribution"] == pytest.approx(delta)

    last, first = [body for body in server.asked if is_backward(body)]
    assert coach.field_of(last, "agent_output") == "two"
    assert coach.field_of(last, "residual") is None
    assert "the outcome as a whole is worth -10, and -10 points are not yet attributed" in coach.prompt_of(last)
    assert coach.field_of(first, "residual") == (
        "Action 2 (verifier): -7 points\n\nIt is what it is.\nOUTCOME_CONTRIBUTION: -7"
    )
    assert "-3 points are not yet attributed" in coach.prompt_of(first)
    assert "This is the first action" in coach.prompt_of(first)
    assert '"ground truth": "42"' in coach.field_of(first, "outcome")


async def test_the_process_score_does_not_know_the_outcome(coach):
    action = coach.said("solver", info={"ground_truth": "forty-two"})
    server = await score(
        coach, coach.trajectory(action), lambda body: "PROCESS_SCORE: 8\nOUTCOME_CONTRIBUTION: 3", backpropagation={}
    )
    (forward,) = [body for body in server.asked if not is_backward(body)]
    assert "forty-two" not in coach.prompt_of(forward)


async def test_candidates_that_were_not_committed_had_no_part_in_the_outcome(coach):
    actions = [coach.said("solver", candidate=n, chosen=n == 0, response=str(n)) for n in range(2)]
    server = await score(
        coach,
        coach.trajectory(*actions, success=True),
        lambda body: "OUTCOME_CONTRIBUTION: 10" if is_backward(body) else "PROCESS_SCORE: 4",
        backpropagation={"alpha": 0.5, "beta": 0.5},
    )
    assert [action.reward for action in actions] == pytest.approx([0.5 * 0.4 + 0.5 * 1.0, 0.5 * 0.4])
    assert sum(map(is_backward, server.asked)) == 1


async def test_the_team_score_can_be_the_outcome(coach):
    action = coach.said("solver", reward=0.75, breakdown={"team": 0.75})
    await score(
        coach,
        coach.trajectory(action),
        lambda body: "OUTCOME_CONTRIBUTION: 1" if is_backward(body) else "PROCESS_SCORE: 0",
        backpropagation={"outcome": "team", "alpha": 1.0, "beta": 1.0},
    )
    assert action.reward == pytest.approx(0.5)  # v(R) = -1 + 2 * .75


async def test_an_action_to_which_the_coach_attributes_nothing_readable_is_masked_and_counted_once(coach):
    def answer(body):
        if not is_backward(body):
            return "PROCESS_SCORE: 8"
        return "Hm." if coach.field_of(body, "agent_output") == "two" else "OUTCOME_CONTRIBUTION: -4"

    actions = [coach.said("solver", 0, "one"), coach.said("solver", 1, "two"), coach.said("solver", 2, "three")]
    server = await score(coach, coach.trajectory(*actions), answer, attempts=1, backpropagation={})
    assert [action.masked for action in actions] == [False, True, False]
    # nobody carries what the silent step may have earned: Delta is -.4 as it was said
    assert [action.reward for action in actions] == [pytest.approx(0.5 * 0.8 - 0.5 * 0.4), None, pytest.approx(0.2)]
    first = next(b for b in server.asked if is_backward(b) and coach.field_of(b, "agent_output") == "one")
    assert "-6 points are not yet attributed" in coach.prompt_of(first)


async def test_coaches_of_an_ensemble_each_walk_their_own_chain(coach):
    points = {"a": 2, "b": 8}
    action = coach.said("solver")
    await score(
        coach,
        coach.trajectory(action, success=True),
        lambda body: f"OUTCOME_CONTRIBUTION: {points[body['model']]}" if is_backward(body) else "PROCESS_SCORE: 6",
        ensemble=[{"model": "a"}, {"model": "b"}],
        backpropagation={"consistency": "prompt"},
    )
    assert action.breakdown == pytest.approx({"process": 0.5 * 0.6, "outcome": 0.5 * 0.5})


async def test_the_backward_pass_works_with_json_too(coach):
    action = coach.said("solver")
    server = await score(
        coach,
        coach.trajectory(action),
        lambda body: (
            '{"reasoning": "", "outcome_contribution": -10}'
            if is_backward(body)
            else '{"reasoning": "", "process_score": 2}'
        ),
        reply_format="json_schema",
        backpropagation={},
    )
    assert action.reward == pytest.approx(0.5 * 0.2 - 0.5)
    backward = next(body for body in server.asked if is_backward(body))
    properties = backward["response_format"]["json_schema"]["schema"]["properties"]
    assert properties["outcome_contribution"] == {"type": "integer", "minimum": -10, "maximum": 10}
