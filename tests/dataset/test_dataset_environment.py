"""The data set as a task family: order, epochs, disjoint splits; and its workflow under the real controller."""

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from verl_mas_dataset import plugin
from verl_mas_dataset.environment import Dataset
from verl_mas_dataset.scoring import ScoreError
from verl_mas_dataset.workflow import SingleTurn

from verl_mas.config.suggest import UnknownNameError
from verl_mas.rewards import RuleRewardManager
from verl_mas.workflow import Controller, ParallelSampling, Sampling, ScriptedModel, Task

COUNT = 7
EQUAL = "def compute_score(solution_str, ground_truth, **unused):\n    return float(solution_str == ground_truth)\n"


@pytest.fixture
def family(write, reward_file):
    """`family(**options)`: COUNT training problems t0, t1, ... and three held-out ones; the answer is always 7."""

    def make(**options) -> Dataset:
        defaults = {
            "train_files": lambda: write("train.parquet", *(f"t{index}" for index in range(COUNT))),
            "val_files": lambda: write("val.parquet", "v0", "v1", "v2"),
            "reward_function": lambda: {"path": reward_file(EQUAL)},
        }
        return Dataset(**{name: options.get(name) or default() for name, default in defaults.items()} | options)

    return make


def prompts(family: Dataset, first: int, last: int) -> list[str]:
    return [family.task("train", index).payload["prompt"] for index in range(first, last)]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(epoch=st.integers(0, 1000), seed=st.integers(0, 2**31))
def test_every_epoch_has_every_problem_once(family, epoch, seed):
    seen = prompts(family(seed=seed), epoch * COUNT, (epoch + 1) * COUNT)
    assert sorted(seen) == [f"t{index}" for index in range(COUNT)]


def test_the_order_follows_from_seed_and_epoch_alone(family):
    first, again, other = family(seed=1), family(seed=1), family(seed=2)
    assert first.task("train", 20) == again.task("train", 20)
    assert prompts(again, 0, 3 * COUNT) == prompts(first, 0, 3 * COUNT)
    assert prompts(first, 0, COUNT) != prompts(first, COUNT, 2 * COUNT)
    assert prompts(first, 0, 3 * COUNT) != prompts(other, 0, 3 * COUNT)


def test_without_shuffling_the_files_order_repeats(family):
    assert prompts(family(shuffle=False), 0, COUNT + 2) == [*(f"t{index}" for index in range(COUNT)), "t0", "t1"]


def test_tasks_differ_by_index_and_are_equal_by_content(family):
    made = family(shuffle=False)
    first, later = made.task("train", 1), made.task("train", 1 + COUNT)
    assert (first.id, later.id) == ("train-1", "train-8")
    assert first.digest == later.digest


def test_validation_is_in_the_files_order_and_does_not_repeat(family):
    made = family()
    assert [made.task("val", index).payload["prompt"] for index in range(3)] == ["v0", "v1", "v2"]
    with pytest.raises(ValueError, match="val_files have 3 rows, so there is no validation task 3"):
        made.task("val", 3)
    with pytest.raises(ValueError, match=r"validation\.tasks=4, but val_files have 3 rows"):
        made.check(1, 4)
    made.check(10**9, 3)


def test_splits_that_share_a_prompt_are_refused(family, write):
    shared = family(val_files=write("val.parquet", "v0", "t3"))
    with pytest.raises(ValueError, match="1 validation tasks are also training tasks, first at val index 1"):
        shared.check(COUNT, 2)


def test_wrong_names_and_numbers_are_refused(family):
    made = family()
    with pytest.raises(UnknownNameError, match="split 'trai'; did you mean 'train'"):
        made.task("trai", 0)
    env = made.environment(made.task("train", 0))
    with pytest.raises(UnknownNameError, match="role 'solvr'; did you mean 'solver'"):
        env.observe("solvr")
    with pytest.raises(ValueError, match=r"success_score must be in \[0, 1\], not 2"):
        family(success_score=2)


def test_a_task_with_another_content_than_its_digest_is_refused(family):
    made = family()
    task = made.task("train", 0)
    with pytest.raises(ValueError, match="'train-0' does not have the content"):
        made.environment(Task(task.id, "0" * 64, task.payload))


def test_an_answer_ends_the_problem_and_copies_do_not(family):
    made = family()
    env = made.environment(made.task("train", 0))
    assert env.copy().step("solver", "7").parts.team == 1.0
    assert (env.done, env.success) == (False, False)
    assert env.step("solver", "8").parts.team == 0.0
    assert (env.done, env.success, env.copy().done) == (True, False, True)


def test_success_begins_at_the_given_score(family, reward_file):
    half = {"path": reward_file("def compute_score(**unused):\n    return 0.5\n")}
    for threshold, success in ((0.5, True), (0.6, False)):
        made = family(reward_function=half, success_score=threshold)
        env = made.environment(made.task("train", 0))
        env.step("solver", "x")
        assert env.success is success


async def play(family: Dataset, answer, n: int = 2):
    controller = Controller(
        ScriptedModel({"solver": answer}),
        family,
        SingleTurn,
        ParallelSampling(n=n),
        RuleRewardManager(),
        roles={"solver": Sampling()},
        concurrency=4,
        env_timeout_s=10,
        max_failure_rate=1.0,
        retries=1,
        deterministic=False,
    )
    return await controller.run([family.task("train", index) for index in range(2)], split="train", step=0, seed=0)


async def test_the_solver_answers_once_and_earns_the_score(family):
    made = family(shuffle=False)
    trajectories = await play(made, lambda request: "7" if ".1.solver" in request.row else "8")
    assert [one.turns for one in trajectories] == [1] * 4
    said = [invocation for one in trajectories for invocation in one.invocations]
    assert [one.prompt for one in said] == ["t0", "t0", "t1", "t1"]
    assert [one.reward for one in said] == [0.0, 1.0, 0.0, 1.0]
    assert [one.success for one in trajectories] == [False, True, False, True]


async def test_a_prompt_with_braces_is_passed_on_as_it_is(family, write):
    made = family(train_files=write("braces.parquet", "f{x} = {{y}}", "{prompt}"), shuffle=False)
    trajectories = await play(made, "7", n=1)
    assert [one.invocations[0].prompt for one in trajectories] == ["f{x} = {{y}}", "{prompt}"]


async def test_a_score_out_of_range_ends_the_run_whatever_failure_rate_is_tolerated(family, reward_file):
    made = family(reward_function={"path": reward_file("def compute_score(**unused):\n    return -1\n")})
    with pytest.raises(ScoreError, match=r"score -1 .*must be in \[0, 1\]"):
        await play(made, "7")


def test_the_plugin_provides_workflow_and_environment_by_name():
    assert plugin.verl_mas_workflows() == {"single_turn": SingleTurn}
    assert plugin.verl_mas_environments() == {"dataset": Dataset}


def test_the_plugin_is_imported_without_verl_and_torch():
    program = "import sys, verl_mas_dataset.plugin; sys.exit(bool({'torch', 'verl', 'ray'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
