"""The rule reward manager: AT-GRPO's mixing (Eq. 4 and appendix A.1), its ranges, and rules on top."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.config.suggest import UnknownNameError
from verl_mas.rewards import Component, RewardParts, Rule, RuleRewardManager
from verl_mas.trajectory import Invocation, Trajectory

unit = st.floats(0, 1)


@st.composite
def parts(draw):
    raw = draw(st.dictionaries(st.sampled_from(["format", "valid", "progress"]), st.floats(0.01, 1), max_size=3))
    total = sum(raw.values())
    local = {name: Component(weight / total, draw(unit)) for name, weight in raw.items()}
    return RewardParts(team=draw(unit), local=local, mask=draw(st.sampled_from([0.0, 1.0])))


def manager(**changes):
    return RuleRewardManager(**({"mixing": "sum", "alpha": 1.0} | changes))


# by hand, with team .5 and local .6 * 1 + .4 * .25 = .7: sum .5 + .7; convex .4 * .5 + .6 * .7; without local .4 * .5
EXAMPLE = {"format": Component(0.6, 1.0), "progress": Component(0.4, 0.25)}


@pytest.mark.parametrize(
    ("options", "mask", "value"),
    [
        ({"mixing": "sum"}, 1.0, 1.2),
        ({"mixing": "sum", "alpha": 2.0}, 1.0, 1.7),
        ({"mixing": "sum"}, 0.0, 0.5),
        ({"mixing": "convex", "lam": 0.4}, 1.0, 0.62),
        ({"mixing": "convex", "lam": 0.4}, 0.0, 0.2),
    ],
)
def test_mixing_gives_the_hand_computed_reward(options, mask, value):
    assert manager(**options).score("tool", RewardParts(0.5, EXAMPLE, mask)).value == pytest.approx(value)


@given(parts(), st.floats(0, 10))
def test_under_sum_the_breakdown_adds_up_exactly_to_equation_4(part, alpha):
    reward = manager(alpha=alpha).score("tool", part)
    assert sum(reward.breakdown.values()) == reward.value
    assert reward.value == pytest.approx(alpha * part.team + part.mask * part.local_score)
    assert list(reward.breakdown) == ["team", *(f"local.{name}" for name in part.local)]


@given(parts(), unit)
def test_under_convex_mixing_the_breakdown_adds_up_exactly_and_the_reward_stays_in_the_unit_interval(part, lam):
    reward = manager(mixing="convex", lam=lam).score("tool", part)
    assert sum(reward.breakdown.values()) == reward.value
    assert reward.value == pytest.approx(lam * part.team + (1 - lam) * part.mask * part.local_score)
    assert -1e-9 <= reward.value <= 1 + 1e-9


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mixing": "convx"}, UnknownNameError, "did you mean 'convex'"),
        ({"mixing": "convex"}, ValueError, "needs lam"),
        ({"mixing": "convex", "lam": 1.01}, ValueError, r"lam must be in \[0, 1\]"),
        ({"lam": -0.1}, ValueError, r"lam must be in \[0, 1\]"),
        ({"alpha": -1.0}, ValueError, "alpha must be a finite number >= 0"),
        ({"alpha": float("inf")}, ValueError, "alpha must be a finite number >= 0"),
        ({"rules": [Rule("team", lambda i, t: 0.0)]}, ValueError, "'team' is taken"),
        ({"rules": [Rule("local.format", lambda i, t: 0.0)]}, ValueError, "'local.format' is taken"),
        ({"rules": [Rule("x", lambda i, t: 0.0)] * 2}, ValueError, "'x' is taken"),
    ],
)
def test_wrong_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        manager(**options)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (RewardParts(1.5), "team score of role 'tool'"),
        (RewardParts(float("nan")), "team score of role 'tool'"),
        (RewardParts(0.5, {"format": Component(1.0, -0.5)}), "score of local component 'format' of role 'tool'"),
        (RewardParts(0.5, {"format": Component(2.0, 0.5)}), "weight of local component 'format' of role 'tool'"),
        (RewardParts(0.5, {"format": Component(0.5, 0.5)}), "add up to 0.5, not 1"),
        (RewardParts(0.5, mask=0.5), "mask of role 'tool' must be 0 or 1"),
    ],
)
def test_scores_out_of_range_name_role_and_component(part, message):
    with pytest.raises(ValueError, match=message):
        manager().score("tool", part)


def trajectory():
    def said(role, turn, response):
        row = f"t.0.{role}.{turn}.0"
        return Invocation(row, "t", 0, role, role, turn, 0, "", response, "", 0, 1, reward=0.5, breakdown={"team": 0.5})

    return Trajectory(
        "t", "d", 0, "train", 0, [said("a", 0, "x"), said("b", 0, "yy"), said("a", 1, "zzz")], success=True
    )


def test_without_rules_assigning_keeps_what_scoring_gave():
    given_rewards = trajectory()
    asyncio.run(manager().assign(given_rewards))
    assert given_rewards == trajectory()


def test_rules_add_weighted_terms_at_the_level_of_node_turn_and_trajectory():
    def turn_size(invocation, whole):
        return sum(other.turn == invocation.turn for other in whole.invocations)

    rules = [
        Rule("length", lambda invocation, whole: len(invocation.response), weight=-0.1),
        Rule("company", turn_size),
        Rule("solved", lambda invocation, whole: float(whole.success), weight=10.0),
    ]
    whole = trajectory()
    asyncio.run(manager(rules=rules).assign(whole))
    # by hand: .5 - .1 * length + (2, 2, 1 actions in the turn) + 10
    assert [i.reward for i in whole.invocations] == pytest.approx([12.4, 12.3, 11.2])
    assert all(sum(i.breakdown.values()) == i.reward for i in whole.invocations)
    assert list(whole.invocations[0].breakdown) == ["team", "length", "company", "solved"]


def test_rules_see_the_rewards_from_before_any_rule():
    whole = trajectory()
    total = Rule("total", lambda invocation, all_of_it: sum(i.reward for i in all_of_it.invocations))
    asyncio.run(manager(rules=[total]).assign(whole))
    assert [i.reward for i in whole.invocations] == pytest.approx([2.0, 2.0, 2.0])  # .5 + 3 * .5
