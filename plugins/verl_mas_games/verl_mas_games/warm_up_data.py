"""Noisy solver traces from which the embedded model learns the format, and the game a little."""

import random
from dataclasses import dataclass

from verl_mas_games.sokoban.game import MOVES, State, roll_out
from verl_mas_games.sokoban.generator import LevelOptions, content_digest, generate, split_of
from verl_mas_games.sokoban.prompts import COMPACT
from verl_mas_games.sokoban.solver import Position, remaining_moves


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How to make examples.

    Attributes:
        levels: number of training levels, drawn with `walls` inner walls each in turn.
        states_per_level: start states taken from each level: its own and others reachable from it.
        max_moves: longest answer.
        noise: chance that a move of an answer is drawn from all four moves instead of the solver's.
        proposal_noise: the same for the proposals that the planner sees.
        hesitation: chance, after each move of an answer, that the answer ends there. The warmed-up model then plays a
            move or two at a time, and how far to commit is left for reinforcement learning to find out.
        adopt: chance that the planner's answer repeats a proposal that solves the level.
        no_proposal: chance that the planner sees no proposal, as after a malformed one.
    """

    levels: int = 9000
    walls: tuple[int, ...] = (1, 2, 3)
    min_length: int = 3
    max_length: int = 9
    states_per_level: int = 5
    max_moves: int = 10
    noise: float = 0.1
    proposal_noise: float = 0.2
    hesitation: float = 0.5
    adopt: float = 0.8
    no_proposal: float = 0.05


def examples(options: TraceOptions, seed: int) -> list[tuple[str, str]]:
    """Pairs of prompt and answer for both roles, in a random order that the seed decides.

    Only states of the training split are used, so no validation level (of any seed) is ever among them.
    """
    rng = random.Random(f"warm-up/{seed}")
    pairs: list[tuple[str, str]] = []
    for index in range(options.levels):
        walls = options.walls[index % len(options.walls)]
        level_options = LevelOptions(walls=walls, min_length=options.min_length, max_length=options.max_length)
        level = generate(level_options, seed, "train", index)
        remaining = remaining_moves(level.state)
        starts = [position for position, length in remaining.items() if 1 <= length <= options.max_moves]
        for player, boxes in rng.sample(starts, min(options.states_per_level, len(starts))):
            state = State(level.state.board, player, boxes)
            if split_of(content_digest(state)) == "train":
                pairs.extend(_pairs(state, remaining, options, rng))
    rng.shuffle(pairs)
    return pairs


def noisy_trace(
    state: State, remaining: dict[Position, int], max_moves: int, noise: float, rng: random.Random
) -> tuple[str, ...]:
    """Moves of a solver that errs with chance `noise` at each move, up to a solved or a lost state or `max_moves`."""
    moves: list[str] = []
    while len(moves) < max_moves and not state.solved:
        if (state.player, state.boxes) not in remaining:
            break
        move = rng.choice(list(MOVES)) if rng.random() < noise else rng.choice(best_moves(state, remaining))
        moves.append(move)
        state = state.step(move) or state
    return tuple(moves)


def best_moves(state: State, remaining: dict[Position, int]) -> list[str]:
    """The moves that begin a shortest solution. `remaining` is that of a state from which this one is reachable."""
    length = remaining[state.player, state.boxes]
    followers = {move: state.step(move) for move in MOVES}
    return [
        move
        for move, follower in followers.items()
        if follower is not None and remaining.get((follower.player, follower.boxes)) == length - 1
    ]


def _pairs(
    state: State, remaining: dict[Position, int], options: TraceOptions, rng: random.Random
) -> list[tuple[str, str]]:
    grid = state.render(border=False)
    tool_answer = noisy_trace(state, remaining, options.max_moves, options.noise, rng)
    proposal = noisy_trace(state, remaining, options.max_moves, options.proposal_noise, rng)
    planner_answer = noisy_trace(state, remaining, options.max_moves, options.noise, rng)
    if rng.random() < options.no_proposal:
        proposal = ()
    elif roll_out(state, proposal).after.solved and rng.random() < options.adopt:
        planner_answer = proposal
    return [
        (COMPACT["tool"].format(grid=grid), "".join(cut(tool_answer, options.hesitation, rng))),
        (
            COMPACT["planner"].format(grid=grid, proposal="".join(proposal)),
            "".join(cut(planner_answer, options.hesitation, rng)),
        ),
    ]


def cut(answer: tuple[str, ...], hesitation: float, rng: random.Random) -> tuple[str, ...]:
    """The beginning of an answer, at least one move of it, that ends after each move with chance `hesitation`."""
    length = 1
    while length < len(answer) and rng.random() >= hesitation:
        length += 1
    return answer[:length]
