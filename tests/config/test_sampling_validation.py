"""Sampling and diagnostics keys: which scheme they make, and which estimator refuses which."""

import pytest
from omegaconf import OmegaConf

from verl_mas.advantages import get_estimator
from verl_mas.config.errors import ConfigError, Problems
from verl_mas.config.factories import make_reward_manager, sampling_arguments, sampling_kind
from verl_mas.config.schema import SamplingConfig
from verl_mas.config.validation import _check_estimator, validate
from verl_mas.rewards import node_rule
from verl_mas.workflow.sampling import JointSampling, make_scheme

KINDS = {
    "parallel": {"scheme": "parallel"},
    "tree": {"scheme": "tree"},
    "joint_aligned": {"scheme": "joint"},
    "joint_cross": {"scheme": "joint", "joint": "cross"},
    "joint_tree": {"scheme": "joint", "branching": "tree"},
    "joint_cross_tree": {"scheme": "joint", "joint": "cross", "branching": "tree"},
}
#: the table of docs/sampling.md
MATRIX = [
    ("at_grpo", {}, {"tree"}),
    ("at_grpo", {"same_prompt": False}, {"parallel", "tree", "joint_aligned", "joint_tree"}),
    ("agent_grpo", {}, {"parallel", "tree", "joint_aligned", "joint_tree"}),
    ("rloo", {}, {"parallel", "tree", "joint_aligned", "joint_tree"}),
    ("remax", {}, {"parallel", "tree", "joint_aligned", "joint_tree"}),
    ("reinforce", {}, {"parallel", "tree", "joint_aligned", "joint_tree"}),
    ("gae", {}, {"parallel", "tree", "joint_aligned", "joint_tree"}),
    ("reinforce_pp_global", {}, {"parallel", "joint_aligned"}),
    ("reinforce_pp_global", {"return_over": "action"}, {"parallel", "tree", "joint_aligned", "joint_tree"}),
    ("magrpo", {}, {"parallel", "joint_aligned"}),
    ("magrpo", {"joint": "cross"}, {"joint_cross"}),
    ("magrpo", {"branching": "tree"}, {"joint_tree"}),
    ("magrpo", {"joint": "cross", "branching": "tree"}, {"joint_cross_tree"}),
]


def run_with(sampling, estimator):
    return OmegaConf.create(
        {"sampling": OmegaConf.structured(SamplingConfig(**sampling)), "algorithm": {"adv_estimator": estimator}}
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "options", "works"), MATRIX)
def test_every_cell_of_the_table(name, options, works, kind):
    run, problems = run_with(KINDS[kind], name), Problems()
    assert sampling_kind(run) == kind
    _check_estimator(run, get_estimator(name, **options), problems)
    try:
        problems.raise_if_any()
        told = []
    except ConfigError as error:
        told = [one for one in error.problems if "cannot work with" in one]
    if kind in works:
        assert told == []
    else:
        (refusal,) = told
        scheme = KINDS[kind]["scheme"]
        start = f"sampling.scheme={scheme}: {name} cannot work with {kind} sampling: "
        assert refusal.startswith(start)
        assert len(refusal) > len(start) + 20  # the reason


def test_the_keys_of_joint_sampling_reach_the_scheme():
    run = run_with({"scheme": "joint", "n": 3, "branching": "tree", "stop_threshold": 0.5}, "magrpo")
    arguments = sampling_arguments(run)
    assert arguments == {"n": 3, "joint": "aligned", "branching": "tree", "stop_threshold": 0.5}
    assert isinstance(make_scheme("joint", **arguments), JointSampling)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["sampling.joint=crossed"], "sampling.joint: unknown joint 'crossed'; did you mean 'cross'?"),
        (["sampling.branching=tre"], "sampling.branching: unknown branching 'tre'; did you mean 'tree'?"),
        (["sampling.stop_threshold=inf"], "sampling: sampling option 'stop_threshold' must be a finite number"),
        (["sampling.n=1"], "sampling.n: must be at least 2 for magrpo"),
        (["sampling.joint=cross"], "sampling.scheme=joint: magrpo cannot work with joint_cross sampling"),
        (["diagnostics.max_zero_steps=-1"], "diagnostics.max_zero_steps: must be at least 0, not -1"),
        (["+reward.options.rule_weights.x=1"], "reward.options.rule_weights: unknown rule in rule_weights 'x'"),
    ],
)
def test_a_problem_names_its_key_and_what_is_valid(composed, plugins, overrides, expected):
    joint = ["sampling.scheme=joint", "algorithm.adv_estimator=magrpo"]
    with pytest.raises(ConfigError) as caught:
        validate(composed(*joint, *overrides), plugins)
    assert any(problem.startswith(expected) for problem in caught.value.problems), caught.value.problems


def test_joint_sampling_with_magrpo_is_a_right_configuration(composed, plugins):
    assert validate(composed("sampling.scheme=joint", "algorithm.adv_estimator=magrpo"), plugins)


def test_the_rules_of_a_task_family_reach_the_reward_manager(composed, plugins):
    family = plugins.environments["counting"](goal=1)
    family.reward_rules = (node_rule("format", lambda one: -1.0),)
    run = composed("+reward.options.rule_weights.format=2").run
    manager = make_reward_manager(run, plugins, family)
    assert [(rule.name, manager._weights[rule.name]) for rule in manager._rules] == [("format", 2)]
