"""Tree sampling by AT-GRPO, Alg. 1. Expected numbers come from replaying the formula."""

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_mas.config.suggest import UnknownNameError
from verl_mas.workflow import (
    InternalError,
    ParallelSampling,
    Sampling,
    ScriptedModel,
    TreeSampling,
    derive_seed,
    make_scheme,
)
from verl_mas.workflow.agent import check_group


def digits(salt):
    """A model that answers each row with a digit of its own."""
    return ScriptedModel(dict.fromkeys(("first", "second"), lambda request: str(derive_seed(salt, request.row) % 10)))


def groups_in_order(trajectory):
    groups = defaultdict(list)
    for invocation in trajectory.invocations:
        groups[invocation.turn, invocation.role].append(invocation)
    return groups


def replayed_reward(committed, response):
    """Independent of the environment class: the team score of appending `response` (alpha 1, nothing local)."""
    return (sum(map(int, committed)) + int(response)) % 10 / 9


@settings(max_examples=40)
@given(
    candidates=st.integers(1, 5),
    turns=st.integers(1, 3),
    tasks=st.integers(1, 3),
    selection=st.sampled_from(["greedy", "first", "sample"]),
    salt=st.integers(0, 10**6),
)
def test_every_group_is_scored_on_copies_and_its_winner_becomes_the_real_state(
    world, candidates, turns, tasks, selection, salt
):
    family, model = world.SumFamily(), digits(salt)
    controller = world.make_controller(
        model, family, lambda: world.BothAct(max_turns=turns), TreeSampling(candidates, selection)
    )
    family.made.clear()  # the controller's own check of the prompts made one
    trajectories = world.run(controller, family, tasks)

    for trajectory in trajectories:
        (env,) = family.made[trajectory.task]
        committed, rows = [], []
        groups = groups_in_order(trajectory)
        assert list(groups) == [(turn, role) for turn in range(turns) for role in ("first", "second")]
        for (_, role), group in groups.items():
            assert [member.candidate for member in group] == list(range(candidates))
            assert len({(member.prompt, member.prompt_digest) for member in group}) == 1
            history = " ".join(f"{('first', 'second')[i % 2]}={said}" for i, said in enumerate(committed))
            assert group[0].prompt == f"You are {role}. {history}"
            assert {member.parents for member in group} == {tuple(rows)}
            expected = [replayed_reward(committed, member.response) for member in group]
            assert [member.reward for member in group] == pytest.approx(expected)
            assert all(member.breakdown == {"team": member.reward} for member in group)
            (winner,) = [member for member in group if member.chosen]
            if selection == "greedy":
                assert winner.candidate == expected.index(max(expected))
            elif selection == "first":
                assert winner.candidate == 0
            committed.append(winner.response)
            rows.append(winner.row)
        # the real state took the winners and nothing else; each copy took one candidate on top of the state it copied
        assert [said for _, said in env.log] == committed
        assert len(env.copies) == 2 * turns * candidates
        for index, copy in enumerate(env.copies):
            depth = index // candidates
            assert [said for _, said in copy.log[:depth]] == committed[:depth]
            assert len(copy.log) == depth + 1
            assert not copy.copies

    rows = [invocation.row for trajectory in trajectories for invocation in trajectory.invocations]
    assert len(rows) == len(set(rows)) == tasks * turns * 2 * candidates
    assert sorted(model.published) == sorted(rows)
    assert model.publish_calls == 1
    assert not model.pending


def test_candidates_of_the_second_role_earn_different_rewards_after_the_same_committed_action(world):
    answers = {"first": lambda r: {"0": "1", "1": "4", "2": "2"}[r.row[-1]], "second": lambda r: r.row[-1]}
    family = world.SumFamily()
    controller = world.make_controller(ScriptedModel(answers), family, lambda: world.BothAct(max_turns=1))
    (trajectory,) = world.run(controller, family)
    # by hand: the first role's 1, 4, 2 score 1/9, 4/9, 2/9; 4 is committed; the second's 0, 1, 2 score 4/9, 5/9, 6/9
    assert [i.reward for i in trajectory.invocations] == pytest.approx([1 / 9, 4 / 9, 2 / 9, 4 / 9, 5 / 9, 6 / 9])
    assert [i.chosen for i in trajectory.invocations] == [False, True, False, False, False, True]
    assert trajectory.success
    assert trajectory.turns == 1


def test_greedy_selection_breaks_ties_by_the_lowest_index(world):
    answers = {"first": lambda r: {"0": "2", "1": "7", "2": "7"}[r.row[-1]], "second": "0"}
    family = world.SumFamily()
    controller = world.make_controller(ScriptedModel(answers), family, lambda: world.BothAct(max_turns=1))
    (trajectory,) = world.run(controller, family)
    assert [i.candidate for i in trajectory.invocations if i.chosen] == [1, 0]


def test_random_selection_repeats_with_the_seed_and_reaches_every_candidate(world):
    def chosen(seed):
        family = world.SumFamily()
        controller = world.make_controller(digits(0), family, scheme=TreeSampling(3, "sample"))
        return [
            i.candidate for t in world.run(controller, family, tasks=10, seed=seed) for i in t.invocations if i.chosen
        ]

    assert chosen(1) == chosen(1)
    assert chosen(1) != chosen(2)
    assert set(chosen(1)) == {0, 1, 2}


def test_prompts_that_differ_as_token_ids_within_a_group_are_an_internal_error(world):
    class Differing(ScriptedModel):
        async def complete(self, request):
            completion = await super().complete(request)
            return replace(completion, prompt_digest=f"digest-{request.row}")

    family = world.SumFamily()
    model = Differing({"first": "1", "second": "1"})
    controller = world.make_controller(model, family, retries=3, max_failure_rate=1.0)
    with pytest.raises(InternalError, match=r"prompts differ within the group of row train-0\.0\.first\.0\.0"):
        world.run(controller, family)
    assert not model.published
    assert not model.pending


def test_a_group_of_another_size_is_an_internal_error():
    with pytest.raises(InternalError, match="has 0 members instead of 2"):
        check_group([], 2)


@pytest.mark.parametrize("scheme", [TreeSampling(4), ParallelSampling(4)])
def test_validation_is_one_greedy_trajectory_that_is_not_trained_on(world, scheme):
    family, model = world.SumFamily(), digits(0)
    roles = {"first": Sampling(temperature=0.7, top_p=0.9, top_k=20, max_tokens=5), "second": Sampling(max_tokens=6)}
    controller = world.make_controller(model, family, scheme=scheme, roles=roles)
    trajectories = world.run(controller, family, tasks=2, split="val", greedy=True)
    assert [(t.task, t.sample, t.split) for t in trajectories] == [("val-0", 0, "val"), ("val-1", 0, "val")]
    assert all(i.chosen and i.candidate == 0 and i.reward is not None for t in trajectories for i in t.invocations)
    assert {(r.role, r.sampling) for r in model.requests} == {
        ("first", Sampling(temperature=0.0, max_tokens=5)),
        ("second", Sampling(temperature=0.0, max_tokens=6)),
    }
    assert not model.published
    assert sorted(model.discarded) == sorted(r.row for r in model.requests)


def test_parallel_sampling_runs_independent_trajectories_of_one_response_per_decision(world):
    family, model = world.SumFamily(), digits(3)
    controller = world.make_controller(model, family, scheme=ParallelSampling(3))
    trajectories = world.run(controller, family, tasks=2)
    assert [(t.task, t.sample) for t in trajectories] == [(f"train-{t}", s) for t in range(2) for s in range(3)]
    for trajectory in trajectories:
        said = [invocation.response for invocation in trajectory.invocations]
        assert all(i.chosen and i.candidate == 0 for i in trajectory.invocations)
        expected = [replayed_reward(said[:index], said[index]) for index in range(4)]
        assert [i.reward for i in trajectory.invocations] == pytest.approx(expected)
    assert all(not env.copies for made in family.made.values() for env in made)
    assert len(set(model.published)) == len(model.published) == 2 * 3 * 4


def test_schemes_are_made_by_name():
    tree = make_scheme("tree", candidates=4, selection="first")
    assert isinstance(tree, TreeSampling)
    assert (tree.candidates, tree.rollouts_per_task) == (4, 1)
    assert make_scheme("parallel", n=5).rollouts_per_task == 5


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("treee", {}, UnknownNameError, "did you mean 'tree'"),
        ("tree", {"candidate": 4}, UnknownNameError, "did you mean 'candidates'"),
        ("tree", {"candidates": 4, "selection": "gredy"}, UnknownNameError, "did you mean 'greedy'"),
        ("tree", {}, ValueError, "needs the option 'candidates'"),
        ("tree", {"candidates": 0}, ValueError, "'candidates' must be at least 1"),
        ("parallel", {"n": 0}, ValueError, "'n' must be at least 1"),
    ],
)
def test_a_wrong_scheme_or_option_is_named_with_the_nearest(name, options, error, message):
    with pytest.raises(error, match=message):
        make_scheme(name, **options)
