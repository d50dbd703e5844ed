"""Finding and reading recipes, and what the machine is taken for."""

import runpy
from pathlib import Path

import pytest

from verl_mas.config.compose import compose
from verl_mas.config.errors import ConfigError
from verl_mas.config.hardware import detect_hardware
from verl_mas.config.recipes import list_recipes, load_recipe, read_recipe
from verl_mas.config.validation import validate
from verl_mas.hooks import load_plugins

SHIPPED = Path(__file__).parents[2] / "recipes"


def test_recipes_are_listed_by_name_with_one_line_each(plugins):
    assert list_recipes(plugins) == [("pair", "A team of two."), ("verl", "Plain verl.")]


def test_every_recipe_in_the_repository_can_be_read():
    paths = sorted(SHIPPED.glob("*.yaml"))
    assert {"atgrpo_sokoban", "grpo_dataset", "verl"} <= {path.stem for path in paths}
    assert all(read_recipe(path.stem, path).description for path in paths)


def test_on_a_gpu_the_sokoban_recipe_has_the_papers_settings(plugins, composed):
    # AT-GRPO, appendix A.2.1
    plugins.recipe_dirs[:] = [SHIPPED]
    result = composed("environment.options.style=text", recipe="atgrpo_sokoban", hardware="gpu")
    run, tree = result.run, result.policies["planner"]
    assert (run.steps, run.tasks_per_step, run.sampling.candidates, run.workflow.max_turns) == (150, 128, 4, 4)
    assert (tree.data.max_prompt_length, tree.data.max_response_length) == (16384, 4096)
    actor = tree.actor_rollout_ref.actor
    assert (actor.ppo_mini_batch_size, actor.grad_clip, actor.entropy_coeff) == (64, 1.0, 0)
    assert (actor.optim.lr, actor.optim.weight_decay) == (1e-6, 0.01)
    assert tree.actor_rollout_ref.model.path == "Qwen/Qwen3-1.7B"
    assert run.roles.tool.sampling.temperature == 1.0


def test_the_smoke_test_for_a_gpu_asks_for_what_is_valid():
    # nothing else runs it where there is no GPU
    arguments = runpy.run_path(str(SHIPPED.parent / "benchmarks" / "gpu_smoke.py"))["ARGUMENTS"]
    plugins = load_plugins()
    for sharing in ([], ["roles.planner.policy=tool"]):
        composed = compose([*arguments, *sharing], plugins)
        assert composed.run.hardware == "gpu"
        validate(composed, plugins)


def test_an_unknown_recipe_names_the_nearest(recipe_dir):
    with pytest.raises(ConfigError, match="recipe=pairs: unknown recipe 'pairs'; did you mean 'pair'"):
        load_recipe("pairs", [recipe_dir])


def test_a_recipe_can_be_a_file(recipe_dir):
    recipe = load_recipe(str(recipe_dir / "pair.yaml"), [])
    assert (recipe.name, recipe.plain) == ("pair", False)


def test_two_recipes_of_one_name_are_an_error(recipe_dir, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "pair.yaml").write_text("description: d\n")
    with pytest.raises(ConfigError, match="recipe=pair: there are two"):
        load_recipe("pair", [recipe_dir, other])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "not readable as YAML"),
        ("- a", "a recipe is a mapping"),
        ("steps: 1", "needs a description"),
        ("description: d\nhardware: {gqu: {}}", "unknown hardware section 'gqu'; did you mean 'gpu'?"),
        ("description: d\nhardware: cpu", "hardware holds the sections cpu and gpu"),
        ("description: d\nhardware: {cpu: 3}", "hardware.cpu must be a mapping"),
    ],
)
def test_a_malformed_recipe_is_named_with_its_fault(tmp_path, text, expected):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_recipe("bad", path)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{path}: ")
    assert expected in problem


def test_the_last_recipe_on_the_command_line_counts(plugins):
    assert compose(["recipe=verl", "hardware=cpu", "recipe=pair"], plugins).run.recipe == "pair"


def test_without_a_recipe_the_known_ones_are_named(plugins):
    with pytest.raises(ConfigError, match=r"give recipe=NAME \(known: pair, verl\)"):
        compose(["steps=1"], plugins)


def test_hardware_is_a_gpu_only_if_one_is_there_and_visible(tmp_path):
    assert detect_hardware({}, tmp_path) == "cpu"
    (tmp_path / "nvidiactl").touch()
    assert detect_hardware({}, tmp_path) == "cpu"
    (tmp_path / "nvidia0").touch()
    assert detect_hardware({}, tmp_path) == "gpu"
    assert detect_hardware({"CUDA_VISIBLE_DEVICES": "0"}, tmp_path) == "gpu"
    assert detect_hardware({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == "cpu"
