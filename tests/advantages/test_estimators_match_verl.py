"""Where verl has the same estimator, both give the same numbers (random data, 1e-6)."""

from types import SimpleNamespace

import numpy as np
import pytest

from verl_mas.advantages import Credits, get_estimator

RESPONSE_LENGTH = 7


@pytest.fixture(scope="module")
def core_algos():
    return pytest.importorskip("verl.trainer.ppo.core_algos")


@pytest.fixture(params=range(5))
def batch(request):
    """Unequal groups of at least two rows, in random order; the reward on the last token."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(request.param)
    group = rng.permutation(np.repeat(np.arange(40), rng.integers(2, 9, size=40)))
    reward = np.round(rng.normal(size=group.size), 1)  # rounded: some groups are constant, some rewards equal
    length = rng.integers(1, RESPONSE_LENGTH + 1, size=group.size)
    mask = np.arange(RESPONSE_LENGTH) < length[:, None]
    token_rewards = np.zeros(mask.shape)
    token_rewards[np.arange(group.size), length - 1] = reward
    return SimpleNamespace(
        reward=reward,
        group=group,
        length=length,
        mask=torch.tensor(mask, dtype=torch.float64),
        token_rewards=torch.tensor(token_rewards),
    )


def assert_same(advantage, batch, verl_advantage):
    expected = advantage[:, None] * batch.mask.numpy()
    np.testing.assert_allclose(verl_advantage.numpy(), expected, rtol=0, atol=1e-6)


def test_at_grpo_is_grpo_over_its_groups(core_algos, batch):
    advantage = get_estimator("at_grpo")(Credits(reward=batch.reward, task=batch.group))

    result, _ = core_algos.compute_grpo_outcome_advantage(batch.token_rewards, batch.mask, batch.group)

    assert_same(advantage, batch, result)


def test_at_grpo_is_vectorized_grpo_where_a_group_is_not_constant(core_algos, batch):
    # verl's vectorized mean is in single precision: in a constant group its rounding takes the place of a deviation
    advantage = get_estimator("at_grpo")(Credits(reward=batch.reward, task=batch.group))
    varied = np.array([np.ptp(batch.reward[batch.group == group]) > 0 for group in batch.group])

    result, _ = core_algos.compute_grpo_vectorized_outcome_advantage(batch.token_rewards, batch.mask, batch.group)

    expected = advantage[:, None] * batch.mask.numpy()
    np.testing.assert_allclose(result.numpy()[varied], expected[varied], rtol=0, atol=1e-6)


@pytest.mark.parametrize("function", ["compute_rloo_outcome_advantage", "compute_rloo_vectorized_outcome_advantage"])
def test_rloo_is_rloo(core_algos, batch, function):
    advantage = get_estimator("rloo")(Credits(reward=batch.reward, task=batch.group))

    result, _ = getattr(core_algos, function)(batch.token_rewards, batch.mask, batch.group)

    assert_same(advantage, batch, result)


def test_reinforce_with_the_mean_is_grpo_without_the_standard_deviation(core_algos, batch):
    advantage = get_estimator("reinforce", baseline="mean")(Credits(reward=batch.reward, task=batch.group))

    result, _ = core_algos.compute_grpo_outcome_advantage(
        batch.token_rewards, batch.mask, batch.group, norm_adv_by_std_in_grpo=False
    )

    assert_same(advantage, batch, result)


def test_reinforce_pp_global_over_actions_is_reinforce_plus_plus_but_for_its_sample_variance(core_algos, batch):
    # verl divides the variance by the number of tokens less one, MAPPA (Eq. 4) by the number of tokens
    credits = Credits(reward=batch.reward, task=batch.group, num_tokens=batch.length)
    advantage = get_estimator("reinforce_pp_global", return_over="action")(credits)

    result, _ = core_algos.compute_reinforce_plus_plus_outcome_advantage(
        batch.token_rewards, batch.mask, config=SimpleNamespace(gamma=1.0)
    )

    tokens = batch.length.sum()
    assert_same(advantage * np.sqrt((tokens - 1) / tokens), batch, result)


def test_remax_is_remax_with_the_best_of_the_group_as_baseline(core_algos, batch):
    advantage = get_estimator("remax")(Credits(reward=batch.reward, task=batch.group))
    torch = pytest.importorskip("torch")
    best = torch.tensor([batch.reward[batch.group == group].max() for group in batch.group])

    result, _ = core_algos.compute_remax_outcome_advantage(batch.token_rewards, best, batch.mask)

    assert_same(advantage, batch, result)
