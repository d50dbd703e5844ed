"""The Sokoban rewards of AT-GRPO, appendix A.1.5: team score, and local component scores of planner and tool.

The paper scores one action a_k per turn, while its roles give action lists. Read for a list, turn k goes from the state
before the list (k-1) to the state after it (k):

- fmt: the list can be parsed, is not empty, and all of its symbols are U, D, L or R;
- leg (planner) and exec (tool): each executed move is legal: no step or push into a wall, no push into another box;
- dlk: no box stands in a dead corner after the list. Such a box never leaves, so looking at the end is enough;
- pot: psi after the list is not below psi before it.

`list_score` says how the per-move indicators leg and exec become a score of the list. "all" (default) keeps them
indicators, as the paper defines them: one illegal move fails the list. "mean" is the share of legal moves, a denser
signal. For lists of one move both are the paper's formula.

"slots" reads a turn as `max_actions` actions a_k, each scored as the paper says, and averages: a slot that the list
leaves empty has no action and earns nothing, and once the level is solved the slots that are left count as filled.
Under the other two readings a list of one safe move earns the full local reward, so a policy that learns quickly learns
to stop early instead of to solve; here it has to fill its slots with legal moves.

A list that is missing, malformed or empty moves nothing and earns no local reward: every component of the planner is 0
(else doing nothing would earn leg and dlk), and the tool is masked as in the paper, for without an execution there is
neither a log nor a psi_k.
"""

from typing import Literal

from verl_mas.rewards.parts import Component, RewardParts
from verl_mas_games.sokoban.actions import Moves
from verl_mas_games.sokoban.game import Rollout, State, roll_out

ListScore = Literal["all", "mean", "slots"]
LIST_SCORES = ("all", "mean", "slots")

#: lambda_sok of the paper, for `mixing: convex`
TEAM_WEIGHT = 0.40
PLANNER_WEIGHTS = {"fmt": 0.10, "leg": 0.45, "dlk": 0.45}
TOOL_WEIGHTS = {"fmt": 0.10, "exec": 0.30, "pot": 0.60}


def team_score(state: State) -> float:
    """r_team of A.1.5: b_k / B, which is 1 if all boxes are on goals."""
    return state.boxes_on_goals / len(state.boxes)


def planner_reward(
    state: State, moves: Moves | None, list_score: ListScore = "all", slots: int | None = None
) -> tuple[RewardParts, Rollout]:
    """The planner's scores for executing `moves` from `state`, and what they did. The mask is 1: the grid is known.

    Args:
        slots: actions in a turn, for list_score="slots".
    """
    rollout = roll_out(state, moves or ())
    if moves:
        filled = _filled(rollout, list_score, slots)
        scores = {
            "fmt": filled,
            "leg": filled * _legality(rollout, list_score),
            "dlk": filled * (not rollout.after.deadlocked),
        }
    else:
        scores = dict.fromkeys(PLANNER_WEIGHTS, 0.0)
    return _parts(rollout.after, PLANNER_WEIGHTS, scores, mask=1.0), rollout


def tool_reward(
    state: State, moves: Moves | None, list_score: ListScore = "all", slots: int | None = None
) -> tuple[RewardParts, Rollout]:
    """The tool's scores for simulating `moves` from `state`, and what they would do. Masked where there is no list.

    Args:
        slots: actions in a turn, for list_score="slots".
    """
    rollout = roll_out(state, moves or ())
    if moves:
        filled = _filled(rollout, list_score, slots)
        scores = {
            "fmt": filled,
            "exec": filled * _legality(rollout, list_score),
            "pot": filled * (rollout.after.potential >= state.potential),
        }
    else:
        scores = dict.fromkeys(TOOL_WEIGHTS, 0.0)
    return _parts(rollout.after, TOOL_WEIGHTS, scores, mask=float(bool(moves))), rollout


def _filled(rollout: Rollout, list_score: ListScore, slots: int | None) -> float:
    """The share of the turn's action slots that are filled: 1 unless slots are counted and the list is too short."""
    if list_score != "slots" or rollout.after.solved:
        return 1.0
    if slots is None:
        raise ValueError("list_score=slots needs max_actions, the number of slots")
    return len(rollout.executed) / slots


def _legality(rollout: Rollout, list_score: ListScore) -> float:
    """Whether all executed moves were legal, or the share of them that were."""
    if list_score == "all":
        return float(all(rollout.legal))
    return sum(rollout.legal) / len(rollout.legal) if rollout.legal else 1.0


def _parts(after: State, weights: dict[str, float], scores: dict[str, float], mask: float) -> RewardParts:
    local = {name: Component(weight, scores[name]) for name, weight in weights.items()}
    return RewardParts(team=team_score(after), local=local, mask=mask)
