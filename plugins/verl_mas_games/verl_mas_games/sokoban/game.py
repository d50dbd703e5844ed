"""The game of Sokoban: boards, states, moves, deadlocks and text. Pure and immutable; knows no roles and no rewards."""

from collections.abc import Iterable
from dataclasses import dataclass

#: the four moves, as (row, column) steps
MOVES: dict[str, tuple[int, int]] = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}

_WALL, _FLOOR, _GOAL, _BOX, _BOX_ON_GOAL, _PLAYER, _PLAYER_ON_GOAL = "#", "-", ".", "$", "*", "@", "+"
#: every symbol that `State.render` writes: wall, floor, goal, box, box on a goal, player, player on a goal
SYMBOLS = _WALL + _FLOOR + _GOAL + _BOX + _BOX_ON_GOAL + _PLAYER + _PLAYER_ON_GOAL


@dataclass(frozen=True, slots=True)
class Board:
    """What never moves. A cell is the number `row * columns + column`; the whole border is wall.

    Raises ValueError where the border is open or a goal lies in a wall.
    """

    rows: int
    columns: int
    walls: frozenset[int]
    goals: frozenset[int]

    def __post_init__(self) -> None:
        if self.rows < 3 or self.columns < 3:
            raise ValueError(f"a board needs at least 3 rows and 3 columns, got {self.rows} x {self.columns}")
        if not border_cells(self.rows, self.columns) <= self.walls:
            raise ValueError("the border of a board must be wall")
        if self.goals & self.walls:
            raise ValueError("a goal lies in a wall")

    def offset(self, move: str) -> int:
        """What a move adds to the number of a cell."""
        row, column = MOVES[move]
        return row * self.columns + column

    def distance(self, cell: int, other: int) -> int:
        """Manhattan distance between two cells."""
        row, column = divmod(cell, self.columns)
        other_row, other_column = divmod(other, self.columns)
        return abs(row - other_row) + abs(column - other_column)

    def is_dead_corner(self, cell: int) -> bool:
        """Whether a box in this cell could never leave it and is not on a goal: walls on two sides that meet."""
        if cell in self.goals:
            return False
        vertical = cell - self.columns in self.walls or cell + self.columns in self.walls
        horizontal = cell - 1 in self.walls or cell + 1 in self.walls
        return vertical and horizontal


@dataclass(frozen=True, slots=True)
class State:
    """A position of the game. Hashable; a move gives a new state.

    Raises ValueError where player, boxes and walls overlap, or boxes and goals differ in number.
    """

    board: Board
    player: int
    boxes: frozenset[int]

    def __post_init__(self) -> None:
        if len(self.boxes) != len(self.board.goals) or not self.boxes:
            raise ValueError(f"{len(self.boxes)} boxes for {len(self.board.goals)} goals")
        if self.player in self.boxes or self.player in self.board.walls or self.boxes & self.board.walls:
            raise ValueError("player, boxes and walls must not overlap")

    @property
    def solved(self) -> bool:
        """Whether every box is on a goal."""
        return self.boxes == self.board.goals

    @property
    def boxes_on_goals(self) -> int:
        """b_k of the paper (at_grpo A.1.5)."""
        return len(self.boxes & self.board.goals)

    @property
    def deadlocked(self) -> bool:
        """Whether a box that is not on a goal stands in a corner (the standard static corner deadlock)."""
        return any(self.board.is_dead_corner(box) for box in self.boxes)

    @property
    def potential(self) -> int:
        """psi_k of the paper (A.1.5): minus the boxes' Manhattan distances to their nearest goals, added up."""
        return -sum(min(self.board.distance(box, goal) for goal in self.board.goals) for box in self.boxes)

    def step(self, move: str) -> "State | None":
        """The state after a move of MOVES, or None where it is illegal: into a wall, or a push into a wall or a box.

        Raises KeyError for a move that is none of U, D, L, R.
        """
        offset = self.board.offset(move)
        target = self.player + offset
        if target in self.board.walls:
            return None
        if target not in self.boxes:
            return State(self.board, target, self.boxes)
        beyond = target + offset
        if beyond in self.board.walls or beyond in self.boxes:
            return None
        return State(self.board, target, self.boxes - {target} | {beyond})

    def symbol(self, cell: int) -> str:
        """The one of SYMBOLS that shows this cell."""
        goal = cell in self.board.goals
        if cell in self.board.walls:
            return _WALL
        if cell == self.player:
            return _PLAYER_ON_GOAL if goal else _PLAYER
        if cell in self.boxes:
            return _BOX_ON_GOAL if goal else _BOX
        return _GOAL if goal else _FLOOR

    def render(self, border: bool = True) -> str:
        """The state as text, one line per row, with or without the border walls."""
        margin = 0 if border else 1
        rows, columns = self.board.rows, self.board.columns
        return "\n".join(
            "".join(self.symbol(row * columns + column) for column in range(margin, columns - margin))
            for row in range(margin, rows - margin)
        )


@dataclass(frozen=True, slots=True)
class Rollout:
    """What a list of moves did to a state.

    Attributes:
        before, after: the states around it.
        executed: the moves that were tried, in order: all of them, or up to the one that solved the game.
        legal: for each executed move, whether it was legal. An illegal move leaves the state as it is.
        states: the state after each executed move.
    """

    before: State
    after: State
    executed: tuple[str, ...]
    legal: tuple[bool, ...]
    states: tuple[State, ...]


def roll_out(state: State, moves: Iterable[str]) -> Rollout:
    """Execute moves one by one and stop when the game is solved. Changes nothing: the states are new.

    Raises KeyError for a move that is none of U, D, L, R.
    """
    executed: list[str] = []
    legal: list[bool] = []
    states: list[State] = []
    current = state
    for move in moves:
        if current.solved:
            break
        following = current.step(move)
        current = current if following is None else following
        executed.append(move)
        legal.append(following is not None)
        states.append(current)
    return Rollout(state, current, tuple(executed), tuple(legal), tuple(states))


def border_cells(rows: int, columns: int) -> frozenset[int]:
    """The cells of the outermost rows and columns."""
    return frozenset(
        row * columns + column
        for row in range(rows)
        for column in range(columns)
        if row in (0, rows - 1) or column in (0, columns - 1)
    )


def parse_state(text: str) -> State:
    """Read what `State.render` writes with its border. Raises ValueError for anything else."""
    lines = text.split("\n")
    columns = len(lines[0])
    if any(len(line) != columns for line in lines):
        raise ValueError("the rows of a board must have equal length")
    cells = dict(enumerate("".join(lines)))
    unknown = sorted(set(cells.values()) - set(SYMBOLS))
    if unknown:
        raise ValueError(f"unknown symbols {unknown}; a board is written with {SYMBOLS!r}")
    players = [cell for cell, symbol in cells.items() if symbol in (_PLAYER, _PLAYER_ON_GOAL)]
    if len(players) != 1:
        raise ValueError(f"a board needs exactly one player, found {len(players)}")

    def cells_with(*symbols: str) -> frozenset[int]:
        return frozenset(cell for cell, symbol in cells.items() if symbol in symbols)

    board = Board(len(lines), columns, cells_with(_WALL), cells_with(_GOAL, _BOX_ON_GOAL, _PLAYER_ON_GOAL))
    return State(board, players[0], cells_with(_BOX, _BOX_ON_GOAL))
