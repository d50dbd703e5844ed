"""Credit over tokens on the real stack: critics, KL in the reward and rollout correction, for two policies at once."""

import json
import math

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

PARALLEL = (
    "sampling.scheme=parallel",
    "sampling.n=2",
    "steps=2",
    "validation.before=false",
    "validation.after=false",
    "checkpoint.every=0",
)


def test_gae_trains_a_critic_beside_every_policy(run):
    result = run(
        "algorithm.adv_estimator=gae",
        "algorithm.options.whiten_over=role",
        "policies.planner.actor_rollout_ref.actor={use_kl_loss: true, kl_loss_coef: 0.01, clip_ratio: 0.1}",
        *PARALLEL,
    )
    assert result.status == 0, result.said()
    for record in result.records():
        for policy in ("tool", "planner"):
            assert record[f"{policy}/critic/grad_norm"] > 0
            assert record[f"{policy}/actor/grad_norm"] > 0
            assert math.isfinite(record[f"{policy}/critic/vf_loss"])
        assert record["planner/actor/kl_coef"] == pytest.approx(0.01)  # each policy has its own losses
        assert "tool/actor/kl_loss" not in record
    losses = [record["tool/critic/vf_loss"] for record in result.records()]
    assert losses[0] != losses[1]
    advantages = [one["advantage"] for group in result.trajectories(1) for one in group["invocations"]]
    assert len(set(advantages)) > 1
    assert (result.directory / "checkpoints" / "step_000002" / "tool" / "critic").is_dir()


def test_kl_in_the_reward_is_in_the_breakdown_and_normalised_over_both_policies(run):
    result = run(
        "algorithm.adv_estimator=reinforce_pp_global",
        "algorithm.use_kl_in_reward=true",
        "algorithm.kl_ctrl.kl_coef=0.01",
        "policies.planner.algorithm.kl_ctrl={type: adaptive, horizon: 100, target_kl: 0.5}",
        "algorithm.rollout_correction.rollout_is=token",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "actor_rollout_ref.actor.entropy_coeff=0.001",
        *PARALLEL,
    )
    assert result.status == 0, result.said()
    first, second = result.records()
    for policy in ("tool", "planner"):
        assert first[f"{policy}/actor/reward_kl_penalty"] == pytest.approx(0, abs=1e-6)  # the reference is the start
        assert abs(second[f"{policy}/actor/reward_kl_penalty"]) > 1e-6
        assert second[f"{policy}/rollout_corr/rollout_is_mean"] == pytest.approx(1, abs=1e-3)
    assert second["tool/actor/reward_kl_penalty_coeff"] == 0.01
    assert second["planner/actor/reward_kl_penalty_coeff"] < 0.01  # far below its target
    saved = json.loads((result.directory / "checkpoints" / "step_000002" / "planner" / "kl_control.json").read_text())
    assert saved["value"] < second["planner/actor/reward_kl_penalty_coeff"]
    rows = [one for group in result.trajectories(2) for one in group["invocations"]]
    for one in rows:
        assert sum(one["breakdown"].values()) == pytest.approx(one["reward"], abs=1e-9)
    assert any("kl" in one["breakdown"] for one in rows)
    weights = sum(one["num_response_tokens"] for one in rows)
    mean = sum(one["advantage"] * one["num_response_tokens"] for one in rows) / weights
    assert mean == pytest.approx(0, abs=1e-4)  # over all tokens of both policies together
    by_policy = {one["policy"]: [two for two in rows if two["policy"] == one["policy"]] for one in rows}
    for members in by_policy.values():
        tokens = sum(one["num_response_tokens"] for one in members)
        assert abs(sum(one["advantage"] * one["num_response_tokens"] for one in members) / tokens) > 1e-3
