"""reinforce_pp_global and the sums that the shards send. Numbers are worked out by hand from MAPPA, appendix E.2."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.advantages import Credits, Sums, combine, get_estimator, normalize, sums


def advantages(reward, *, options=None, **columns):
    return get_estimator("reinforce_pp_global", **(options or {}))(Credits(reward=reward, **columns)).tolist()


def close(*values):
    return pytest.approx(values, abs=1e-6)


class TestEstimator:
    def test_later_actions_count_towards_earlier_ones(self):
        # returns 2, 1, 1: mu 4/3, var 2/9
        reward, columns = [1, 0, 1], {"turn": [0, 1, 2], "sample": [0, 0, 0]}
        assert advantages(reward, **columns) == close(math.sqrt(2), -math.sqrt(0.5), -math.sqrt(0.5))

    def test_return_over_action_takes_the_own_reward_only(self):
        # the released code on the same rows: mu 2/3, var 2/9
        reward, columns = [1, 0, 1], {"turn": [0, 1, 2], "sample": [0, 0, 0]}
        result = advantages(reward, options={"return_over": "action"}, **columns)
        assert result == close(math.sqrt(0.5), -math.sqrt(2), math.sqrt(0.5))

    def test_a_row_weighs_its_tokens(self):
        # mu 1/4, var (1 * 9/16 + 3 * 1/16) / 4 = 3/16
        assert advantages([1, 0], num_tokens=[1, 3]) == close(math.sqrt(3), -math.sqrt(1 / 3))

    def test_the_rewards_of_another_role_do_not_count(self):
        # returns: solver 1 + 2 = 3, 2; verifier 10. mu 5, var (4 + 9 + 25) / 3
        result = advantages(
            [1, 10, 2], role=["solver", "verifier", "solver"], turn=[0, 1, 2], sample=["s", "s", "s"], task=["t"] * 3
        )
        s = math.sqrt(38 / 3)
        assert result == close(-2 / s, 5 / s, -3 / s)

    def test_the_rewards_of_another_trajectory_do_not_count(self):
        # returns: (x, 0) 3, 2; (x, 1) 4; (y, 0) 7. mu 4, var (1 + 4 + 0 + 9) / 4
        result = advantages([1, 2, 4, 7], task=list("xxxy"), sample=[0, 0, 1, 0], turn=[0, 1, 0, 0])
        s = math.sqrt(3.5)
        assert result == close(-1 / s, -2 / s, 0, 3 / s)

    def test_a_missing_role_leaves_the_others_as_they_are(self):
        # sample 1 has no verifier; solver returns 1, 3; verifier 2. mu 2, var 2/3
        result = advantages([1, 2, 3], role=["solver", "verifier", "solver"], turn=[0, 1, 0], sample=[0, 0, 1])
        s = math.sqrt(2 / 3)
        assert result == close(-1 / s, 0, 1 / s)

    def test_all_policies_share_the_statistics(self):
        # mu 14/3, var (121 + 25 + 256) / 27
        s = math.sqrt(402 / 27)
        assert advantages([1, 3, 10], policy=["a", "a", "b"]) == close(-11 / 3 / s, -5 / 3 / s, 16 / 3 / s)

    def test_normalize_over_policy_keeps_them_apart(self):
        result = advantages([1, 3, 10], policy=["a", "a", "b"], options={"normalize_over": "policy"})
        assert result == close(-1, 1, 0)

    def test_normalize_over_role_keeps_them_apart_whatever_the_policy(self):
        # role v: 10, 20 with 3 and 1 tokens: mu 12.5, var (3 * 6.25 + 56.25) / 4 = 18.75
        result = advantages(
            [1, 10, 3, 20],
            role=list("uvuv"),
            policy=list("aaab"),
            num_tokens=[1, 3, 1, 1],
            options={"normalize_over": "role"},
        )
        assert result == close(-1, -2.5 / math.sqrt(18.75), 1, 7.5 / math.sqrt(18.75))

    @pytest.mark.parametrize("over", ["all", "policy", "role"])
    def test_constant_returns_give_exact_zeros(self, over):
        result = advantages(
            [0.1] * 5, policy=list("aabbc"), num_tokens=[3, 1, 4, 1, 5], options={"normalize_over": over}
        )
        assert result == [0] * 5

    def test_a_single_row_gives_zero(self):
        assert advantages([0.7], num_tokens=[12]) == [0]

    def test_rows_of_one_turn_are_simultaneous(self):
        # "from a turn on" includes the turn: 1 + 2 + 4 for both rows of turn 0
        credits = Credits(reward=[1, 2, 4], turn=[0, 0, 1], sample=[0, 0, 0])
        assert get_estimator("reinforce_pp_global").returns(credits).tolist() == [7, 7, 4]

    def test_a_long_trajectory_is_summed_without_loss(self):
        n = 1000
        credits = Credits(reward=np.full(n, 0.1), turn=np.arange(n)[::-1], sample=np.zeros(n))
        expected = [float((k + 1) * Fraction(0.1)) for k in range(n)]
        assert get_estimator("reinforce_pp_global").returns(credits).tolist() == pytest.approx(expected, rel=1e-14)

    def test_a_policy_without_tokens_gives_zeros(self):
        result = advantages([1, 3, 10], policy=list("aab"), num_tokens=[1, 1, 0], options={"normalize_over": "policy"})
        assert result == close(-1, 1, 0)

    def test_nan_is_an_error(self):
        with pytest.raises(ValueError, match=r"^reward\[1\] is nan"):
            advantages([1, math.nan])


class TestSums:
    def test_by_hand(self):  # mean (1 + 9) / 4, squares 1 * 2.25 + 3 * 0.25
        assert sums([1, 3], [1, 3]) == Sums(4, 2.5, 3)
        assert sums([1, 3], [1, 3]).variance == 0.75

    def test_masked_values_are_ignored_and_normalised_to_zero(self):
        values, mask = [[1.0, 3.0], [math.nan, 5.0]], [[1, 1], [0, 0]]

        total = sums(values, mask)

        assert total == Sums(2, 2, 2)
        assert normalize(values, total, mask).tolist() == [close(-1, 1), [0, 0]]

    def test_a_shard_without_tokens_adds_nothing(self):
        shard = sums([1, 3], [1, 1])
        assert combine([shard, sums([], [])]) == shard
        assert combine([]) == Sums(0, 0, 0)
        assert normalize([1.0, 2.0], combine([])).tolist() == [0, 0]

    def test_a_large_mean_does_not_drown_the_variance(self):  # sum(A**2) - sum(A)**2 / n would give 0 or less here
        shards = [sums([1e9, 1e9 + 1], [1, 1]), sums([1e9 + 2, 1e9 + 3], [1, 1])]
        assert combine(shards).variance == pytest.approx(1.25, rel=1e-12)

    def test_the_order_of_the_shards_changes_no_bit(self):
        shards = [sums([0.1, 0.7], [3, 1]), sums([0.3], [7]), sums([1e6, -2.5, 0.2], [1, 2, 3])]
        assert combine(shards) == combine(shards[::-1]) == combine([shards[1], shards[2], shards[0]])

    @pytest.mark.parametrize(
        ("values", "mask", "message"),
        [
            ([1, 2], [1], "shape"),
            ([1, 2], [1, -1], "mask"),
            ([1, 2], [1, math.nan], "mask"),
            ([1, math.nan], [1, 1], "values"),
            ([1, math.inf], [1, 1], "values"),
        ],
    )
    def test_wrong_input_is_an_error(self, values, mask, message):
        with pytest.raises(ValueError, match=message):
            sums(values, mask)
        if message == "shape":
            with pytest.raises(ValueError, match=message):
                normalize(values, Sums(1, 0, 0), mask)

    @given(
        rows=st.lists(
            st.tuples(
                st.floats(-5, 5, allow_subnormal=False),  # return
                st.integers(0, 40),  # tokens
                st.integers(0, 2),  # policy
                st.integers(0, 3),  # shard of its policy
            ),
            min_size=1,
            max_size=60,
        ),
        num_shards=st.sampled_from([1, 2, 4]),
    )
    def test_any_sharding_of_the_policies_gives_the_single_process_result(self, rows, num_shards):
        reward, tokens, policy, shard = (np.array(column) for column in zip(*rows, strict=True))
        credits = Credits(reward=reward, num_tokens=tokens, policy=policy)
        single = get_estimator("reinforce_pp_global", return_over="action")(credits)

        placed = policy * num_shards + shard % num_shards
        shards = [placed == place for place in range(3 * num_shards)]
        total = combine(sums(reward[place], tokens[place]) for place in shards)
        sharded = np.empty(len(rows))
        for place in shards:
            sharded[place] = normalize(reward[place], total)

        np.testing.assert_allclose(sharded, single, rtol=0, atol=1e-10)

    @given(
        rows=st.lists(st.tuples(st.floats(-5, 5), st.integers(1, 40)), min_size=1, max_size=30),
    )
    def test_mean_and_variance_are_those_of_exact_arithmetic(self, rows):
        weight = sum(m for _, m in rows)
        mean = sum(Fraction(a) * m for a, m in rows) / weight
        variance = sum((Fraction(a) - mean) ** 2 * m for a, m in rows) / weight

        half = len(rows) // 2
        total = combine(sums(*zip(*part, strict=True)) for part in (rows[:half], rows[half:]) if part)

        assert total.weight == weight
        assert total.mean == pytest.approx(float(mean), rel=1e-12, abs=1e-12)
        assert total.variance == pytest.approx(float(variance), rel=1e-12, abs=1e-12)

    def test_tokens_with_their_own_rewards_agree_with_rows_when_these_are_equal(self):
        # per token as in training: rows of 2 and 3 tokens, padded to 3
        values, mask = np.array([[1.0, 1.0, 9.0], [4.0, 4.0, 4.0]]), np.array([[1, 1, 0], [1, 1, 1]])
        by_row = advantages([1, 4], num_tokens=[2, 3])

        by_token = normalize(values, sums(values, mask), mask)

        assert by_token.tolist() == [close(by_row[0], by_row[0], 0), close(*[by_row[1]] * 3)]
