"""Rules on top of mixing: levels, delayed and delta rewards, sums of assignments. Numbers are worked out by hand."""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.config.suggest import UnknownNameError
from verl_mas.rewards import (
    Assignment,
    DelayedRule,
    DeltaRule,
    Rule,
    RuleRewardManager,
    node_rule,
    trajectory_rule,
    turn_rule,
)
from verl_mas.trajectory import Invocation, Trajectory

values = st.floats(-1e6, 1e6)


def said(role, turn, response="x", candidate=0, chosen=True, reward=0.5, **info):
    row = f"t.0.{role}.{turn}.{candidate}"
    return Invocation(
        row, "t", 0, role, role, turn, candidate, "", response, "", 0, 1,
        chosen=chosen, reward=reward, breakdown={"team": reward}, info=info,
    )  # fmt: skip


def settled(rules, *invocations, success=False, **options):
    trajectory = Trajectory("t", "d", 0, "train", 0, list(invocations), success=success)
    asyncio.run(RuleRewardManager(rules=rules, **options).assign(trajectory))
    return trajectory.invocations


def test_the_three_levels_read_what_their_name_says():
    rules = [
        node_rule("length", lambda one: len(one.response), weight=-0.1),
        turn_rule("together", len, weight=0.25),
        trajectory_rule("solved", lambda whole: float(whole.success), weight=10.0),
    ]
    rows = settled(rules, said("a", 0, "x"), said("b", 0, "yy"), said("a", 1, "zzz"), success=True)
    # by hand: .5 - .1 * length + .25 * (2, 2, 1 invocations in the turn) + 10
    assert [one.reward for one in rows] == pytest.approx([10.9, 10.8, 10.45])
    assert rows[0].breakdown == pytest.approx({"team": 0.5, "length": -0.1, "together": 0.5, "solved": 10.0})


def test_a_turn_rule_does_not_see_what_was_not_committed():
    rows = settled([turn_rule("size", len)], said("a", 0), said("a", 0, candidate=1, chosen=False))
    assert [one.breakdown["size"] for one in rows] == [1, 1]


def test_a_rule_may_be_for_some_roles_alone():
    rows = settled([node_rule("format", lambda one: -1.0, roles=("b",))], said("a", 0), said("b", 0))
    assert [one.breakdown for one in rows] == [{"team": 0.5}, {"team": 0.5, "format": -1.0}]


def test_a_delayed_reward_goes_to_the_invocation_that_caused_it_and_leaves_the_others_as_they_were():
    def blame(trajectory):
        yield Assignment(trajectory.invocations[0].row, -2.0)

    rows = settled([DelayedRule("broke_it", blame, weight=0.5)], said("a", 0), said("b", 0), said("a", 1))
    assert [one.reward for one in rows] == [-0.5, 0.5, 0.5]
    assert rows[0].breakdown == {"team": 0.5, "broke_it": -1.0}
    assert rows[1].breakdown == {"team": 0.5}


def test_several_assignments_to_one_invocation_add_up_and_each_is_in_the_breakdown():
    rule = DelayedRule("test", lambda whole: [Assignment(whole.invocations[0].row, value) for value in (1.0, 2.0, 4.0)])
    (row, other) = settled([rule], said("a", 0), said("b", 0))
    assert row.breakdown == {"team": 0.5, "test": 1.0, "test.2": 2.0, "test.3": 4.0}
    assert row.reward == 7.5
    assert other.reward == 0.5


class TestDelta:
    """UnityMAS-O, workflow D: pass rates .25, .75, .75 of three rounds."""

    RATES = {0: 0.25, 1: 0.75, 2: 0.75}  # noqa: RUF012

    def rewards(self, rule, *rows):
        return [one.breakdown.get(rule.name) for one in settled([rule], *rows)]

    def test_coder_gets_the_first_score_and_then_the_changes(self):
        rule = DeltaRule("progress", lambda whole: self.RATES, roles=("coder",))
        rows = [said("coder", 0), said("reflector", 0), said("coder", 1), said("coder", 2)]
        assert self.rewards(rule, *rows) == [0.25, None, 0.5, 0.0]

    def test_reflector_gets_what_comes_of_it_or_nothing(self):
        rule = DeltaRule("progress", lambda whole: self.RATES, roles=("reflector",), ahead=1)
        assert self.rewards(rule, *(said("reflector", turn) for turn in range(3))) == [0.5, 0.0, 0.0]

    def test_the_first_score_may_be_the_baseline(self):
        """Workflow C: a_0 is the answerer's first answer."""
        rule = DeltaRule("progress", lambda whole: {0: 0.4, 1: 0.2, 2: 1.0}, initial=None)
        assert self.rewards(rule, *(said("search", turn) for turn in range(3))) == pytest.approx([0.0, -0.2, 0.8])

    def test_a_turn_without_a_score_keeps_the_last(self):
        rule = DeltaRule("progress", lambda whole: {0: 0.5, 2: 1.0})
        assert self.rewards(rule, *(said("coder", turn) for turn in range(3))) == [0.5, 0.0, 0.5]

    def test_an_invocation_may_be_left_out(self):
        """Workflow C: a search that says <end> gets 0."""
        rule = DeltaRule("progress", lambda whole: self.RATES, when=lambda one: one.response != "<end>")
        assert self.rewards(rule, said("search", 0), said("search", 1, "<end>")) == [0.25, 0.0]

    def test_no_scores_are_no_change(self):
        for initial in (0.0, None):
            rule = DeltaRule("progress", lambda whole: {}, initial=initial)
            assert self.rewards(rule, said("a", 0)) == [0.0]

    def test_candidates_that_were_not_committed_are_refused(self):
        rule = DeltaRule("progress", lambda whole: self.RATES)
        with pytest.raises(ValueError, match=r"row t\.0\.a\.0\.1 was not committed.*=parallel or joint"):
            settled([rule], said("a", 0), said("a", 0, candidate=1, chosen=False))

    def test_it_looks_one_turn_ahead_at_most(self):
        with pytest.raises(ValueError, match="ahead must be 0 or 1, not 2"):
            DeltaRule("progress", lambda whole: {}, ahead=2)

    @given(st.lists(values, min_size=1, max_size=6))
    def test_the_changes_add_up_to_the_last_score(self, scores):
        rule = DeltaRule("progress", lambda whole: dict(enumerate(scores)))
        rows = settled([rule], *(said("a", turn) for turn in range(len(scores))))
        assert math.fsum(one.breakdown["progress"] for one in rows) == pytest.approx(scores[-1], abs=1e-6)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), values), max_size=8), max_size=4),
    st.lists(values, min_size=4, max_size=4),
    st.lists(st.floats(-10, 10), min_size=4, max_size=4),
)
def test_the_breakdown_adds_up_to_the_reward_exactly_and_holds_every_assignment(given_terms, bases, weights):
    def source(terms):
        return lambda whole: [Assignment(whole.invocations[index].row, value) for index, value in terms]

    rules = [DelayedRule(f"r{n}", source(terms), weights[n]) for n, terms in enumerate(given_terms)]
    rows = settled(rules, *(said("a", turn, reward=base) for turn, base in enumerate(bases)))
    for index, one in enumerate(rows):
        assert sum(one.breakdown.values()) == one.reward  # exactly
        mine = [weights[n] * value for n, terms in enumerate(given_terms) for at, value in terms if at == index]
        assert list(one.breakdown.values()) == [bases[index], *mine]
        assert one.reward == pytest.approx(bases[index] + math.fsum(mine), rel=1e-9, abs=1e-3)


def test_the_configuration_may_change_the_weights_by_name():
    rules = [node_rule("one", lambda one: 1.0), node_rule("two", lambda one: 1.0, weight=2.0)]
    (row,) = settled(rules, said("a", 0), rule_weights={"one": -3.0})
    assert row.breakdown == {"team": 0.5, "one": -3.0, "two": 2.0}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rules": [Rule("a.b", lambda i, t: 0.0)]}, ValueError, "'a.b' needs a name without a dot or a slash"),
        ({"rules": [Rule("", lambda i, t: 0.0)]}, ValueError, "needs a name"),
        ({"rules": [Rule("x", lambda i, t: 0.0, weight=math.inf)]}, ValueError, "weight of rule 'x' must be a finite"),
        ({"rules": ["format"]}, ValueError, "which a task family offers as reward_rules, not 'format'"),
        (
            {"rules": [Rule("format", lambda i, t: 0.0)], "rule_weights": {"fromat": 1.0}},
            UnknownNameError,
            "did you mean 'format'",
        ),
    ],
)
def test_wrong_rules_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        RuleRewardManager(**options)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (Assignment("t.0.b.0.0", 1.0), r"rule 'late' assigns to row t\.0\.b\.0\.0, which is not in the trajectory"),
        (Assignment("t.0.a.0.0", math.nan), r"rule 'late' assigns nan to row t\.0\.a\.0\.0: not finite"),
    ],
)
def test_a_wrong_assignment_names_rule_and_row(assignment, message):
    with pytest.raises(ValueError, match=message):
        settled([DelayedRule("late", lambda whole: [assignment])], said("a", 0))
