"""at_grpo, agent_grpo, rloo, remax and reinforce. Numbers are the specification's where it says so, else by hand."""

import math

import pytest

from verl_mas.advantages import Credits, get_estimator


def advantages(name, reward, *, options=None, **columns):
    return get_estimator(name, **(options or {}))(Credits(reward=reward, **columns)).tolist()


def close(*values):
    return pytest.approx(values, abs=1e-6)


# Two tasks, two roles; the rows of the groups are interleaved. The planner of task b never spoke.
#   (a, tool) 3, 1   (a, planner) 2, 4, 6   (b, tool) 7
MIXED = {
    "reward": [3, 2, 7, 4, 1, 6],
    "task": ["a", "a", "b", "a", "a", "a"],
    "role": ["tool", "planner", "tool", "planner", "tool", "planner"],
}
# One role speaks in both turns, the other only in turn 0 of sample 0.
MISSING = {
    "reward": [1, 3, 9, 2, 6],
    "role": ["planner", "planner", "tool", "planner", "planner"],
    "turn": [0, 0, 0, 1, 1],
    "sample": [0, 1, 0, 0, 1],
}


class TestAtGrpo:
    def test_one_success_of_four(self):  # the specification's numbers
        assert advantages("at_grpo", [1, 0, 0, 0]) == close(1.499997, -0.499999, -0.499999, -0.499999)

    def test_two_members(self):  # the specification's numbers
        assert advantages("at_grpo", [3, 1]) == close(0.707106, -0.707106)

    def test_unequal_groups_and_a_single_member(self):  # standard deviations sqrt(2), 2 and none
        assert advantages("at_grpo", **MIXED) == close(0.707106, -0.9999995, 0, 0, -0.707106, 0.9999995)

    def test_a_constant_group_gives_exact_zeros(self):  # 0.1 + 0.1 + 0.1 is not 0.3 in floating point
        assert advantages("at_grpo", [0.1] * 3) == [0, 0, 0]

    def test_a_single_member_gives_an_exact_zero(self):
        assert advantages("at_grpo", [5]) == [0]

    def test_turns_are_apart_and_a_role_may_be_missing(self):  # deviations 1 and 2, divided by sqrt(2) and 2 sqrt(2)
        assert advantages("at_grpo", **MISSING) == close(-0.707106, 0.707106, 0, -0.707106, 0.707106)

    def test_an_offset_costs_no_digits(self):  # deviation 0.5, standard deviation sqrt(0.5)
        expected = 0.5 / (math.sqrt(0.5) + 1e-6)
        assert advantages("at_grpo", [1e9 + 1, 1e9]) == pytest.approx([expected, -expected], rel=1e-12)

    def test_nan_is_an_error(self):
        with pytest.raises(ValueError, match=r"^reward\[1\] is nan"):
            advantages("at_grpo", [1, math.nan])

    def test_group_size_is_asserted(self):
        options = {"group_size": 2}

        assert advantages("at_grpo", [3, 1], options=options) == close(0.707106, -0.707106)
        with pytest.raises(
            ValueError, match=r"the group of task 'a', role 'planner', turn 0 has 3 members, not group_size=2 \(2 of 3"
        ):
            advantages("at_grpo", options=options, **MIXED)

    def test_prompts_of_a_group_are_asserted_to_be_identical(self):
        columns = {"reward": [3, 1, 5], "task": ["a", "a", "b"], "prompt": ["p", "q", "p"]}

        with pytest.raises(ValueError, match=r"the group of task 'a', role 0, turn 0 has more than one prompt"):
            advantages("at_grpo", **columns)
        assert advantages("at_grpo", **(columns | {"prompt": ["p", "p", "q"]})) == close(0.707106, -0.707106, 0)
        assert advantages("at_grpo", options={"same_prompt": False}, **columns) == close(0.707106, -0.707106, 0)

    def test_groups_by_prompt_are_of_one_member_where_parallel_samples_have_diverged(self):  # AT-GRPO, figure 3 (a)
        columns = {"turn": [0, 0, 1, 1], "sample": [0, 1, 0, 1], "prompt": ["p", "p", "q", "r"]}
        options = {"group_by": ["task", "role", "turn", "prompt"]}

        assert advantages("at_grpo", [3, 1, 3, 1], options=options, **columns) == close(0.707106, -0.707106, 0, 0)


class TestAgentGrpo:
    def test_turns_are_one_group(self):
        expected = close(1.499997, -0.499999, -0.499999, -0.499999)
        assert advantages("agent_grpo", [1, 0, 0, 0], turn=[0, 1, 0, 1]) == expected

    def test_every_invocation_counts(self):  # sample 0 spoke three times: mean 0.75, standard deviation 0.5
        sample, turn = [0, 0, 0, 1], [0, 1, 2, 0]
        expected = close(0.499999, 0.499999, 0.499999, -1.499997)
        assert advantages("agent_grpo", [1, 1, 1, 0], sample=sample, turn=turn) == expected

    def test_unequal_groups_and_a_single_member(self):
        assert advantages("agent_grpo", **MIXED) == close(0.707106, -0.9999995, 0, 0, -0.707106, 0.9999995)

    def test_constant_group(self):
        assert advantages("agent_grpo", [0.1] * 3, turn=[0, 1, 2]) == [0, 0, 0]

    def test_missing_role(self):  # planner 1, 3, 2, 6: mean 3, standard deviation sqrt(14 / 3)
        s = math.sqrt(14 / 3) + 1e-6
        assert advantages("agent_grpo", **MISSING) == close(-2 / s, 0, 0, -1 / s, 3 / s)

    def test_nan_is_an_error(self):
        with pytest.raises(ValueError, match=r"^reward\[0\] is nan"):
            advantages("agent_grpo", [math.nan, 1])


class TestRloo:
    def test_four_members(self):  # the specification's numbers
        assert advantages("rloo", [1, 2, 3, 6]) == pytest.approx([-2.667, -1.333, 0, 4], abs=5e-4)

    def test_two_members(self):
        assert advantages("rloo", [3, 1]) == [2, -2]

    def test_unequal_groups_and_a_single_member(self):  # (a, planner): 2 - 5, 4 - 4, 6 - 3
        assert advantages("rloo", **MIXED) == close(2, -3, 0, 0, -2, 3)

    def test_constant_group(self):
        assert advantages("rloo", [0.1] * 3) == [0, 0, 0]

    def test_missing_role(self):
        assert advantages("rloo", **MISSING) == close(-2, 2, 0, -4, 4)

    def test_other_groups_on_request(self):  # planner 1, 3, 2, 6: 1 - 11/3, 3 - 3, 2 - 10/3, 6 - 2
        options = {"group_by": ["task", "role"]}
        assert advantages("rloo", options=options, **MISSING) == close(-8 / 3, 0, 0, -4 / 3, 4)

    def test_nan_is_an_error(self):
        with pytest.raises(ValueError, match=r"^reward\[0\] is nan"):
            advantages("rloo", [math.nan, 1])


class TestRemax:
    def test_four_members(self):  # the specification's numbers: R_g - max
        assert advantages("remax", [1, 2, 3, 6]) == [-5, -4, -3, 0]

    def test_negative_rewards(self):
        assert advantages("remax", [-3, -1]) == [-2, 0]

    def test_unequal_groups_and_a_single_member(self):
        assert advantages("remax", **MIXED) == [0, -4, 0, -2, -2, 0]

    def test_constant_group(self):
        assert advantages("remax", [0.1] * 3) == [0, 0, 0]

    def test_missing_role(self):
        assert advantages("remax", **MISSING) == [-2, 0, 0, -4, 0]

    def test_nan_is_an_error(self):
        with pytest.raises(ValueError, match=r"^reward\[0\] is nan"):
            advantages("remax", [math.nan, 1])


class TestReinforce:
    def test_the_advantage_is_the_reward(self):
        assert advantages("reinforce", [1, 2, 3, 6]) == [1, 2, 3, 6]

    def test_the_mean_of_the_group_as_baseline(self):
        assert advantages("reinforce", [1, 2, 3, 6], options={"baseline": "mean"}) == [-2, -1, 0, 3]

    def test_unequal_groups_and_a_single_member(self):
        assert advantages("reinforce", options={"baseline": "mean"}, **MIXED) == [1, -2, 0, 0, -1, 2]

    def test_constant_group(self):
        assert advantages("reinforce", [0.1] * 3, options={"baseline": "mean"}) == [0, 0, 0]
        assert advantages("reinforce", [0.1] * 3) == [0.1] * 3

    def test_missing_role(self):
        assert advantages("reinforce", options={"baseline": "mean"}, **MISSING) == [-1, 1, 0, -2, 2]

    def test_the_result_is_no_view_of_the_rewards(self):
        credits = Credits(reward=[1, 2])
        get_estimator("reinforce")(credits)[:] = 0
        assert credits.reward.tolist() == [1, 2]

    def test_nan_is_an_error(self):
        with pytest.raises(ValueError, match=r"^reward\[0\] is nan"):
            advantages("reinforce", [math.nan, 1])
