"""Every estimator over invocations takes a step of two policies on the real stack.

at_grpo does so in test_main_job.py, reinforce_pp_global and gae in test_token_level_runs.py.
"""

import numpy as np
import pytest

from verl_mas.advantages import Credits, get_estimator

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ONE_STEP = ("steps=1", "validation.before=false", "validation.after=false", "checkpoint.every=0")
PARALLEL = ("sampling.scheme=parallel", "sampling.n=4")

CASES = {
    "agent_grpo": (),
    "rloo": (),
    "remax": PARALLEL,
    "reinforce": PARALLEL,
    "magrpo": ("recipe=writers", "environment.options.goal=guess"),  # two agents that act at the same time
}


@pytest.mark.parametrize("name", CASES)
def test_the_step_trains_both_policies_on_the_estimators_numbers(name, run):
    result = run(f"algorithm.adv_estimator={name}", *CASES[name], *ONE_STEP)
    assert result.status == 0, f"{result.output}\n{(result.directory / 'run.log').read_text()[-4000:]}"
    (record,) = result.records()
    trajectories = result.trajectories(1)
    rows = [one for trajectory in trajectories for one in trajectory["invocations"]]
    credits = Credits(
        reward=[one["reward"] for one in rows],
        task=[one["task"] for one in rows],
        role=[one["role"] for one in rows],
        turn=[one["turn"] for one in rows],
        sample=[one["sample"] for one in rows],
    )
    advantages = np.array([one["advantage"] for one in rows])
    np.testing.assert_allclose(advantages, get_estimator(name)(credits), atol=1e-6)
    for policy in {one["policy"] for one in rows}:
        own = advantages[[one["policy"] == policy for one in rows]]
        assert np.any(own != 0)
        assert record[f"{policy}/actor/grad_norm"] > 0
    assert len({one["policy"] for one in rows}) == 2
