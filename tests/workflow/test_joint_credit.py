"""From joint sampling to MAGRPO's advantages. The reference is written from Alg. 1, path by path, without Credits."""

import asyncio
from collections import defaultdict
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_mas.advantages import get_estimator
from verl_mas.training.metrics import assign_advantages, credits_of
from verl_mas.trajectory import Invocation, Trajectory
from verl_mas.workflow import JointSampling, ScriptedModel, TurnWorkflow, derive_seed

ROLES = ("first", "second")
NONE = {"normalize": "none"}


class Together(TurnWorkflow):
    roles = ROLES

    async def turn(self, env, agents):
        async with asyncio.TaskGroup() as group:
            for role in self.roles:
                group.create_task(agents[role].act(env))


def normalized(values):
    """Eq. 1 over a group: key -> value."""
    mean, spread = fmean(values.values()), pstdev(values.values())
    return {key: (value - mean) / (spread + 1e-6) for key, value in values.items()}


def joint_rewards(trajectory):
    """By turn: the sum over the roles."""
    rewards = defaultdict(float)
    for one in trajectory.invocations:
        rewards[one.turn] += one.reward
    return [rewards[turn] for turn in sorted(rewards)]


def path(trajectory):
    """The rows of each turn: what tells joint actions apart, whatever they are numbered."""
    rows = defaultdict(list)
    for one in trajectory.invocations:
        rows[one.turn].append(one.row)
    return [tuple(rows[turn]) for turn in sorted(rows)]


def returns_by_node(trajectories):
    """(prefix of joint actions) -> R; linear prefixes go on alone, so the mean over one child is the plain sum."""
    children, reward = defaultdict(set), {}
    for trajectory in trajectories:
        steps = path(trajectory)
        for turn, value in enumerate(joint_rewards(trajectory)):
            prefix = tuple(steps[: turn + 1])
            reward[prefix] = value
            children[prefix[:-1]].add(prefix)

    def value(prefix):
        below = children.get(prefix)
        return reward[prefix] + (fmean(value(child) for child in below) if below else 0.0)

    return {prefix: value(prefix) for prefix in reward}


def reference(trajectories, cross, tree):
    """row -> advantage."""
    returns = returns_by_node(trajectories)
    groups = defaultdict(dict)
    for prefix, value in returns.items():
        groups[prefix[:-1] if tree else len(prefix)][prefix] = value
    advantages = {}
    for group in groups.values():
        if not cross:
            for prefix, advantage in normalized(group).items():
                advantages.update(dict.fromkeys(prefix[-1], advantage))
            continue
        for position in range(len(ROLES)):
            containing = defaultdict(list)
            for prefix, value in group.items():
                containing[prefix[-1][position]].append(value)
            advantages.update(normalized({row: fmean(values) for row, values in containing.items()}))
    return advantages


@settings(max_examples=40)
@given(
    n=st.integers(1, 3),
    turns=st.integers(1, 2),
    joint=st.sampled_from(["aligned", "cross"]),
    branching=st.sampled_from(["linear", "tree"]),
    salt=st.integers(0, 10**6),
)
def test_what_is_sampled_gets_the_advantages_of_algorithm_1_and_is_trained_on_once(
    world, n, turns, joint, branching, salt
):
    family = world.SumFamily()
    model = ScriptedModel(dict.fromkeys(ROLES, lambda request: str(derive_seed(salt, request.row) % 10)))
    controller = world.make_controller(
        model, family, lambda: Together(max_turns=turns), JointSampling(n, joint, branching)
    )
    trajectories = world.run(controller, family)
    trained = assign_advantages(trajectories, get_estimator("magrpo", joint=joint, branching=branching))

    assert sorted(one.row for one in trained) == sorted(model.published)
    expected = reference(trajectories, joint == "cross", branching == "tree")
    assert {one.row: one.advantage for one in trained} == pytest.approx(expected, abs=1e-6)
    for trajectory in trajectories:
        for one in trajectory.invocations:
            assert one.advantage == pytest.approx(expected[one.row], abs=1e-6)


def record(sample, role, reward, *, turn=0, row=None, parent=None):
    row = row or f"t.{sample}.{role}.{turn}.0"
    return Invocation(row, "t", sample, role, role, turn, 0, "", "", "d", 1, 1, reward=reward, parent=parent)


def whole(sample, *invocations):
    return Trajectory("t", "d", sample, "train", 0, list(invocations), turns=1)


def test_aligned_gives_the_numbers_of_the_specification():
    trajectories = [
        whole(g, record(g, "helper", 0.0), record(g, "main", reward)) for g, reward in enumerate([1.0, 2.0, 3.0, 6.0])
    ]
    trained = assign_advantages(trajectories, get_estimator("magrpo"))
    by_role = {role: [one.advantage for one in trained if one.role == role] for role in ("helper", "main")}
    expected = pytest.approx([-1.069, -0.5345, 0, 1.6036], abs=5e-5)
    assert by_role["helper"] == expected
    assert by_role["main"] == expected
    assign_advantages(trajectories, get_estimator("magrpo", **NONE))
    assert [one.advantage for one in trained if one.role == "main"] == [-2, -1, 0, 3]


@pytest.mark.parametrize(("how", "first", "second"), [("mean", 1.5, 1.0), ("sum", 3.0, 2.0)])
def test_cross_gives_a_response_the_return_of_the_joint_actions_that_contain_it(how, first, second):
    # by hand: joint rewards r(0,0) = 1, r(0,1) = 2, r(1,0) = 3, r(1,1) = 6; the second role's step earns them
    rewards = {(0, 0): 1.0, (0, 1): 2.0, (1, 0): 3.0, (1, 1): 6.0}
    trajectories = []
    for number, ((a, b), reward) in enumerate(rewards.items()):
        held = record(number, "a", 0.0, row=f"t.{a}.a.0.0"), record(number, "b", reward, row=f"t.{b}.b.0.0")
        trajectories.append(whole(number, *held))
    trained = assign_advantages(trajectories, get_estimator("magrpo", joint="cross", cross_return=how, **NONE))
    assert {one.row: one.advantage for one in trained} == {
        "t.0.a.0.0": -first,
        "t.1.a.0.0": first,
        "t.0.b.0.0": -second,
        "t.1.b.0.0": second,
    }


def tree(late=(0.0, 0.0)):
    """Joint actions 0, 1 earn 1, 0; the children of 0 earn 1, 3, those of 1 earn 4, 8. `late` on the leaves of 0."""
    leaves = []
    for parent, own, children in ((0, 1.0, (1.0, 3.0)), (1, 0.0, (4.0, 8.0))):
        for index, reward in enumerate(children):
            number = 2 * parent + index
            root = record(parent, "a", own + (late[index] if parent == 0 else 0.0), parent=-1)
            leaves.append(whole(number, root, record(number, "a", reward, turn=1, parent=parent)))
    return leaves


def test_a_tree_counts_each_joint_action_once_however_many_leaves_it_has():
    # by hand: R = 1 + 2 and 0 + 6
    trained = assign_advantages(tree(), get_estimator("magrpo", branching="tree", **NONE))
    assert {(one.turn, one.sample): one.advantage for one in trained} == {
        (0, 0): -1.5,
        (0, 1): 1.5,
        (1, 0): -1,
        (1, 1): 1,
        (1, 2): -2,
        (1, 3): 2,
    }


def test_a_reward_that_differs_between_the_leaves_counts_with_its_mean():
    # by hand: joint action 0 earns 1 + (2 + 4) / 2 = 4, so R = 6 and 6
    trained = assign_advantages(tree(late=(2.0, 4.0)), get_estimator("magrpo", branching="tree", **NONE))
    assert [one.advantage for one in trained if one.turn == 0] == [0, 0]


def test_the_leaves_share_the_advantage_of_the_joint_action_that_they_pass_through():
    leaves = tree()
    assign_advantages(leaves, get_estimator("magrpo", branching="tree", **NONE))
    assert [leaf.invocations[0].advantage for leaf in leaves] == [-1.5, -1.5, 1.5, 1.5]


def test_different_advantages_for_one_response_are_an_error():
    trajectories = [whole(s, record(s, "a", float(s), row="t.0.a.0.0")) for s in (0, 1)]
    with pytest.raises(ValueError, match=r"row t\.0\.a\.0\.0 is one response, but its advantages are"):
        assign_advantages(trajectories, get_estimator("reinforce"))


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6), st.randoms())
def test_permuting_the_samples_permutes_the_advantages(rewards, random):
    order = list(range(len(rewards)))
    random.shuffle(order)

    def advantages(given_rewards):
        trajectories = [
            whole(g, record(g, "a", reward), record(g, "b", 2 * reward)) for g, reward in enumerate(given_rewards)
        ]
        trained = assign_advantages(trajectories, get_estimator("magrpo"))
        return [one.advantage for one in trained if one.role == "a"]

    straight = advantages(rewards)
    assert advantages([rewards[index] for index in order]) == pytest.approx(
        [straight[index] for index in order], abs=1e-6
    )


def test_a_masked_response_is_in_no_group():
    rows = [record(g, "a", float(g)) for g in range(3)]
    rows[2].masked, rows[2].reward = True, None
    trained = assign_advantages([whole(g, row) for g, row in enumerate(rows)], get_estimator("magrpo", **NONE))
    assert [(one.sample, one.advantage) for one in trained] == [(0, -0.5), (1, 0.5)]
    assert rows[2].advantage is None


def test_the_columns_for_joint_sampling_are_there_when_they_mean_something():
    plain = credits_of([record(0, "a", 1.0)])
    assert plain.parent is None
    below = credits_of([record(0, "a", 1.0, parent=-1), record(1, "a", 1.0, turn=1, parent=0)])
    assert list(below.parent.values) == [-1, 0]
