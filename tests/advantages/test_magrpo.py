"""magrpo. Numbers are the specification's where it says so, else worked out by hand from MAGRPO, Alg. 1 and Eq. 1."""

import math

import pytest

from verl_mas.advantages import Credits, get_estimator


def advantages(reward, *, options=None, **columns):
    return get_estimator("magrpo", **(options or {}))(Credits(reward=reward, **columns)).tolist()


def close(*values):
    return pytest.approx(values, abs=3e-6)


NONE = {"normalize": "none"}


class TestLinearAligned:
    def test_std(self):  # the specification's numbers
        assert advantages([1, 2, 3, 6]) == pytest.approx([-1.069, -0.5345, 0, 1.6036], abs=5e-5)

    def test_none(self):  # the specification's numbers
        assert advantages([1, 2, 3, 6], options=NONE) == [-2, -1, 0, 3]

    def test_a_constant_group_gives_exact_zeros(self):  # the specification's numbers
        assert advantages([5, 5, 5, 5]) == [0, 0, 0, 0]
        assert advantages([0.1] * 3, options=NONE) == [0, 0, 0]

    def test_every_role_gets_the_advantage_of_the_joint_action(self):
        # joint rewards 1, 2, 3, 6 split among two roles
        result = advantages(
            [1, 0, 0, 2, 4, -1, 3, 3], role=["helper", "main"] * 4, sample=[0, 0, 1, 1, 2, 2, 3, 3], options=NONE
        )
        assert result == [-2, -2, -1, -1, 0, 0, 3, 3]

    def test_the_return_runs_to_the_last_turn(self):
        # R_0 = 1 + 3, 2 + 0; R_1 = 3, 0
        columns = {"turn": [0, 0, 1, 1], "sample": [0, 1, 0, 1]}
        assert advantages([1, 2, 3, 0], options=NONE, **columns) == [1, -1, 1.5, -1.5]
        assert advantages([1, 2, 3, 0], **columns) == close(1, -1, 1, -1)

    def test_samples_may_end_at_different_turns(self):
        # R_0 = 4, 2, 6: population standard deviation sqrt(8 / 3); turn 1 has only sample 0
        result = advantages([1, 2, 6, 3], turn=[0, 0, 0, 1], sample=[0, 1, 2, 0])
        assert result == close(0, -math.sqrt(1.5), math.sqrt(1.5), 0)

    def test_tasks_are_apart_and_a_group_of_one_gives_zero(self):
        result = advantages([1, 3, 9], task=["a", "a", "b"], sample=[0, 1, 0], options=NONE)
        assert result == [-1, 1, 0]

    def test_a_joint_action_counts_once_however_many_roles_it_has(self):
        # joint rewards 1 + 1 and 5: mean 3.5, not the mean over rows; the helper of sample 1 is missing
        result = advantages([1, 1, 5], role=["helper", "main", "main"], sample=[0, 0, 1], options=NONE)
        assert result == [-1.5, -1.5, 1.5]

    def test_a_shared_joint_reward_counts_once(self):
        columns = {"role": ["helper", "main"] * 2, "sample": [0, 0, 1, 1]}
        shared = NONE | {"joint_reward": "shared"}

        assert advantages([1, 1, 3, 3], options=shared, **columns) == [-1, -1, 1, 1]
        assert advantages([1, 1, 3, 3], options=NONE, **columns) == [-2, -2, 2, 2]
        assert advantages([1, 1, 3, 3], **columns) == close(-1, -1, 1, 1)

    def test_a_shared_joint_reward_that_differs_between_roles_is_an_error(self):
        with pytest.raises(ValueError, match=r"the rows of one joint action must agree \(task 0, sample 1, turn 0\)"):
            advantages([1, 1, 3, 4], role=list("abab"), sample=[0, 0, 1, 1], options={"joint_reward": "shared"})

    def test_nan_is_an_error(self):
        with pytest.raises(ValueError, match=r"^reward\[1\] is nan"):
            advantages([1, math.nan])


class TestCross:
    # Two responses of each role; joint rewards r(0,0) = 1, r(0,1) = 2, r(1,0) = 3, r(1,1) = 6.
    # Mean over the joint actions containing it: a 1.5, 4.5; b 2, 4.
    PRODUCT = {  # noqa: RUF012
        "reward": [1, 1, 2, 2, 3, 3, 6, 6],
        "role": ["a", "b"] * 4,
        "sample": [0, 0, 1, 1, 2, 2, 3, 3],
        "candidate": [0, 0, 0, 1, 1, 0, 1, 1],
    }
    OPTIONS = {"joint": "cross", "joint_reward": "shared"}  # noqa: RUF012

    def test_a_response_gets_the_mean_over_the_joint_actions_containing_it(self):
        result = advantages(options=self.OPTIONS | NONE, **self.PRODUCT)
        assert result == [-1.5, -1, -1.5, 1, 1.5, -1, 1.5, 1]

    def test_the_sum_is_an_option(self):
        result = advantages(options=self.OPTIONS | NONE | {"cross_return": "sum"}, **self.PRODUCT)
        assert result == [-3, -2, -3, 2, 3, -2, 3, 2]

    @pytest.mark.parametrize("cross_return", ["mean", "sum"])
    def test_std_is_over_the_responses_of_the_role(self, cross_return):
        result = advantages(options=self.OPTIONS | {"cross_return": cross_return}, **self.PRODUCT)
        assert result == close(-1, -1, -1, 1, 1, -1, 1, 1)

    def test_unequal_numbers_of_responses(self):
        # a has 1 response, b has 3 with joint rewards 1, 2, 6
        result = advantages(
            [1, 1, 2, 2, 6, 6],
            role=["a", "b"] * 3,
            sample=[0, 0, 1, 1, 2, 2],
            candidate=["x", "u", "x", "v", "x", "w"],
            options=self.OPTIONS | NONE,
        )
        assert result == [0, -2, 0, -1, 0, 3]

    def test_candidates_of_different_turns_and_tasks_are_apart(self):
        # later rewards of a joint action reach its responses: R_0 = 1 + 4, 2 + 0
        result = advantages(
            [1, 2, 4, 0, 7],
            task=list("xxxxy"),
            turn=[0, 0, 1, 1, 0],
            sample=[0, 1, 0, 1, 0],
            candidate=[0, 1, 0, 1, 0],
            options={"joint": "cross", "normalize": "none"},
        )
        assert result == [1.5, -1.5, 2, -2, 0]

    def test_without_candidates_it_is_an_error(self):
        with pytest.raises(ValueError, match=r"^candidate: magrpo with joint: cross needs this column"):
            advantages([1, 2], options={"joint": "cross"})

    def test_two_responses_of_a_role_in_one_joint_action_are_an_error(self):
        with pytest.raises(ValueError, match=r"^candidate: .* \(task 0, sample 0, turn 0, role 0\)"):
            advantages([1, 2], sample=[0, 0], candidate=[0, 1], options={"joint": "cross"})


class TestTree:
    # Joint actions 0 and 1 of turn 0 earn 1 and 0. The children of 0 (samples 0, 1) earn 1, 3; those of 1 (2, 3) 4, 8.
    # R = 1 + 2 and 0 + 6.
    TREE = {  # noqa: RUF012
        "reward": [1, 0, 1, 3, 4, 8],
        "turn": [0, 0, 1, 1, 1, 1],
        "sample": [0, 1, 0, 1, 2, 3],
        "parent": [-1, -1, 0, 0, 1, 1],
    }
    OPTIONS = {"branching": "tree", "normalize": "none"}  # noqa: RUF012

    def test_the_return_is_the_mean_over_the_children(self):
        assert advantages(options=self.OPTIONS, **self.TREE) == [-1.5, 1.5, -1, 1, -2, 2]

    def test_gamma(self):  # R = 1 + 0.5 * 2 and 0 + 0.5 * 6
        result = advantages(options=self.OPTIONS | {"gamma": 0.5}, **self.TREE)
        assert result == [-0.5, 0.5, -1, 1, -2, 2]

    def test_std_is_over_siblings(self):
        result = advantages(options={"branching": "tree"}, **self.TREE)
        assert result == close(-1, 1, -1, 1, -1, 1)

    def test_a_joint_action_without_children_keeps_its_own_reward(self):  # sample 1 stopped: R = 3 and 0
        result = advantages(
            [1, 0, 1, 3], turn=[0, 0, 1, 1], sample=[0, 1, 0, 1], parent=[-1, -1, 0, 0], options=self.OPTIONS
        )
        assert result == [1.5, -1.5, -1, 1]

    def test_tasks_and_three_turns(self):
        # task x is a chain 1, 2, 4; task y two roots 5, 7
        result = get_estimator("magrpo", **self.OPTIONS)(
            Credits(
                reward=[4, 5, 1, 7, 2],
                task=list("xyxyx"),
                turn=[2, 0, 0, 0, 1],
                sample=[0, 0, 0, 1, 0],
                parent=[0, -1, -1, -1, 0],
            )
        )
        assert result.tolist() == [0, -1, 0, 1, 0]

    def test_one_turn_needs_no_parents(self):
        assert advantages([1, 2, 3, 6], options=self.OPTIONS) == [-2, -1, 0, 3]

    def test_several_turns_need_parents(self):
        columns = {name: column for name, column in self.TREE.items() if name != "parent"}
        with pytest.raises(ValueError, match=r"^parent: .* needs this column"):
            advantages(options=self.OPTIONS, **columns)

    def test_a_parent_that_does_not_exist_is_an_error(self):
        with pytest.raises(
            ValueError, match=r"^parent\[5\]: no joint action 7 one turn earlier \(task 0, sample 3, turn 1\)"
        ):
            advantages(options=self.OPTIONS, **(self.TREE | {"parent": [-1, -1, 0, 0, 1, 7]}))

    def test_roles_that_disagree_about_the_parent_are_an_error(self):
        with pytest.raises(ValueError, match=r"^parent: the rows of one joint action must agree"):
            advantages(
                [1, 1, 1, 1],
                role=list("aaab"),
                turn=[0, 0, 1, 1],
                sample=[0, 1, 0, 0],
                parent=[-1, -1, 0, 1],
                options=self.OPTIONS,
            )

    def test_cross_compares_the_responses_below_one_parent(self):
        # below each of two roots 2 joint actions, each of one response: values 1, 3 and 4, 8
        result = advantages(options=self.OPTIONS | {"joint": "cross"}, candidate=[0, 1, 0, 1, 0, 1], **self.TREE)
        assert result == [-1.5, 1.5, -1, 1, -2, 2]
