"""The split of uneven rows into mini-batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.training.batches import plan_batch


@given(rows=st.integers(1, 5000), mini_batches=st.integers(1, 16), parallel=st.integers(1, 16))
def test_nothing_is_dropped_and_no_mini_batch_is_padding_alone(rows, mini_batches, parallel):
    plan = plan_batch(rows, mini_batches, parallel)
    assert plan.num_mini_batches * plan.mini_batch_size == rows + plan.padding
    assert plan.mini_batch_size % parallel == 0
    assert 1 <= plan.num_mini_batches <= mini_batches
    assert plan.num_mini_batches == 1 or plan.padding < plan.mini_batch_size
    assert plan.real_rows_per_mini_batch * plan.num_mini_batches == pytest.approx(rows)


def test_even_rows_need_no_padding():
    plan = plan_batch(128, 2, 4)
    assert (plan.padding, plan.num_mini_batches, plan.mini_batch_size) == (0, 2, 64)


def test_uneven_rows_are_padded_to_the_next_multiple():
    plan = plan_batch(61, 1, 4)
    assert (plan.padding, plan.mini_batch_size) == (3, 64)


def test_too_few_rows_make_fewer_mini_batches():
    plan = plan_batch(3, 8, 1)
    assert plan.padding < plan.mini_batch_size


@pytest.mark.parametrize("arguments", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_policy_without_rows_has_no_plan(arguments):
    with pytest.raises(ValueError, match="must be positive"):
        plan_batch(*arguments)
