"""A package that is not ours: its own game and workflow, three roles on two policies, and an observer."""

import json

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

PLUGIN = """
import hashlib
import json
import os

from verl_mas import hookimpl
from verl_mas.rewards.parts import Component, RewardParts
from verl_mas.workflow.base import TurnWorkflow
from verl_mas.workflow.environment import Environment, StepOutcome, Task, TaskFamily

ROLES = ("first", "second", "judge")


class Relay(TurnWorkflow):
    roles = ROLES

    async def turn(self, env, agents):
        for role in self.roles:
            await agents[role].act(env)


class Word(Environment):
    inline = True

    def __init__(self, theme, said=()):
        self.theme, self.said = theme, said

    def observe(self, role):
        return {"theme": self.theme, "said": "".join(self.said)[-8:]}

    def step(self, role, response):
        self.said = (*self.said, response)
        score = sum(map(ord, response)) % 7 / 6  # differs wherever responses do, so that there is something to learn
        return StepOutcome(RewardParts(team=score, local={"sum": Component(1.0, score)}), {})

    def copy(self):
        return Word(self.theme, self.said)

    @property
    def done(self):
        return False

    @property
    def success(self):
        return len(self.said) == len(ROLES)


class Words(TaskFamily):
    prompts = {role: "{theme}\\n{said}" for role in ROLES}

    def task(self, split, index):
        theme = ("-" if split == "train" else "@") * (1 + index)
        return Task(f"{split}-{index}", hashlib.sha256(theme.encode()).hexdigest(), {"theme": theme})

    def environment(self, task):
        return Word(task.payload["theme"])


@hookimpl
def verl_mas_workflows():
    return {"relay": Relay}


@hookimpl
def verl_mas_environments():
    return {"words": Words}


@hookimpl
def verl_mas_on_step_end(run, metrics):
    with open(os.path.join(run.directory, "seen.jsonl"), "a") as file:
        file.write(json.dumps({"step": metrics["step"], "reward": metrics["reward/judge"]}) + "\\n")
"""

RECIPE = """
description: Three roles on two policies.
steps: 2
tasks_per_step: 4
workflow: {name: relay, max_turns: 1}
environment: {name: words}
roles:
  first: {policy: writer}
  second: {policy: writer}
  judge: {policy: judge}
policies: {writer: {train: true}, judge: {train: true}}
sampling: {scheme: tree, candidates: 4}
validation: {before: false, after: false}
actor_rollout_ref:
  model: {path: "${package:verl_mas_games}/models/sokoban"}
  actor: {optim: {lr: 1.0e-4}}
data: {max_prompt_length: 32, max_response_length: 6}
"""


@pytest.fixture(scope="module")
def recipe(install):
    """The recipe of the installed package."""
    with install("relay-words", PLUGIN) as folder:
        path = folder / "relay.yaml"
        path.write_text(RECIPE)
        yield path


def test_three_roles_of_a_third_party_package_train_two_policies(start, recipe, tmp_path):
    directory = tmp_path / "run"
    process = start(f"recipe={recipe}", "hardware=cpu", f"run_dir={directory}")
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, f"{output}\n{(directory / 'run.log').read_text()[-4000:]}"
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        assert record["writer/actor/grad_norm"] > 0
        assert record["judge/actor/grad_norm"] > 0
    lines = (directory / "trajectories" / "step_000001.jsonl").read_text().splitlines()
    served = {(one["role"], one["policy"]) for line in lines for one in json.loads(line)["invocations"]}
    assert served == {("first", "writer"), ("second", "writer"), ("judge", "judge")}
    seen = [json.loads(line) for line in (directory / "seen.jsonl").read_text().splitlines()]
    assert seen == [{"step": record["step"], "reward": record["reward/judge"]} for record in records]
