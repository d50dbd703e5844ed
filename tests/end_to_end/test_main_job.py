"""The main job, small: two policies learn Sokoban together, and what the run leaves behind."""

import json
from collections import defaultdict

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def finished(run):
    result = run()
    assert result.status == 0, result.said()
    return result


def test_every_policy_is_updated_from_its_own_rows(finished):
    for record in finished.records():
        assert record["tool/actor/grad_norm"] > 0
        assert record["planner/actor/grad_norm"] > 0
        assert record["tool/actor/grad_norm"] != record["planner/actor/grad_norm"]


def test_what_was_sampled_is_what_is_trained(finished):
    """The actor gives the sampled tokens the probabilities that vLLM reported, before and after a weight update."""
    for record in finished.records():
        for policy in ("tool", "planner"):
            assert record[f"{policy}/training/rollout_probs_diff_max"] < 1e-4


def test_every_group_has_k_candidates_of_one_prompt_and_centred_advantages(finished):
    groups = defaultdict(list)
    for trajectory in finished.trajectories(1):
        for one in trajectory["invocations"]:
            assert sum(one["breakdown"].values()) == one["reward"]
            groups[one["task"], one["role"], one["turn"]].append(one)
    assert {role for _, role, _ in groups} == {"tool", "planner"}
    for group in groups.values():
        assert len(group) == 4
        assert len({one["prompt_digest"] for one in group}) == 1
        assert sum(one["chosen"] for one in group) == 1
        assert sum(one["advantage"] for one in group) == pytest.approx(0, abs=1e-5)
        best = max(one["reward"] for one in group)
        assert [one["reward"] for one in group if one["chosen"]] == [best]


def test_the_run_leaves_a_summary_a_picture_and_a_checkpoint_of_the_whole_team(finished):
    summary = json.loads((finished.directory / "summary.json").read_text())
    assert summary["steps"] == 2
    assert summary["n_validation"] == 4
    assert 0 <= summary["success_rate_before"] <= 1
    assert 0 <= summary["success_rate_after"] <= 1
    assert {"rollout", "learn"} <= summary["phase_seconds"].keys()
    assert (finished.directory / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    manifest = json.loads((finished.directory / "checkpoints" / "step_000002" / "manifest.json").read_text())
    assert manifest == {"step": 2, "seed": 0, "policies": ["tool", "planner"]}


def test_held_out_levels_are_new_levels(finished):
    train = {one["task_digest"] for step in (1, 2) for one in finished.trajectories(step)}
    lines = (finished.directory / "validation" / "step_000000.jsonl").read_text().splitlines()
    held_out = {json.loads(line)["digest"] for line in lines}
    assert len(held_out) == 4
    assert not train & held_out


def test_the_terminal_stays_quiet(finished):
    assert "step 2/2" in finished.output
    assert "WARNING" not in finished.output
    assert len(finished.output.splitlines()) < 30


def test_one_shared_policy_gets_the_rows_of_both_roles(run):
    result = run("roles.planner.policy=tool", "steps=1", "validation.before=false", "validation.after=false")
    assert result.status == 0, result.output
    (record,) = result.records()
    assert record["tool/actor/grad_norm"] > 0
    assert not any(key.startswith("planner/") for key in record)
    policies = {one["policy"] for one in result.trajectories(1)[0]["invocations"]}
    roles = {one["role"] for one in result.trajectories(1)[0]["invocations"]}
    assert (policies, roles) == ({"tool"}, {"tool", "planner"})
