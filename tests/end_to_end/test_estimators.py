"""Every estimator over invocations trains two policies on the real stack, with its own numbers.

at_grpo does so in test_main_job.py, reinforce_pp_global and gae in test_token_level_runs.py. Those that work with a
tree take a step each of one run, through an estimator that another package provides.
"""

import numpy as np
import pytest

from verl_mas.advantages import Credits, get_estimator

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

IN_A_TREE = ("agent_grpo", "rloo", "remax", "reinforce")
PLUGIN = f"""
from collections import deque
from dataclasses import dataclass

from verl_mas import hookimpl
from verl_mas.advantages import get_estimator
from verl_mas.advantages.base import Estimator

LEFT = deque({IN_A_TREE})


@dataclass(frozen=True, kw_only=True)
class OneEachStep(Estimator):
    name = "one_each_step"

    def refusals(self):
        return {{}}

    def estimate(self, credits):
        return get_estimator(LEFT.popleft()).estimate(credits)


@hookimpl
def verl_mas_advantage_estimators():
    return {{"one_each_step": OneEachStep}}
"""
NO_MORE = ("validation.before=false", "validation.after=false", "checkpoint.every=0")


def check_step(result, step, estimator):
    """Both policies were updated in the step, and the advantages are those of the estimator."""
    record = result.records()[step - 1]
    rows = [one for trajectory in result.trajectories(step) for one in trajectory["invocations"]]
    columns = {name: [one[name] for one in rows] for name in ("reward", "task", "role", "turn", "sample")}
    advantages = np.array([one["advantage"] for one in rows])
    np.testing.assert_allclose(advantages, get_estimator(estimator)(Credits(**columns)), atol=1e-6)
    policies = {one["policy"] for one in rows}
    assert len(policies) == 2
    for policy in policies:
        assert np.any(advantages[[one["policy"] == policy for one in rows]] != 0)
        assert record[f"{policy}/actor/grad_norm"] > 0


def test_each_that_works_with_a_tree(run, install):
    with install("one-each-step", PLUGIN):
        result = run(
            "algorithm.adv_estimator=one_each_step",
            f"steps={len(IN_A_TREE)}",
            "tasks_per_step=6",
            "actor_rollout_ref.actor.optim.lr=1e-5",  # the later steps shall find as much to learn as the first
            *NO_MORE,
        )
    assert result.status == 0, result.said()
    for step, name in enumerate(IN_A_TREE, start=1):
        check_step(result, step, name)


def test_magrpo_with_joint_actions_of_two_writers(run):
    result = run(
        "recipe=writers", "environment.options.goal=guess", "algorithm.adv_estimator=magrpo", "steps=1", *NO_MORE
    )
    assert result.status == 0, result.said()
    check_step(result, 1, "magrpo")
