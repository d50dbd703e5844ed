"""What a step tells about learning, by role and policy, and when a run that learns nothing ends."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.advantages import get_estimator
from verl_mas.training.diagnostics import NothingLearned, ZeroAdvantageWatch, role_and_policy_metrics, tool_use
from verl_mas.training.loop import Loop
from verl_mas.training.metrics import step_metrics
from verl_mas.trajectory.records import Invocation, Trajectory


def said(
    candidate=0, reward=1.0, *, role="tool", policy="shared", task="t", sample=0, turn=0, advantage=0.5, masked=False,
    tokens=4, stop="stop", parent=None, row=None, **info,
):  # fmt: skip
    return Invocation(
        row=row or f"{task}.{sample}.{role}.{turn}.{candidate}",
        task=task,
        sample=sample,
        role=role,
        policy=policy,
        turn=turn,
        candidate=candidate,
        prompt="p",
        response="r",
        prompt_digest="d",
        num_prompt_tokens=3,
        num_response_tokens=tokens,
        stop_reason=stop,
        reward=reward,
        breakdown={} if reward is None else {"team": reward},
        advantage=advantage,
        masked=masked,
        info=info,
        parent=parent,
    )


def test_rewards_and_groups_by_role_and_policy():
    # by hand: tool has groups (1, 0) and (2, 2); planner (5, 7, 9)
    rows = [said(0, 1.0), said(1, 0.0), said(0, 2.0, turn=1), said(1, 2.0, turn=1)]
    rows += [said(candidate, reward, role="planner") for candidate, reward in enumerate((5.0, 7.0, 9.0))]
    metrics = role_and_policy_metrics(rows)
    assert metrics["reward/tool"] == 1.25
    assert metrics["reward_std/tool"] == pytest.approx(0.6875**0.5)
    assert metrics["reward/tool/team"] == 1.25
    assert (metrics["groups/tool"], metrics["group_size/tool"], metrics["constant_groups/tool"]) == (2, 2, 0.5)
    assert (metrics["groups/planner"], metrics["group_size/planner"], metrics["constant_groups/planner"]) == (1, 3, 0)
    # one policy serves both: 26 / 7, and 7 responses in 3 groups, roles apart
    assert metrics["reward_by_policy/shared"] == pytest.approx(26 / 7)
    assert metrics["group_size_by_policy/shared"] == pytest.approx(7 / 3)
    assert metrics["constant_groups_by_policy/shared"] == pytest.approx(1 / 3)
    assert not [key for key in metrics if key.startswith("shared/")]  # verl's own metrics of the policy


def test_tasks_and_parents_are_groups_of_their_own():
    tasks = role_and_policy_metrics([said(task="t"), said(task="u")])
    assert (tasks["groups/tool"], tasks["group_size/tool"]) == (2, 1)
    siblings = [said(sample=s, turn=1, parent=s // 2, reward=float(s // 2)) for s in range(4)]
    assert role_and_policy_metrics(siblings)["constant_groups/tool"] == 1.0


def test_lengths_and_the_share_that_ran_into_the_limit():
    metrics = role_and_policy_metrics([said(0, tokens=2), said(1, tokens=8, stop="length")])
    assert metrics["response_length/tool"] == 5.0
    assert metrics["response_clip_ratio/tool"] == 0.5
    assert metrics["response_clip_ratio_by_policy/shared"] == 0.5


def test_zero_advantages_leave_out_rows_that_have_none():
    metrics = role_and_policy_metrics([said(0, advantage=0.0), said(1, advantage=1.0), said(2, advantage=None)])
    assert metrics["zero_advantages/tool"] == 0.5
    assert "zero_advantages/tool" not in role_and_policy_metrics([said(advantage=None)])


def test_masked_responses_are_counted_and_are_in_no_reward():
    metrics = role_and_policy_metrics([said(0, 3.0), said(1, None, masked=True, advantage=None)])
    assert metrics["masked/tool"] == metrics["masked_by_policy/shared"] == 1.0
    assert metrics["reward/tool"] == 3.0
    assert metrics["group_size/tool"] == 1.0
    alone = role_and_policy_metrics([said(0, None, masked=True, advantage=None)])
    assert alone["masked/tool"] == 1.0
    assert not [key for key in alone if key.startswith(("reward", "group", "constant", "zero"))]


def test_a_response_of_several_joint_actions_counts_once_with_their_mean():
    # by hand: response x is in joint actions that earn 1 and 2, y in ones that earn 3 and 6
    rows = [said(sample=s, reward=reward, row="xy"[s // 2]) for s, reward in enumerate((1.0, 2.0, 3.0, 6.0))]
    metrics = role_and_policy_metrics(rows)
    assert metrics["reward/tool"] == 3.0
    assert metrics["reward/tool/team"] == 3.0
    assert (metrics["groups/tool"], metrics["group_size/tool"]) == (1, 2)


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, None),
        ({"parsed": True}, None),
        ({"tool_calls": 3, "tool_successes": 2}, (3, 2)),
        ({"tool_calls": 0}, (0, 0)),
        ({"tool_calls": 1, "tool_successes": 0, "exit_code": 0}, (1, 0)),  # counts say more than one exit code
        ({"exit_code": 0, "timed_out": False}, (1, 1)),
        ({"exit_code": 1, "timed_out": False}, (1, 0)),
        ({"exit_code": None, "timed_out": False}, (0, 0)),
        ({"exit_code": None, "timed_out": True}, (1, 0)),
        ({"exit_code": 0}, (1, 1)),
    ],
)
def test_tool_use_is_read_from_the_facts_of_the_action(info, expected):
    assert tool_use(info) == expected


@pytest.mark.parametrize("info", [{"tool_calls": 1, "tool_successes": 2}, {"tool_calls": "one"}, {"tool_calls": -1}])
def test_counts_that_are_none_are_an_error(info):
    with pytest.raises(ValueError, match="are no counts of calls"):
        tool_use(info)


def test_tool_calls_per_response_and_their_success():
    rows = [said(0, tool_calls=3, tool_successes=1), said(1, tool_calls=1, tool_successes=1), said(2), said(3)]
    metrics = role_and_policy_metrics(rows)
    assert metrics["tool_calls/tool"] == 1.0
    assert metrics["tool_success/tool"] == 0.5
    idle = role_and_policy_metrics([said(tool_calls=0)])
    assert idle["tool_calls/tool"] == 0.0
    assert "tool_success/tool" not in idle
    assert "tool_calls/tool" not in role_and_policy_metrics([said()])


def test_failed_trajectories_are_counted_and_tell_nothing_else():
    failed = Trajectory("u", "d", 0, "train", 0, error="died")
    metrics = step_metrics([Trajectory("t", "d", 0, "train", 0, [said()], turns=1), failed])
    assert metrics["trajectories/failed"] == 1.0
    assert metrics["groups/tool"] == 1.0
    assert step_metrics([failed]) == {"success_rate": 0, "trajectories/failed": 1, "trajectories/turns": 0}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(-1, 1), st.booleans()), min_size=1, max_size=12))
def test_shares_lie_in_the_unit_interval_and_roles_add_up_to_their_policy(entries):
    rows = [
        said(index, reward, role=role, masked=masked, advantage=None if masked else reward)
        for index, (role, reward, masked) in enumerate(entries)
    ]
    metrics = role_and_policy_metrics(rows)
    for key, value in metrics.items():
        if key.startswith(("constant_groups", "zero_advantages", "response_clip_ratio")):
            assert 0 <= value <= 1
    for count in ("masked", "groups"):
        roles = sum(value for key, value in metrics.items() if key.startswith(f"{count}/"))
        assert roles == metrics[f"{count}_by_policy/shared"]


class TestWatch:
    def test_a_step_with_any_other_advantage_is_fine(self):
        watch = ZeroAdvantageWatch(1)
        assert watch.look(1, [said(advantage=0.0), said(advantage=1e-9)]) is None
        watch.raise_if_too_many()

    def test_a_step_of_zeros_is_a_warning(self):
        watch = ZeroAdvantageWatch(2)
        assert watch.look(7, [said(advantage=0.0)]).startswith("warning: step 7: every advantage is zero;")
        watch.raise_if_too_many()

    def test_a_step_without_anything_to_train_on_is_one_too(self):
        assert "step 3: nothing is left to train on" in ZeroAdvantageWatch(2).look(3, [])

    def test_advantages_that_are_computed_elsewhere_count_as_not_zero(self):
        assert ZeroAdvantageWatch(1).look(1, [said(advantage=None)]) is None

    def test_several_in_a_row_are_an_error_that_says_what_to_look_at(self):
        watch = ZeroAdvantageWatch(2)
        watch.look(1, [said(advantage=0.0)])
        assert "2 steps in a row" in watch.look(2, [])
        with pytest.raises(NothingLearned, match=r"2 steps in a row \(diagnostics.max_zero_steps=2.*constant_groups"):
            watch.raise_if_too_many()

    def test_a_step_in_between_begins_the_count_anew(self):
        watch = ZeroAdvantageWatch(2)
        told = [watch.look(1, [said(advantage=advantage)]) for advantage in (0.0, 1.0, 0.0)]
        watch.raise_if_too_many()
        assert [one is not None for one in told] == [True, False, True]
        assert "in a row" not in told[2]

    def test_zero_never_ends_the_run(self):
        watch = ZeroAdvantageWatch(0)
        told = [watch.look(step, []) for step in range(50)]
        watch.raise_if_too_many()
        assert "50 steps in a row" in told[-1]


class Team:
    """Answers each step with the next of some lists of rewards; learns nothing."""

    trainers = ()

    def __init__(self, rewards):
        self.rewards = list(rewards)
        self.learned = []

    def rollout(self, tasks, split, step, greedy):
        rows = [said(candidate, reward, advantage=None) for candidate, reward in enumerate(self.rewards[step])]
        return [Trajectory("t", "d", 0, split, step, rows, turns=1)]

    def learn(self, invocations, step, *_):
        self.learned.append(step)
        return SimpleNamespace(metrics={"tool/actor/loss": 1.0}, seconds={}, skipped=[])


class Reporter:
    def __init__(self):
        self.warnings, self.metrics = [], []

    def phase(self, name):
        """Not of interest here."""

    def step(self, step, metrics, seconds, trajectories):
        self.metrics.append(metrics)

    def warn(self, text):
        self.warnings.append(text)


def loop(rewards, max_zero_steps):
    config = SimpleNamespace(
        tasks_per_step=1,
        diagnostics=SimpleNamespace(max_zero_steps=max_zero_steps),
        validation=SimpleNamespace(before=False, after=False, every=0),
        checkpoint=SimpleNamespace(every=0),
    )
    team, reporter = Team(rewards), Reporter()
    plugins = SimpleNamespace(notify=lambda event, **facts: None)
    store = SimpleNamespace(save=lambda manifest, write: None)
    family = SimpleNamespace(task=lambda split, index: SimpleNamespace(id=f"{split}-{index}"))
    run = SimpleNamespace(config=config, seed=0, steps=len(rewards))
    made = Loop(run, team, family, get_estimator("at_grpo"), store, plugins, reporter)
    return made, team, reporter


def test_the_loop_warns_of_a_step_of_zeros_and_goes_on():
    made, team, reporter = loop([[1, 0], [1, 1], [0, 1]], max_zero_steps=2)
    made.train()
    assert team.learned == [1, 2, 3]
    assert reporter.warnings == ["warning: step 2: every advantage is zero; no policy learns from its rewards"]
    assert [one["diagnostics/all_zero_advantages"] for one in reporter.metrics] == [0.0, 1.0, 0.0]
    assert [one["zero_advantages/tool"] for one in reporter.metrics] == [0.0, 1.0, 0.0]


def test_the_loop_ends_after_too_many_of_them_with_the_metrics_of_the_last_written():
    made, team, reporter = loop([[1, 1]] * 5, max_zero_steps=3)
    with pytest.raises(NothingLearned, match="3 steps in a row"):
        made.train()
    assert team.learned == [1, 2, 3]
    assert len(reporter.metrics) == len(reporter.warnings) == 3
