"""Levels from a seed: every level is solvable within given lengths, and the splits cannot share a level."""

import hashlib
import random
from dataclasses import dataclass

from verl_mas.workflow.environment import Split
from verl_mas_games.sokoban.game import Board, State, border_cells
from verl_mas_games.sokoban.solver import solve

_MAX_ATTEMPTS = 100_000


@dataclass(frozen=True, slots=True)
class LevelOptions:
    """What levels to make.

    Attributes:
        size: rows and columns of the grid, border walls included (the paper: 6).
        boxes: number of boxes, and of goals.
        walls: walls inside the border.
        min_length, max_length: bounds of the shortest solution, in moves.
    Raises ValueError for options that no level can meet.
    """

    size: int = 6
    boxes: int = 1
    walls: int = 2
    min_length: int = 3
    max_length: int = 9

    def __post_init__(self) -> None:
        if self.size < 4:
            raise ValueError(f"size must be at least 4, got {self.size}")
        if self.boxes < 1 or self.walls < 0:
            raise ValueError(f"need boxes >= 1 and walls >= 0, got {self.boxes} and {self.walls}")
        if 2 * self.boxes + self.walls + 1 > (self.size - 2) ** 2:
            raise ValueError(
                f"{self.boxes} boxes and {self.walls} walls do not fit into a {self.size}x{self.size} grid"
            )
        if not 1 <= self.min_length <= self.max_length:
            raise ValueError(f"need 1 <= min_length <= max_length, got {self.min_length} and {self.max_length}")


@dataclass(frozen=True, slots=True)
class Level:
    """A start state, its content hash and a shortest solution."""

    state: State
    digest: str
    solution: str


def content_digest(state: State) -> str:
    """SHA-256 of the rendered state: equal digests are equal levels."""
    return hashlib.sha256(state.render().encode()).hexdigest()


def split_of(digest: str) -> Split:
    """The only split in which a level with this content hash may appear.

    The lowest bit decides, so the splits are disjoint by construction, for all seeds and options together: no level
    that one run trains on, and none that the embedded model was warmed up on, is ever a validation level.
    """
    return "val" if int(digest[-1], 16) % 2 else "train"


def generate(options: LevelOptions, seed: int, split: Split, index: int) -> Level:
    """The `index`-th level of a split: a pure function of its arguments.

    Raises ValueError for a negative index or an unknown split, and RuntimeError where the options leave (almost)
    no level to find.
    """
    if index < 0:
        raise ValueError(f"index must not be negative, got {index}")
    if split not in ("train", "val"):
        raise ValueError(f"split must be 'train' or 'val', got {split!r}")
    rng = random.Random(f"sokoban/{seed}/{split}/{index}")
    for _ in range(_MAX_ATTEMPTS):
        state = _random_state(options, rng)
        if state.deadlocked:
            continue
        digest = content_digest(state)
        if split_of(digest) != split:
            continue
        solution = solve(state, options.max_length)
        if solution is not None and len(solution) >= options.min_length:
            return Level(state, digest, solution)
    raise RuntimeError(f"no level found in {_MAX_ATTEMPTS} attempts with {options}")


def _random_state(options: LevelOptions, rng: random.Random) -> State:
    size = options.size
    border = border_cells(size, size)
    inside = [cell for cell in range(size * size) if cell not in border]
    cells = rng.sample(inside, 1 + 2 * options.boxes + options.walls)
    player, cells = cells[0], cells[1:]
    boxes, goals, walls = cells[: options.boxes], cells[options.boxes : 2 * options.boxes], cells[2 * options.boxes :]
    return State(Board(size, size, border | frozenset(walls), frozenset(goals)), player, frozenset(boxes))
