"""Names, options, sampling schemes and levels of the estimators."""

import subprocess
import sys

import pytest

from verl_mas.advantages import ESTIMATORS, SCHEMES, Credits, get_estimator
from verl_mas.config.suggest import UnknownNameError

NAMES = {
    "at_grpo",
    "reinforce_pp_global",
    "magrpo",
    "gae",
    "agent_grpo",
    "rloo",
    "remax",
    "reinforce",
}  # the specification's numbers


def test_every_estimator_of_the_specification_exists_under_its_name():
    assert set(ESTIMATORS) == NAMES
    assert all(estimator.name == name for name, estimator in ESTIMATORS.items())


def test_an_unknown_estimator_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'at_grpo'"):
        get_estimator("atgrpo")


@pytest.mark.parametrize(
    ("name", "options", "nearest"),
    [
        ("magrpo", {"normalise": "std"}, "normalize"),
        ("magrpo", {"normalize": "stdd"}, "std"),
        ("magrpo", {"joint": "align"}, "aligned"),
        ("magrpo", {"cross_return": "means"}, "mean"),
        ("magrpo", {"branching": "trees"}, "tree"),
        ("magrpo", {"joint_reward": "share"}, "shared"),
        ("reinforce_pp_global", {"return_over": "trajectories"}, "trajectory"),
        ("reinforce_pp_global", {"normalize_over": "polcy"}, "policy"),
        ("at_grpo", {"groupsize": 4}, "group_size"),
        ("at_grpo", {"group_by": ["task", "rol"]}, "role"),
        ("reinforce", {"baseline": "men"}, "mean"),
        ("gae", {"whiten_over": "roles"}, "role"),
    ],
)
def test_a_wrong_option_or_value_names_the_nearest(name, options, nearest):
    with pytest.raises(UnknownNameError) as caught:
        get_estimator(name, **options)
    assert caught.value.nearest == nearest
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("at_grpo", {"group_size": 0}),
        ("at_grpo", {"group_size": 2.5}),
        ("at_grpo", {"group_size": True}),
        ("at_grpo", {"same_prompt": "no"}),
        ("rloo", {"group_by": "task"}),
        ("rloo", {"group_by": []}),
        ("rloo", {"group_by": None}),
        ("magrpo", {"gamma": 0.9}),
        ("magrpo", {"gamma": 1.5, "branching": "tree"}),
        ("magrpo", {"gamma": float("nan"), "branching": "tree"}),
        ("magrpo", {"gamma": "1", "branching": "tree"}),
        ("magrpo", {"normalize": None}),
    ],
)
def test_an_option_out_of_range_is_an_error_that_names_it(name, options):
    with pytest.raises(ValueError, match=rf"{name} option {next(iter(options))}"):
        get_estimator(name, **options)


def test_options_may_be_given_with_the_call():
    credits = Credits(reward=[1, 2, 3, 6])

    assert ESTIMATORS["magrpo"](credits, normalize="none").tolist() == [-2, -1, 0, 3]
    assert get_estimator("magrpo", normalize="none")(credits).tolist() == [-2, -1, 0, 3]
    assert get_estimator("magrpo", normalize="none").with_options(joint_reward="shared").normalize == "none"
    with pytest.raises(UnknownNameError, match="normalize"):
        ESTIMATORS["magrpo"](credits, normalise="none")


def test_only_credits_are_taken():
    with pytest.raises(TypeError, match="at_grpo takes Credits, not list"):
        get_estimator("at_grpo")([1, 0])


def test_gae_is_token_level_and_says_what_it_needs():
    assert get_estimator("gae").level == "token"
    assert {ESTIMATORS[name].level for name in NAMES - {"gae"}} == {"invocation"}
    for reward in ([1.0, 2.0], []):
        with pytest.raises(ValueError, match=r"gae is token-level: it needs a critic's values of every token"):
            get_estimator("gae")(Credits(reward=reward))


@pytest.mark.parametrize(
    ("name", "options", "schemes"),
    [
        ("at_grpo", {}, {"tree"}),
        ("at_grpo", {"same_prompt": False}, {"tree", "parallel", "joint_aligned", "joint_tree"}),
        ("agent_grpo", {}, {"tree", "parallel", "joint_aligned", "joint_tree"}),
        ("reinforce_pp_global", {}, {"parallel", "joint_aligned"}),
        ("reinforce_pp_global", {"return_over": "action"}, {"tree", "parallel", "joint_aligned", "joint_tree"}),
        ("magrpo", {}, {"parallel", "joint_aligned"}),
        ("magrpo", {"joint": "cross"}, {"joint_cross"}),
        ("magrpo", {"branching": "tree"}, {"joint_tree"}),
        ("magrpo", {"joint": "cross", "branching": "tree"}, {"joint_cross_tree"}),
        ("gae", {}, {"tree", "parallel", "joint_aligned", "joint_tree"}),
    ],
)
def test_an_estimator_refuses_exactly_the_schemes_it_cannot_work_with(name, options, schemes):
    estimator = get_estimator(name, **options)

    assert estimator.schemes == schemes
    for scheme in SCHEMES:
        refusal = estimator.refusal(scheme)
        assert (refusal is None) == (scheme in schemes)
        if refusal is not None:
            assert refusal.startswith(f"{name} cannot work with {scheme} sampling: ")


def test_an_unknown_scheme_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'parallel'"):
        get_estimator("rloo").refusal("paralel")


@pytest.mark.parametrize("name", sorted(NAMES - {"gae", "reinforce"}))
def test_rewards_that_overflow_are_an_error(name):
    with pytest.raises(ValueError, match="too large"):
        get_estimator(name)(Credits(reward=[1.5e308, -1.5e308], sample=[0, 1]))


def test_importing_the_estimators_imports_neither_verl_nor_torch_nor_ray():
    code = "import sys, verl_mas.advantages; sys.exit(bool({'verl', 'torch', 'ray', 'vllm'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
