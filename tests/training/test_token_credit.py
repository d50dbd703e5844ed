"""Advantages of tokens: GAE through verl, KL in the reward, and REINFORCE++ from the sums of each policy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.utils.torch_functional import masked_whiten

from verl_mas.advantages import get_estimator
from verl_mas.training.metrics import assign_advantages, take_off_kl
from verl_mas.training.token_credit import TokenRows, token_advantages
from verl_mas.trajectory.records import Invocation, Trajectory


def invocation(role: str, turn: int, reward: float, tokens: int, task: str = "t", sample: int = 0) -> Invocation:
    return Invocation(
        row=f"{task}.{sample}.{role}.{turn}.0",
        task=task,
        sample=sample,
        role=role,
        policy=role,
        turn=turn,
        candidate=0,
        prompt="",
        response="",
        prompt_digest=f"{task}{sample}{role}{turn}",
        num_prompt_tokens=1,
        num_response_tokens=tokens,
        reward=reward,
        breakdown={"team": reward},
    )


def shard(invocations, kl=None, values=None, gamma=1.0, lam=1.0) -> TokenRows:
    """Rows with the reward on the last token, minus `kl` per token."""
    longest = max(one.num_response_tokens for one in invocations)
    rewards, mask = torch.zeros(len(invocations), longest), torch.zeros(len(invocations), longest)
    for row, one in enumerate(invocations):
        rewards[row, one.num_response_tokens - 1] = one.reward
        mask[row, : one.num_response_tokens] = 1
    penalty = torch.zeros(len(invocations))
    if kl is not None:
        rewards, penalty = rewards - kl * mask, (kl * mask).sum(1)
    return TokenRows(invocations, rewards, penalty, mask, values, gamma, lam)


def never(penalties):
    """For estimators that read their rewards from the tokens."""


def reference(shards, normalize_over="all"):
    """REINFORCE++ with one Python loop per token, written from the paper (appendix E), double precision."""
    tokens = []  # (policy, row, position, return, group)
    for policy, rows in shards.items():
        for row, one in enumerate(rows.invocations):
            for position in range(one.num_response_tokens):
                later = sum(
                    float(rows.rewards[other, p])
                    for other, two in enumerate(rows.invocations)
                    for p in range(two.num_response_tokens)
                    if (two.task, two.sample, two.role) == (one.task, one.sample, one.role)
                    and (two.turn > one.turn or (other == row and p >= position))
                )
                group = {"all": "", "policy": policy, "role": one.role}[normalize_over]
                tokens.append((policy, row, position, later, group))
    result = {policy: np.zeros(rows.rewards.shape) for policy, rows in shards.items()}
    for group in {token[4] for token in tokens}:
        members = [token for token in tokens if token[4] == group]
        returns = np.array([token[3] for token in members])
        scaled = (returns - returns.mean()) / np.sqrt(returns.var() + 1e-8)
        for (policy, row, position, *_), value in zip(members, scaled, strict=True):
            result[policy][row, position] = value
    return result


def two_policies(rng, rows=5):
    """Several turns of two roles in several trajectories, of unequal number and length."""
    solver = [
        invocation("solver", turn, rng.random(), rng.integers(1, 5), sample=sample)
        for sample in range(rows)
        for turn in range(1 + sample % 3)
    ]
    critic = [invocation("critic", 0, rng.random(), rng.integers(1, 4), sample=sample) for sample in range(rows - 2)]
    return solver, critic


@pytest.mark.parametrize("normalize_over", ["all", "policy", "role"])
def test_reinforce_pp_with_kl_is_the_papers_sum_over_every_token(normalize_over):
    rng = np.random.default_rng(3)
    solver, critic = two_policies(rng)
    kls = [torch.tensor(rng.random((len(rows), max(one.num_response_tokens for one in rows))) * 0.1).float()
           for rows in (solver, critic)]  # fmt: skip
    shards = {"solver": shard(solver, kls[0]), "critic": shard(critic, kls[1])}
    estimator = get_estimator("reinforce_pp_global").with_options(normalize_over=normalize_over)
    result = token_advantages(estimator, shards, never)
    expected = reference(shards, normalize_over)
    for policy in shards:
        np.testing.assert_allclose(result[policy].advantages.numpy(), expected[policy], atol=1e-5)


def test_without_kl_token_advantages_are_those_of_the_invocations():
    solver, critic = two_policies(np.random.default_rng(4))
    estimator = get_estimator("reinforce_pp_global")
    trajectory = Trajectory(task="t", task_digest="", sample=0, split="train", step=0, invocations=[*solver, *critic])
    assign_advantages([trajectory], estimator)
    expected = {one.row: one.advantage for one in trajectory.invocations}
    shards = {"solver": shard(solver), "critic": shard(critic)}
    result = token_advantages(estimator, shards, never)
    for policy, rows in shards.items():
        for row, one in enumerate(rows.invocations):
            assert result[policy].advantages[row, : one.num_response_tokens].tolist() == pytest.approx(
                [expected[one.row]] * one.num_response_tokens, abs=1e-5
            )
            assert one.advantage == pytest.approx(expected[one.row], abs=1e-5)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), shards=st.sampled_from([1, 2, 4]))
def test_reinforce_pp_does_not_depend_on_how_roles_are_spread_over_policies(seed, shards):
    rng = np.random.default_rng(seed)
    rows = [
        invocation(role, turn, rng.random(), int(rng.integers(1, 6)), sample=sample)
        for role in "abcd"
        for sample in range(int(rng.integers(1, 4)))
        for turn in range(int(rng.integers(1, 3)))
    ]
    kl = {one.row: torch.tensor(rng.random(one.num_response_tokens) * 0.1).float() for one in rows}

    def sharded(policy_of):
        groups = {}
        for one in rows:
            groups.setdefault(policy_of(one), []).append(one)
        made = {}
        for policy, members in groups.items():
            longest = max(one.num_response_tokens for one in members)
            padded = torch.stack([torch.nn.functional.pad(kl[one.row], (0, longest - len(kl[one.row])))
                                  for one in members])  # fmt: skip
            made[policy] = shard(members, padded)
        result = token_advantages(get_estimator("reinforce_pp_global"), made, never)
        return {
            one.row: result[policy].advantages[row, : one.num_response_tokens].tolist()
            for policy, part in made.items()
            for row, one in enumerate(part.invocations)
        }

    together = sharded(lambda one: "one")
    apart = sharded(lambda one: str("abcd".index(one.role) % shards))
    for row, values in together.items():
        assert apart[row] == pytest.approx(values, abs=1e-5)


def test_gae_of_a_single_step_is_the_reward_minus_the_value_whitened():
    rows = [invocation("solver", 0, reward, 1, sample=sample) for sample, reward in enumerate((1.0, 0.0, 0.5))]
    values = torch.tensor([[0.2], [0.4], [0.1]])
    result = token_advantages(get_estimator("gae"), {"solver": shard(rows, values=values)}, never)["solver"]
    deltas = torch.tensor([[0.8], [-0.4], [0.4]])
    assert torch.allclose(result.advantages, masked_whiten(deltas, torch.ones(3, 1)))
    assert result.returns.flatten().tolist() == pytest.approx([1.0, 0.0, 0.5])
    assert [one.advantage for one in rows] == pytest.approx(result.advantages.flatten().tolist())


def test_gae_discounts_towards_the_reward_on_the_last_token():
    rows = [invocation("solver", 0, 1.0, 3), invocation("solver", 0, 0.0, 2, sample=1)]
    values = torch.zeros(2, 3)
    result = token_advantages(get_estimator("gae"), {"solver": shard(rows, values=values, gamma=0.5)}, never)["solver"]
    assert result.returns.tolist() == [[0.25, 0.5, 1.0], [0.0, 0.0, 0.0]]


def test_gae_whitens_over_the_policy_or_over_each_role():
    rows = [invocation(role, 0, reward, 1, sample=sample) for role, rewards in (("a", (0.0, 1.0)), ("b", (8.0, 12.0)))
            for sample, reward in enumerate(rewards)]  # fmt: skip
    values = torch.zeros(4, 1)
    by_policy = token_advantages(get_estimator("gae"), {"p": shard(rows, values=values)}, never)["p"].advantages
    by_role = token_advantages(
        get_estimator("gae").with_options(whiten_over="role"), {"p": shard(rows, values=values)}, never
    )["p"].advantages
    assert (by_policy[:2] < 0).all()
    assert (by_policy[2:] > 0).all()
    assert by_role.flatten().tolist() == pytest.approx([-0.70710678, 0.70710678] * 2, abs=1e-5)


def test_gae_without_a_critic_names_the_option():
    with pytest.raises(ValueError, match=r"critic\.enable"):
        token_advantages(get_estimator("gae"), {"p": shard([invocation("p", 0, 1.0, 2)])}, never)


def test_a_group_estimator_compares_rewards_with_kl_taken_off():
    rows = [invocation("solver", 0, reward, 2, sample=sample) for sample, reward in enumerate((1.0, 0.0))]
    trajectories = [
        Trajectory(task="t", task_digest="", sample=one.sample, split="train", step=0, invocations=[one])
        for one in rows
    ]
    estimator = get_estimator("rloo")
    kl = torch.tensor([[0.1, 0.2], [0.0, 0.05]])

    def reassign(penalties):
        take_off_kl(trajectories, penalties)
        assign_advantages(trajectories, estimator)

    result = token_advantages(estimator, {"solver": shard(rows, kl)}, reassign)["solver"]
    assert [one.reward for one in rows] == pytest.approx([0.7, -0.05])
    assert [one.breakdown["kl"] for one in rows] == pytest.approx([-0.3, -0.05])
    assert result.advantages.flatten().tolist() == pytest.approx([0.75, 0.75, -0.75, -0.75])


def test_tokens_that_are_not_trained_on_have_no_advantage_and_no_weight():
    solver, critic = two_policies(np.random.default_rng(5))
    shards = {"solver": shard(solver), "critic": shard(critic)}
    shards["solver"].mask[0] = 0
    result = token_advantages(get_estimator("reinforce_pp_global"), shards, never)
    assert (result["solver"].advantages[0] == 0).all()
    weights = sum(float(rows.mask.sum()) for rows in shards.values())
    total = sum(float(result[policy].advantages.sum()) for policy in shards)
    squares = sum(float((result[policy].advantages ** 2).sum()) for policy in shards)
    assert total / weights == pytest.approx(0.0, abs=1e-5)
    assert squares / weights == pytest.approx(1.0, abs=1e-4)


def test_gae_of_two_tokens_by_hand():
    """delta_1 = 1 - .25 = .75; delta_0 = .25 - .5 = -.25; A_0 = -.25 + .5 * .75 = .125; returns are A + V."""
    rows = [invocation("solver", 0, 1.0, 2), invocation("solver", 0, 0.0, 1, sample=1)]
    values = torch.tensor([[0.5, 0.25], [0.0, 0.0]])
    result = token_advantages(get_estimator("gae"), {"p": shard(rows, values=values, lam=0.5)}, never)["p"]
    assert result.returns.tolist() == [[0.625, 1.0], [0.0, 0.0]]
    raw = torch.tensor([0.125, 0.75, 0.0])
    expected = (raw - raw.mean()) / torch.sqrt(raw.var() + 1e-8)
    assert [*result.advantages[0].tolist(), result.advantages[1, 0].item()] == pytest.approx(expected.tolist())


def test_gae_of_equal_rewards_and_values_is_zero():
    rows = [invocation("solver", 0, 0.5, 1, sample=sample) for sample in range(3)]
    result = token_advantages(get_estimator("gae"), {"p": shard(rows, values=torch.full((3, 1), 0.2))}, never)["p"]
    assert result.advantages.tolist() == [[0.0], [0.0], [0.0]]
    assert result.returns.flatten().tolist() == pytest.approx([0.5] * 3)


def test_gae_whitens_each_policy_by_itself_also_where_one_has_a_single_row():
    many = [invocation("a", 0, reward, 1, sample=sample) for sample, reward in enumerate((0.0, 1.0))]
    single = [invocation("b", 0, 100.0, 2)]
    shards = {"many": shard(many, values=torch.zeros(2, 1)), "single": shard(single, values=torch.zeros(1, 2))}
    result = token_advantages(get_estimator("gae"), shards, never)
    assert result["many"].advantages.flatten().tolist() == pytest.approx([-0.70710678, 0.70710678], abs=1e-5)
    assert result["single"].advantages.tolist() == [[0.0, 0.0]]  # without discount both tokens are worth the same


def test_gae_refuses_a_reward_that_is_not_a_number():
    row = invocation("solver", 0, float("nan"), 1)
    trajectory = Trajectory(task="t", task_digest="", sample=0, split="train", step=0, invocations=[row])
    with pytest.raises(ValueError, match="reward"):
        assign_advantages([trajectory], get_estimator("gae"))
