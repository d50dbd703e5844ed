"""Token rows in verl's fields."""

import pytest
import torch

from verl_mas.routing.rows import TokenRow, credit_fields, fields, tag

ROWS = [TokenRow([5, 6, 7], [8, 9], [-0.5, -0.25], 3), TokenRow([5], [8, 1, 2], [-1.0, -2.0, -3.0], 3)]


def test_inputs_are_prompt_then_response_without_padding():
    batch = fields(ROWS)
    assert [row.tolist() for row in batch["input_ids"].unbind()] == [[5, 6, 7, 8, 9], [5, 8, 1, 2]]
    assert [row.tolist() for row in batch["position_ids"].unbind()] == [[0, 1, 2, 3, 4], [0, 1, 2, 3]]
    assert [row.tolist() for row in batch["response_mask"].unbind()] == [[1, 1], [1, 1, 1]]
    assert [row.tolist() for row in batch["rollout_log_probs"].unbind()] == [[-0.5, -0.25], [-1.0, -2.0, -3.0]]


def test_equal_lengths_stay_jagged():
    batch = fields([ROWS[0], ROWS[0]])
    assert batch["responses"].is_nested


def test_the_reward_lies_on_the_last_token_and_the_advantage_on_all():
    batch = credit_fields([2, 3], [1.0, 0.5], [-0.5, 1.5])
    assert [row.tolist() for row in batch["rm_scores"].unbind()] == [[0.0, 1.0], [0.0, 0.0, 0.5]]
    assert [row.tolist() for row in batch["advantages"].unbind()] == [[-0.5, -0.5], [1.5, 1.5, 1.5]]
    assert torch.equal(batch["returns"].values(), batch["advantages"].values())


def test_unequal_numbers_of_credits_are_refused():
    with pytest.raises(ValueError, match="zip"):
        credit_fields([1, 2], [1.0], [1.0, 2.0])


def test_the_tag_holds_lengths_and_the_step_of_the_weights():
    one = tag(3, 2, 4)
    assert (one["prompt_len"], one["response_len"], one["seq_len"], one["min_global_steps"]) == (3, 2, 5, 4)
