"""What `validate` finds in a configuration that composes, each with its message."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.config.errors import ConfigError
from verl_mas.config.resources import required_cpus
from verl_mas.config.validation import validate
from verl_mas.sandbox.base import SandboxUnavailable

COUNTS = st.integers(min_value=0, max_value=1000)


def problems_of(composed, plugins, *overrides, **options):
    result = composed(*overrides, **options)
    with pytest.raises(ConfigError) as caught:
        validate(result, plugins)
    return caught.value.problems


def test_a_right_configuration_passes_and_tells_its_facts(composed, plugins):
    facts = validate(composed(), plugins)
    # 3 for each of 2 bundles, 1 storage unit and the queue's controller, 1 workflow worker, 1 task runner
    assert "Ray needs 10 logical CPUs and 2 logical devices" in facts
    assert "hardware cpu" in facts


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["workflow.name=piar"], "workflow.name: unknown workflow 'piar'; did you mean 'pair'?"),
        (["environment.name=countng"], "environment.name: unknown environment 'countng'; did you mean 'counting'?"),
        (["reward.manager=rul"], "reward.manager: unknown reward manager 'rul'; did you mean 'rule'?"),
        (["reward.mixing=sume"], "reward.mixing: unknown mixing 'sume'; did you mean 'sum'?"),
        (["reward.mixing=convex"], "reward: convex mixing needs lam"),
        (["reward.options.alpa=1"], "reward.options.alpa: unknown option 'alpa'; did you mean 'alpha'?"),
        (["environment.options.gaol=1"], "environment.options.gaol: unknown option 'gaol'; did you mean 'goal'?"),
        (["environment.options.goal=0"], "environment: goal must be at least 1, not 0"),
        (["workflow.max_turns=0"], "workflow: max_turns must be at least 1, not 0"),
        (
            ["algorithm.adv_estimator=at_gpro"],
            "algorithm.adv_estimator: unknown advantage estimator 'at_gpro'; did you mean 'at_grpo'?",
        ),
        (["algorithm.options.ep=1"], "algorithm.options.ep: unknown at_grpo option 'ep'"),
        (["sampling.scheme=parallel"], "sampling.scheme=parallel: at_grpo cannot work with parallel sampling"),
        (["sampling.scheme=tee"], "sampling.scheme: unknown sampling scheme 'tee'; did you mean 'tree'?"),
        (["sampling.selection=greed"], "sampling.selection: unknown selection 'greed'; did you mean 'greedy'?"),
        (["sampling.candidates=1"], "sampling.candidates: must be at least 2 for at_grpo"),
        (["workflow.name=trio"], "roles.critic: the workflow trio has this role; add roles.critic.policy"),
        (["+roles.tools.policy=tool"], "roles.tools: unknown role 'tools'; did you mean 'tool'?"),
        (["+roles.tool2={}"], "roles.tool2.policy: needs a value"),
        (["roles.tool.prompt='{cnt}'"], "roles: prompt of role 'tool' asks for what the environment does not observe"),
        (
            ["tasks_per_step=8", "actor_rollout_ref.actor.ppo_mini_batch_size=3"],
            "policies.tool.actor_rollout_ref.actor.ppo_mini_batch_size=3: tasks_per_step=8 must be a multiple of it",
        ),
        (
            ["policies.tool.actor_rollout_ref.actor.use_dynamic_bsz=false"],
            "policies.tool.actor_rollout_ref.actor.use_dynamic_bsz: must be true",
        ),
        (
            ["policies.tool.data.max_prompt_length=16384"],
            "policies.tool.actor_rollout_ref.actor.ppo_max_token_len_per_gpu: must hold the longest row",
        ),
        (
            ["policies.tool.actor_rollout_ref.rollout.tensor_model_parallel_size=2"],
            "policies.tool.actor_rollout_ref.rollout.tensor_model_parallel_size=2: must divide",
        ),
        (["roles.tool.sampling.max_tokens=513"], "roles.tool.sampling.max_tokens: must be from 1 to"),
        (
            ["policies.tool.actor_rollout_ref.model.path=???"],
            "policies.tool.actor_rollout_ref.model.path: needs a value",
        ),
        (
            ["policies.tool.actor_rollout_ref.model.path=/no/such/model"],
            "policies.tool.actor_rollout_ref.model.path: /no/such/model does not exist",
        ),
        (
            ["policies.tool.transfer_queue.backend.SimpleStorage.num_data_storage_units=2"],
            "policies.planner.transfer_queue: differs from that of tool",
        ),
        (["policies.tool.train=false", "policies.planner.train=false"], "policies: none that serves a role has train"),
        (["ray.num_cpus=9"], "ray.num_cpus=9: the run needs 10 logical CPUs"),
        (["ray.num_gpus=1"], "ray.num_gpus=1: the run needs 2 logical devices"),
        (["ray.address=auto", "ray.num_cpus=4"], "ray.num_cpus: is for a cluster that the run starts"),
        (["resume=atuo"], "resume: unknown value 'atuo'; did you mean 'auto'?"),
        (["steps=0"], "steps: must be at least 1, not 0"),
        (["controller.max_failure_rate=1.5"], "controller.max_failure_rate: must be in [0, 1]"),
        (["controller.env_timeout_s=0"], "controller.env_timeout_s: must be a positive number"),
        (["seed=-1"], "seed: must not be negative"),
    ],
)
def test_a_problem_names_its_key_and_what_is_valid(composed, plugins, overrides, expected):
    problems = problems_of(composed, plugins, *overrides)
    assert any(problem.startswith(expected) for problem in problems), problems


def test_all_problems_are_told_at_once(composed, plugins):
    problems = problems_of(composed, plugins, "workflow.name=x", "environment.name=y", "steps=0", "ray.num_cpus=1")
    assert [problem.split(":")[0] for problem in problems] == [
        "steps",
        "workflow.name",
        "environment.name",
        "ray.num_cpus=1",
    ]


def test_a_model_from_a_hub_is_accepted_and_said(composed, plugins):
    facts = validate(composed("actor_rollout_ref.model.path=Qwen/Qwen3-1.7B"), plugins)
    key = "policies.tool.actor_rollout_ref.model.path"
    assert f"{key}: Qwen/Qwen3-1.7B is no folder here, so it comes from the model hub" in facts


def test_a_folder_without_a_model_is_refused(composed, plugins, tmp_path):
    (problem, _) = problems_of(composed, plugins, f"actor_rollout_ref.model.path={tmp_path}")
    assert problem.endswith("holds no config.json, so it is no model")


def test_without_a_platform_for_the_hardware_nothing_starts(composed, plugins):
    without = replace(plugins, platforms={})
    with pytest.raises(ConfigError, match="hardware=cpu: no installed plugin provides this platform"):
        validate(composed(), without)


def test_without_flash_attention_a_gpu_uses_pytorchs_and_has_no_critics(composed, plugins):
    # neither requirements/cpu.txt nor gpu.txt has flash_attn
    result = composed(hardware="gpu")
    model = result.policies["tool"].actor_rollout_ref.model
    assert (model.override_config.attn_implementation, model.use_remove_padding) == ("sdpa", False)
    assert any(fact.startswith("flash_attn is not installed") for fact in validate(result, plugins))
    problems = problems_of(composed, plugins, "algorithm.adv_estimator=gae", hardware="gpu")
    assert sum("critic: verl loads it with FlashAttention" in problem for problem in problems) == 2


def test_a_plain_verl_run_is_told_nothing_of_attention_which_is_verls_own_there(composed, plugins):
    facts = validate(composed(recipe="verl", hardware="gpu"), plugins)
    assert not any("flash_attn" in fact for fact in facts)


def test_with_flash_attention_a_gpu_uses_it(composed, plugins, tmp_path, monkeypatch):
    (tmp_path / "flash_attn").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    result = composed("algorithm.adv_estimator=gae", hardware="gpu")
    model = result.policies["tool"].actor_rollout_ref.model
    assert (model.override_config.attn_implementation, model.use_remove_padding) == ("flash_attention_2", True)
    assert not any("flash_attn" in fact for fact in validate(result, plugins))


def test_on_a_cpu_a_critic_needs_no_flash_attention(composed, plugins):
    facts = validate(composed("algorithm.adv_estimator=gae"), plugins)
    assert not any("flash_attn" in fact for fact in facts)


def test_a_sandbox_that_is_missing_is_a_problem_of_the_environment(composed, plugins):
    def family(goal: int) -> None:
        raise SandboxUnavailable("install bubblewrap")

    without = replace(plugins, environments={"counting": family})
    assert problems_of(composed, without) == ("environment: install bubblewrap",)


def test_a_shared_policy_needs_fewer_cpus(composed, plugins):
    # one bundle less: 10 - 3
    facts = validate(composed("roles.planner.policy=tool", "ray.num_cpus=7"), plugins)
    assert "Ray needs 7 logical CPUs and 1 logical devices" in facts


def test_a_plain_verl_run_is_checked_for_cpus_alone(composed, plugins):
    assert validate(composed("trainer.n_gpus_per_node=1", recipe="verl"), plugins)
    problems = problems_of(composed, plugins, "ray_kwargs.ray_init.num_cpus=2", recipe="verl")
    assert problems[0].startswith("ray_kwargs.ray_init.num_cpus=2: the run needs")


def test_the_cpu_count_of_a_hand_calculation():
    # 2 * 3 for the bundles, 8 + 1 for the queue, 2 workflow workers, 4 reward workers, 1 task runner
    assert required_cpus(bundles=2, storage_units=8, workflow_workers=2, reward_workers=4) == 22


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_each_further_bundle_takes_three_cpus(bundles, units, workflow, reward):
    def count(number: int) -> int:
        return required_cpus(bundles=number, storage_units=units, workflow_workers=workflow, reward_workers=reward)

    assert count(bundles + 1) - count(bundles) == 3


def test_negative_counts_are_refused():
    with pytest.raises(ValueError, match="must not be negative"):
        required_cpus(bundles=-1, storage_units=1, workflow_workers=1, reward_workers=0)


def test_gae_without_a_critic_is_refused_at_start(composed, plugins):
    problems = problems_of(composed, plugins, "algorithm.adv_estimator=gae", "policies.tool.critic.enable=false")
    assert any("policies.tool.critic.enable=false: gae needs a critic" in problem for problem in problems)
