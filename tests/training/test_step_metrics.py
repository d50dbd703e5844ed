"""From trajectories to credits, advantages and metrics."""

import pytest

from verl_mas.advantages import get_estimator
from verl_mas.training.metrics import assign_advantages, credits_of, numbers, step_metrics, take_off_kl
from verl_mas.trajectory.records import Invocation, Trajectory


def invocation(candidate, reward, role="tool", turn=0, masked=False):
    return Invocation(
        row=f"t.0.{role}.{turn}.{candidate}",
        task="t",
        sample=0,
        role=role,
        policy=role,
        turn=turn,
        candidate=candidate,
        prompt="p",
        response="r",
        prompt_digest="d",
        num_prompt_tokens=3,
        num_response_tokens=2 + candidate,
        reward=reward,
        breakdown={} if reward is None else {"team": reward},
        masked=masked,
    )


def trajectory(*invocations, success=False, error=None):
    return Trajectory("t", "digest", 0, "train", 0, list(invocations), success=success, turns=1, error=error)


def test_a_group_gets_the_advantages_of_the_specification():
    rows = [invocation(index, reward) for index, reward in enumerate([1.0, 0.0, 0.0, 0.0])]
    trained = assign_advantages([trajectory(*rows)], get_estimator("at_grpo", group_size=4))
    assert [one.advantage for one in trained] == pytest.approx([1.499997, -0.499999, -0.499999, -0.499999], abs=1e-6)


def test_roles_and_turns_are_groups_of_their_own():
    rows = [invocation(c, c) for c in (0, 1)] + [invocation(c, 5, "planner") for c in (0, 1)]
    assign_advantages([trajectory(*rows)], get_estimator("at_grpo"))
    assert [one.advantage for one in rows] == pytest.approx([-0.707106, 0.707106, 0, 0], abs=1e-6)


def test_failed_trajectories_and_masked_invocations_are_not_trained_on():
    kept = [invocation(0, 1.0), invocation(1, 0.0)]
    trained = assign_advantages(
        [trajectory(*kept, invocation(2, None, masked=True)), trajectory(error="died")], get_estimator("agent_grpo")
    )
    assert trained == kept


def test_a_step_without_any_finished_trajectory_trains_nothing():
    assert assign_advantages([trajectory(error="died")], get_estimator("at_grpo")) == []


def test_an_invocation_without_a_reward_is_an_error():
    with pytest.raises(ValueError, match=r"1 invocations have no reward, first t.0.tool.0.0"):
        credits_of([invocation(0, None)])


def test_an_advantage_of_zero_is_one_and_none_is_an_error():
    rows = [invocation(0, 1.0), invocation(1, 1.0)]
    rows[0].advantage = 0.0
    assert numbers(rows[:1], "advantage") == [0.0]
    with pytest.raises(ValueError, match=r"1 invocations have no advantage, first t.0.tool.0.1"):
        numbers(rows, "advantage")


def test_metrics_count_failures_as_not_solved_and_average_by_role():
    rows = [invocation(0, 1.0), invocation(1, 0.0)]
    for one, advantage in zip(rows, (0.0, 2.0), strict=True):
        one.advantage = advantage
    metrics = step_metrics([trajectory(*rows, success=True), trajectory(error="died")])
    assert metrics["success_rate"] == 0.5
    assert metrics["trajectories/failed"] == 1.0
    assert metrics["reward/tool"] == 0.5
    assert metrics["reward/tool/team"] == 0.5
    assert metrics["response_length/tool"] == 2.5
    assert metrics["zero_advantages/tool"] == 0.5


def test_an_estimator_over_tokens_leaves_the_advantages_to_the_trainers():
    rows = [invocation(0, 1.0), invocation(1, 0.0)]
    assert assign_advantages([trajectory(*rows)], get_estimator("gae")) == rows
    assert [one.advantage for one in rows] == [None, None]


def test_metrics_hold_what_a_coach_thinks_of_each_role():
    rows = [invocation(0, 0.8), invocation(1, None, masked=True)]
    for one, score in zip(rows, (0.8, None), strict=True):
        one.info["coach"] = {"task_type": "", "score": score}
    metrics = step_metrics([trajectory(*rows)])
    assert metrics["coach/score/tool"] == 0.8
    assert metrics["coach/failure_rate"] == 0.5


def test_what_kl_takes_from_a_reward_is_a_term_of_its_breakdown():
    rows = [invocation(0, 0.3), invocation(1, 0.7)]
    shared = invocation(0, 0.3)  # the same response in another trajectory
    take_off_kl([trajectory(*rows), trajectory(shared)], {rows[0].row: 0.1})
    assert [one.reward for one in (*rows, shared)] == pytest.approx([0.2, 0.7, 0.2])
    assert rows[0].breakdown == {"team": 0.3, "kl": -0.1}
    assert "kl" not in rows[1].breakdown
    assert sum(rows[0].breakdown.values()) == rows[0].reward
