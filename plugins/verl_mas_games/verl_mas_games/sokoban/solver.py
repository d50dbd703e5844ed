"""Shortest solutions by breadth-first search: assures that a generated level can be solved, and guides the warm-up."""

from collections import deque
from collections.abc import Iterator

from verl_mas_games.sokoban.game import MOVES, State

#: what moves: the player's cell and the boxes' cells
Position = tuple[int, frozenset[int]]


def solve(state: State, max_length: int | None = None) -> str | None:
    """A shortest solution such as "UURD" ("" for a solved state), or None where none exists.

    Arguments:
        max_length: give up on solutions with more moves than this.
    """
    start = (state.player, state.boxes)
    came_from: dict[Position, tuple[Position, str] | None] = {start: None}
    frontier = [start]
    length = 0
    while frontier:
        for position in frontier:
            if position[1] == state.board.goals:
                return _moves_to(position, came_from)
        if length == max_length:
            return None
        length += 1
        following: list[Position] = []
        for position in frontier:
            for move, neighbour in neighbours(state, position):
                if neighbour not in came_from:
                    came_from[neighbour] = (position, move)
                    following.append(neighbour)
        frontier = following
    return None


def remaining_moves(state: State) -> dict[Position, int]:
    """For every position reachable from `state` that can still be solved, the number of moves that it needs.

    Solved positions count 0. Positions without a solution are absent.
    """
    start = (state.player, state.boxes)
    reached_from: dict[Position, list[Position]] = {start: []}
    queue = deque([start])
    while queue:
        position = queue.popleft()
        if position[1] == state.board.goals:
            continue
        for _, neighbour in neighbours(state, position):
            if neighbour not in reached_from:
                reached_from[neighbour] = []
                queue.append(neighbour)
            reached_from[neighbour].append(position)
    remaining = {position: 0 for position in reached_from if position[1] == state.board.goals}
    queue = deque(remaining)
    while queue:
        position = queue.popleft()
        for earlier in reached_from[position]:
            if earlier not in remaining:
                remaining[earlier] = remaining[position] + 1
                queue.append(earlier)
    return remaining


def neighbours(state: State, position: Position) -> Iterator[tuple[str, Position]]:
    """The legal moves from a position and where they lead, except pushes into a dead corner.

    The rules of `State.step` once more, over bare numbers: the search spends its time here.
    """
    board = state.board
    player, boxes = position
    for move in MOVES:
        offset = board.offset(move)
        target = player + offset
        if target in board.walls:
            continue
        if target not in boxes:
            yield move, (target, boxes)
            continue
        beyond = target + offset
        if beyond not in board.walls and beyond not in boxes and not board.is_dead_corner(beyond):
            yield move, (target, boxes - {target} | {beyond})


def _moves_to(position: Position, came_from: dict[Position, tuple[Position, str] | None]) -> str:
    moves: list[str] = []
    step = came_from[position]
    while step is not None:
        position, move = step
        moves.append(move)
        step = came_from[position]
    return "".join(reversed(moves))
