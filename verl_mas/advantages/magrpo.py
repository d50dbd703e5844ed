"""MAGRPO: the advantage of a joint action, the same for every role."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from verl_mas.advantages.base import SCHEMES, Estimator
from verl_mas.advantages.credits import Credits
from verl_mas.advantages.grouping import Groups, deviations, join, standardized, suffix_sums

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_EPS = 1e-6


@dataclass(frozen=True, kw_only=True)
class Magrpo(Estimator):
    """A_t(g) = (R_t(g) - mean) / (std + 1e-6) over the joint actions g at turn t of a task; MAGRPO, Alg. 1, Eq. 1.

    A joint action is (task, sample, turn); it counts once in the statistics, however many roles have a row of it.

    Options:
        joint: "aligned": sample g of every role makes joint action g. "cross": the Cartesian product; every
            (joint action, role) has a row, and Credits.candidate says which response of the role it holds. The return
            of a response is that of the joint actions containing it, compared over the responses of its role.
        cross_return: "mean" or "sum" over those joint actions.
        branching: "linear" (the paper): R_t is the sum of the rewards from t on. "tree": each joint action has
            children, found by Credits.parent, and R = r + gamma * mean of the children's R; a group is the children
            of one joint action.
        gamma: discount of the tree, in [0, 1].
        normalize: "std" (population, ddof 0) or "none", which leaves R - mean.
        joint_reward: "sum": the rewards of the roles add up to the joint reward. "shared": every role's row holds the
            whole joint reward, which counts once; unequal rows raise ValueError. Under "std" the two agree where
            every joint action has the same number of rows.

    Raises, when called:
        ValueError: a column that the options need is missing, or rows that contradict each other.
    """

    name: ClassVar[str] = "magrpo"
    joint: Literal["aligned", "cross"] = "aligned"
    cross_return: Literal["mean", "sum"] = "mean"
    branching: Literal["linear", "tree"] = "linear"
    gamma: float = 1.0
    normalize: Literal["std", "none"] = "std"
    joint_reward: Literal["sum", "shared"] = "sum"

    def __post_init__(self) -> None:
        self.check_choice("joint", ("aligned", "cross"))
        self.check_choice("cross_return", ("mean", "sum"))
        self.check_choice("branching", ("linear", "tree"))
        self.check_choice("normalize", ("std", "none"))
        self.check_choice("joint_reward", ("sum", "shared"))
        gamma: object = self.gamma
        if isinstance(gamma, bool) or not isinstance(gamma, int | float) or not (isfinite(gamma) and 0 <= gamma <= 1):
            raise ValueError(f"magrpo option gamma must be a number in [0, 1], not {gamma!r}")
        if self.branching == "linear" and gamma != 1:
            raise ValueError(f"magrpo option gamma={gamma} needs branching: tree; a linear return is not discounted")

    def refusals(self) -> Mapping[str, str]:
        no_children = "its joint actions have no children (branching: linear works without)"
        if self.branching == "tree":
            usable, reason = {"joint_tree" if self.joint == "aligned" else "joint_cross_tree"}, no_children
        elif self.joint == "cross":
            usable, reason = {"joint_cross"}, "it does not cross the responses of the roles (option joint)"
        else:
            usable, reason = {"joint_aligned", "parallel"}, "sample g does not hold one response of every role"
        refused = {scheme: reason for scheme in SCHEMES if scheme not in usable}
        if "tree" in refused:
            refused["tree"] = "roles answer one after the other, so candidates of several roles make no joint action"
        if self.branching == "linear":
            refused |= dict.fromkeys(
                ("joint_tree", "joint_cross_tree"), "joint actions have children of their own (branching: tree works)"
            )
        if self.joint == "aligned":
            own = "joint_cross" if self.branching == "linear" else "joint_cross_tree"
            refused[own] = "a response is part of several joint actions (joint: cross works)"
        elif self.branching == "tree":
            refused["joint_tree"] = "it does not cross the responses of the roles (joint: aligned works)"
        return refused

    def estimate(self, credits: Credits) -> FloatArray:
        nodes = credits.groups("task", "sample", "turn")  # in the order of the turns within a trajectory
        reward = self._joint_rewards(credits, nodes)
        if self.branching == "linear":
            trajectory = credits.groups("task", "sample").codes[nodes.first]
            returns = suffix_sums(reward, trajectory)
            states = credits.groups("task", "turn")
        else:
            parents = _parents(credits, nodes)
            returns = _tree_returns(reward, parents, credits.turn.codes[nodes.first], self.gamma)
            # siblings follow one parent; the roots of a task follow none
            levels = credits.groups("task", "turn")
            states = join([(levels.codes, levels.count), (parents[nodes.codes] + 1, nodes.count + 1)], len(credits))
        if self.joint == "aligned":
            group = join([(states.codes[nodes.first], states.count)], nodes.count)
            return self._normalized(returns, group)[nodes.codes]
        return self._crossed(credits, nodes, states, returns)

    def _joint_rewards(self, credits: Credits, nodes: Groups) -> FloatArray:
        if self.joint_reward == "sum":
            return nodes.sum(credits.reward)
        reward = credits.reward[nodes.first]
        if (unequal := np.flatnonzero(credits.reward != reward[nodes.codes])).size:
            where = credits.describe(int(unequal[0]), ("task", "sample", "turn"))
            raise ValueError(f"reward: with joint_reward: shared the rows of one joint action must agree ({where})")
        return reward

    def _crossed(self, credits: Credits, nodes: Groups, states: Groups, returns: FloatArray) -> FloatArray:
        """Compare the responses of a role by the joint actions that contain them, shape (n,)."""
        if credits.candidate is None:
            raise ValueError("candidate: magrpo with joint: cross needs this column, the response that a row holds")
        role, candidate = credits.role, credits.candidate
        members = join([(nodes.codes, nodes.count), (role.codes, role.size)], len(credits))
        if members.count != len(credits):
            row = int(np.flatnonzero(members.sizes[members.codes] > 1)[0])
            where = credits.describe(row, ("task", "sample", "turn", "role"))
            raise ValueError(f"candidate: a role has more than one response in one joint action ({where})")
        roles = join([(states.codes, states.count), (role.codes, role.size)], len(credits))
        responses = join([(roles.codes, roles.count), (candidate.codes, candidate.size)], len(credits))
        value = responses.sum(returns[nodes.codes])
        if self.cross_return == "mean":
            value /= responses.sizes
        group = join([(roles.codes[responses.first], roles.count)], responses.count)
        return self._normalized(value, group)[responses.codes]

    def _normalized(self, returns: FloatArray, groups: Groups) -> FloatArray:
        if self.normalize == "none":
            return deviations(returns, groups)
        return standardized(returns, groups, ddof=0, eps=_EPS)


def _parents(credits: Credits, nodes: Groups) -> IntArray:
    """The node of the parent of each node, -1 for a root, shape (nodes.count,)."""
    turn, sample = np.asarray(credits.turn.values, dtype=np.int64), np.asarray(credits.sample.values)
    if credits.parent is None:
        if credits.groups("turn").count > 1:
            raise ValueError("parent: magrpo with branching: tree and several turns needs this column")
        return np.full(nodes.count, -1, dtype=np.int64)
    if sample.dtype.kind != "i":
        raise ValueError("sample: magrpo with branching: tree needs whole numbers, to which parent refers")
    parent = np.asarray(credits.parent.values, dtype=np.int64)
    first = nodes.first
    if (unequal := np.flatnonzero(parent != parent[first][nodes.codes])).size:
        where = credits.describe(int(unequal[0]), ("task", "sample", "turn"))
        raise ValueError(f"parent: the rows of one joint action must agree ({where})")
    # look every (task, turn - 1, parent) up among the (task, turn, sample): equal codes in one joint numbering
    wanted = np.flatnonzero(parent[first] != -1)
    task = credits.task.codes[first]
    keys = [
        np.concatenate([task, task[wanted]]),
        np.concatenate([turn[first], turn[first][wanted] - 1]),
        np.concatenate([sample[first], parent[first][wanted]]),
    ]
    coded = [np.unique(key, return_inverse=True) for key in keys]
    both = join([(codes.astype(np.int64, copy=False), unique.size) for unique, codes in coded], keys[0].size).codes
    node_of = np.full(int(both.max()) + 1, -1, dtype=np.int64)
    node_of[both[: nodes.count]] = np.arange(nodes.count)
    found = node_of[both[nodes.count :]]
    if (missing := np.flatnonzero(found < 0)).size:
        row = int(first[wanted[missing[0]]])
        where = credits.describe(row, ("task", "sample", "turn"))
        raise ValueError(f"parent[{row}]: no joint action {parent[row]} one turn earlier ({where})")
    parents = np.full(nodes.count, -1, dtype=np.int64)
    parents[wanted] = found
    return parents


def _tree_returns(reward: FloatArray, parents: IntArray, turn: IntArray, gamma: float) -> FloatArray:
    """R = r + gamma * mean of the children's R, from the last turn to the first; all of shape (nodes,)."""
    returns = reward.copy()
    child = parents >= 0
    num_children = np.bincount(parents[child], minlength=reward.size)
    order = np.argsort(turn, kind="stable")
    for level in reversed(np.split(order, np.flatnonzero(np.diff(turn[order])) + 1)):
        children = level[child[level]]
        above = parents[children]
        np.add.at(returns, above, gamma * returns[children] / num_children[above])
    return returns
