"""Which layer wins, which policies exist, and what a wrong key is told. Expected values are read off the recipe."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from subprocess import run

import pytest
from omegaconf import OmegaConf

from verl_mas.config.compose import compose
from verl_mas.config.errors import ConfigError
from verl_mas.config.schema import RunConfig
from verl_mas.config.verl_tree import verl_tree

LR = "actor_rollout_ref.actor.optim.lr"
DECAY = "actor_rollout_ref.actor.optim.weight_decay"


def value(composed, policy, key):
    return OmegaConf.select(composed.policies[policy], key)


def problems_of(composed, *overrides, **options):
    with pytest.raises(ConfigError) as caught:
        composed(*overrides, **options)
    return caught.value.problems


def test_schema_defaults_hold_where_no_layer_says_otherwise(composed):
    run = composed().run
    assert (run.seed, run.resume, run.validation.tasks, run.sampling.candidates) == (0, "disable", 200, 4)
    assert OmegaConf.get_type(run) is RunConfig


def test_the_hardware_section_is_stronger_than_the_recipe_and_the_command_line_than_both(composed):
    assert composed(hardware="cpu").run.steps == 5
    assert composed(hardware="gpu").run.steps == 7
    assert composed("steps=9", hardware="gpu").run.steps == 9


def test_the_recipe_is_stronger_than_the_hardware_defaults(composed, recipe_dir):
    recipe = recipe_dir / "pair.yaml"
    recipe.write_text(recipe.read_text() + "trainer: {device: meta}\ncontroller: {concurrency: 7}\n")
    result = composed()
    assert value(result, "tool", "trainer.device") == "meta"
    assert result.run.controller.concurrency == 7


def test_a_policy_key_is_stronger_than_the_same_key_for_all_policies_in_one_layer(composed):
    result = composed()
    assert (value(result, "tool", LR), value(result, "planner", LR)) == (2.0e-4, 1.0e-4)


def test_a_later_layer_for_all_policies_is_stronger_than_an_earlier_one_for_one(composed):
    result = composed(f"{LR}=7e-5", f"policies.planner.{LR}=9e-5")
    assert (value(result, "tool", LR), value(result, "planner", LR)) == (7e-5, 9e-5)
    result = composed(f"policies.planner.{LR}=9e-5", f"{LR}=7e-5")
    assert (value(result, "tool", LR), value(result, "planner", LR)) == (7e-5, 9e-5)


def test_the_hardware_section_reaches_every_policy(composed):
    result = composed()
    assert [value(result, name, DECAY) for name in ("tool", "planner")] == [0.03, 0.03]
    assert value(composed(hardware="gpu"), "tool", DECAY) == 0.02


def test_on_a_cpu_the_actor_and_the_rollout_compute_in_float32(composed):
    result = composed()
    expected = {"param_dtype": "float32", "reduce_dtype": "float32", "buffer_dtype": "float32"}
    assert value(result, "tool", "actor_rollout_ref.actor.fsdp_config.mixed_precision") == expected
    assert value(result, "tool", "actor_rollout_ref.rollout.dtype") == "float32"
    assert value(result, "tool", "actor_rollout_ref.model.override_config.attn_implementation") == "sdpa"
    assert value(result, "tool", "transfer_queue.backend.SimpleStorage.num_data_storage_units") == 1


def test_hardware_auto_takes_what_the_machine_has(plugins):
    result = compose(["recipe=pair"], plugins, detect=lambda: "gpu")
    assert (result.run.hardware, result.run.steps) == ("gpu", 7)
    assert "hardware gpu (found on this machine)" in result.facts


def test_a_policy_tree_has_every_key_of_verls_tree(composed):
    ours, verl = composed().policies["tool"], verl_tree()

    def keys(node, path=""):
        for key in node:
            yield f"{path}{key}"
            if not OmegaConf.is_missing(node, key) and OmegaConf.is_dict(node[key]):
                yield from keys(node[key], f"{path}{key}.")

    assert set(keys(verl)) <= set(keys(ours))


def test_policy_trees_do_not_share_state(composed):
    first, second = composed(), composed()
    first.policies["tool"].trainer.nnodes = 5
    assert value(first, "planner", "trainer.nnodes") == value(second, "tool", "trainer.nnodes") == 1


def test_keys_of_shared_sections_go_to_whoever_has_them(composed):
    result = composed("algorithm.gamma=0.5", "algorithm.adv_estimator=rloo", "reward.alpha=2")
    assert value(result, "tool", "algorithm.gamma") == 0.5
    assert value(result, "tool", "algorithm.adv_estimator") == result.run.algorithm.adv_estimator == "rloo"
    assert result.run.reward.alpha == 2.0
    assert "alpha" not in result.policies["tool"].reward


def test_verl_is_told_what_follows_from_the_run(composed):
    result = composed("seed=11", "tasks_per_step=16")
    assert value(result, "tool", "data.train_batch_size") == 16
    assert value(result, "tool", "actor_rollout_ref.actor.ppo_mini_batch_size") == 16
    assert value(result, "planner", "trainer.total_training_steps") == 5
    assert value(result, "planner", "actor_rollout_ref.rollout.seed") == 11


@pytest.mark.parametrize(
    ("override", "option"),
    [
        ("data.train_batch_size=4", "tasks_per_step"),
        ("policies.tool.trainer.save_freq=1", "checkpoint.every"),
        ("actor_rollout_ref.rollout.n=2", "sampling.candidates"),
        ("policies.tool.algorithm.adv_estimator=gae", "algorithm.adv_estimator"),
        ("+ray_kwargs.ray_init.num_gpus=1", "ray.num_cpus"),
    ],
)
def test_a_derived_key_cannot_be_set_and_the_option_to_use_is_named(composed, override, option):
    (problem,) = problems_of(composed, override)
    key = override.lstrip("+").split("=")[0].removesuffix(".ray_init.num_gpus")
    assert problem.startswith(f"{key} (command line): follows from the run's own options; use {option}")


def test_one_line_shares_a_policy_and_the_unused_one_is_not_started(composed):
    result = composed("roles.planner.policy=tool")
    assert list(result.policies) == ["tool"]
    assert "policy tool serves tool, planner" in result.facts
    assert "policy planner serves no role and is not started" in result.facts


def test_three_roles_on_two_policies(composed):
    result = composed("workflow.name=trio", "+roles.critic.policy=planner")
    assert list(result.policies) == ["tool", "planner"]
    assert "policy planner serves planner, critic" in result.facts


def test_the_command_line_may_add_a_policy(composed, model_dir):
    result = composed(f"+policies.extra.{LR}=0.5", "roles.planner.policy=extra")
    assert list(result.policies) == ["tool", "extra"]
    assert value(result, "extra", LR) == 0.5
    assert value(result, "extra", "actor_rollout_ref.model.path") == str(model_dir)


def test_a_setting_for_a_policy_that_no_role_uses_is_an_error(composed):
    (problem,) = problems_of(composed, "roles.planner.policy=tool", f"policies.planner.{LR}=1e-5")
    assert problem == "policies.planner: no role uses this policy, so the setting would have no effect"


def test_a_frozen_policy_is_reported(composed):
    assert "policy planner (not trained) serves planner" in composed("policies.planner.train=false").facts


def test_a_role_samples_as_its_policy_unless_it_says_otherwise(composed):
    result = composed(
        "policies.tool.actor_rollout_ref.rollout.temperature=0.7",
        "roles.planner.sampling.temperature=0.4",
        "roles.planner.sampling.max_tokens=5",
    )
    tool, planner = result.run.roles.tool.sampling, result.run.roles.planner.sampling
    assert (tool.temperature, tool.top_p, tool.top_k, tool.max_tokens) == (0.7, 1.0, -1, 512)  # verl's own defaults
    assert (planner.temperature, planner.max_tokens) == (0.4, 5)
    assert value(result, "planner", "actor_rollout_ref.rollout.temperature") == 0.4


def test_roles_of_one_policy_cannot_differ_in_temperature(composed):
    (problem,) = problems_of(composed, "roles.planner.policy=tool", "roles.planner.sampling.temperature=0.5")
    assert problem.startswith("roles.tool.sampling.temperature=1.0, roles.planner.sampling.temperature=0.5:")


def test_plus_adds_a_key_that_verl_does_not_list_and_tilde_removes_one(composed):
    result = composed("+actor_rollout_ref.rollout.agent.agent_loop_manager_class=a.B", "~critic.optim.num_cycles")
    assert value(result, "tool", "actor_rollout_ref.rollout.agent.agent_loop_manager_class") == "a.B"
    assert "num_cycles" not in result.policies["tool"].critic.optim


def test_sections_that_verl_leaves_empty_take_any_key(composed):
    result = composed("actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space=2")
    assert value(result, "planner", "actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space") == 2


def test_another_engine_is_a_config_group_of_one_policy_or_all(composed):
    result = composed("policies.tool.model_engine=megatron", hardware="gpu")
    assert value(result, "tool", "actor_rollout_ref.actor.strategy") == "megatron"
    assert value(result, "planner", "actor_rollout_ref.actor.strategy") == "fsdp2"


def test_a_cpu_runs_no_other_engine_than_fsdp(composed):
    assert problems_of(composed, "policies.tool.model_engine=megatron") == (
        "policies.tool.model_engine: megatron needs hardware=gpu; a CPU runs dp (FSDP)",
    )


def test_the_run_folder_is_named_after_recipe_and_utc_time(plugins, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    now = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert compose(["recipe=pair", "hardware=cpu"], plugins, now=now).run.run_dir == str(
        tmp_path / "runs" / "pair-20240506-070809"
    )
    assert compose(["recipe=pair", "hardware=cpu", "run_dir=here"], plugins).run.run_dir == str(tmp_path / "here")


def test_every_wrong_key_is_reported_at_once_with_the_nearest_right_one(composed):
    problems = problems_of(
        composed,
        "tasks_pr_step=3",
        "policies.tool.actor_rollout_ref.actor.optm.lr=1",
        "policies.tool.trian=false",
        "policies.planer.train=false",
        "roles.tol.policy=tool",
        "roles.tool.polcy=tool",
        "reward.manger=rule",
        "workflow.max_turn=2",
        "~data.trn_files",
    )
    nearest = {
        "tasks_pr_step": "tasks_per_step",
        "policies.tool.actor_rollout_ref.actor.optm": "optim",
        "policies.tool.trian": "train",
        "policies.planer": "planner",
        "roles.tol": "tool",
        "roles.tool.polcy": "policy",
        "reward.manger": "manager",
        "workflow.max_turn": "max_turns",
        "data.trn_files": "train_files",
    }
    assert len(problems) == len(nearest)
    for key, name in nearest.items():
        (line,) = [problem for problem in problems if problem.startswith(f"{key} (command line): unknown ")]
        assert f"did you mean '{name}'?" in line


def test_a_wrong_key_in_a_recipe_names_the_recipe(composed, recipe_dir):
    recipe = recipe_dir / "pair.yaml"
    recipe.write_text(recipe.read_text() + "sampling: {scheem: tree}\ntrainer: {nodes: 2}\n")
    first, second = problems_of(composed)
    assert first.startswith("sampling.scheem (recipe pair): unknown key 'scheem'; did you mean 'scheme'?")
    assert second.startswith("trainer.nodes (recipe pair): unknown key 'nodes'; did you mean 'nnodes'?")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("steps=abc", "steps (command line): Value 'abc'"),
        ("policies.tool.train=perhaps", "policies.tool.train (command line): Value 'perhaps'"),
        (f"{LR}=fast", f"{LR} (command line): must be a number, not 'fast'"),
        ("trainer.balance_batch=3", "trainer.balance_batch (command line): must be true or false, not 3"),
        ("trainer=3", "trainer (command line): is a section, not a value"),
        ("reward=rule", "reward (command line): is a section, not a value"),
        ("seed.a=1", "seed (command line): is a value, not a section"),
        ("steps=1,2", "steps=1,2: several values"),
        ("--help", "--help: not an override"),
        ("~steps", "steps (command line): cannot be removed"),
        ("hardware=gppu", "hardware=gppu: unknown hardware 'gppu'; did you mean 'gpu'?"),
        ("roles.tool.policy=toool", "roles.tool.policy: unknown policy 'toool'; did you mean 'tool'?"),
        ("run_dir=${nothing}", "run_dir: cannot be resolved"),
        ("data.tokenizer=${nothing}", "policies.tool.data.tokenizer: cannot be resolved"),
    ],
)
def test_a_value_that_does_not_fit_names_its_key(composed, override, expected):
    assert problems_of(composed, override)[0].startswith(expected)


def test_policies_without_roles_are_an_error(plugins, recipe_dir):
    (recipe_dir / "lonely.yaml").write_text("description: d\nworkflow: {name: pair}\npolicies: {tool: }\n")
    with pytest.raises(ConfigError, match=r"roles: there are policies \(tool\) but no role"):
        compose(["recipe=lonely", "hardware=cpu"], plugins)


def test_a_package_in_a_path_is_found_without_importing_it(composed):
    result = composed("environment.options.style=${package:verl_mas}/x")
    assert result.run.environment.options.style.endswith("/verl_mas/x")
    (problem,) = problems_of(composed, "environment.options.style=${package:no_such_package}")
    assert problem.startswith("environment.options.style: cannot be resolved")
    assert "'no_such_package' is not installed" in problem


def test_a_plain_verl_run_gets_the_tree_that_verl_composes_itself(composed):
    overrides = ["data.train_batch_size=4", "+data.extra=1", "~data.image_key", "algorithm.adv_estimator=grpo"]
    result = composed(*overrides, "run_dir=out", recipe="verl")
    assert result.verl == verl_tree(overrides)
    assert result.policies == {}
    assert not result.run.roles


def test_a_plain_verl_run_refuses_what_only_a_team_has(composed):
    (problem,) = problems_of(composed, "seed=3", recipe="verl")
    assert problem.startswith("seed=3: recipe=verl has no roles")
    (problem,) = problems_of(composed, "data.trainfiles=x", recipe="verl")
    assert "did you mean 'train_files'?" in problem


def test_composing_imports_neither_verl_nor_torch(recipe_dir):
    code = (
        "import sys; from pathlib import Path; from types import SimpleNamespace\n"
        "from verl_mas.config.compose import compose\n"
        "import verl_mas.config.validation, verl_mas.hooks\n"
        f"plugins = SimpleNamespace(recipe_dirs=[Path({str(recipe_dir)!r})])\n"
        "compose(['recipe=pair', 'hardware=cpu'], plugins)\n"
        "print(sorted({'verl', 'torch', 'ray', 'vllm'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    result = run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
