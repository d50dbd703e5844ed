"""Reads action lists out of what models write. Strict, linear in the length of the text, and nothing is ever evaluated.

Moves are the capital letters U, D, L and R, as in the paper; lower case is malformed. Every function returns the moves,
an empty tuple for an empty list, or None for anything malformed.
"""

from verl_mas_games.sokoban.game import MOVES

Moves = tuple[str, ...]

#: a longer list is malformed: no level needs it, and printing one costs a program nothing
MAX_MOVES = 1000
_MARKER = "####"
_FENCE = "```"


def parse_list(text: str) -> Moves | None:
    """The list that the whole text is: `[U,R,D,L]`, `["U", "R"]` or `['U','R']`; white space does not matter."""
    text = text.strip()
    if len(text) < 2 or text[0] != "[" or text[-1] != "]":
        return None
    inner = text[1:-1].strip()
    if not inner:
        return ()
    moves = tuple(_unquoted(item.strip()) for item in inner.split(",", MAX_MOVES))
    return _checked(moves)


def parse_answer(text: str) -> Moves | None:
    """The list on the first line that has text after the last `####`. Nothing may stand beside the list."""
    _, marker, answer = text.rpartition(_MARKER)
    lines = answer.strip().splitlines()
    return parse_list(lines[0]) if marker and lines else None


def parse_letters(text: str) -> Moves | None:
    """The moves that the whole text spells, for example `URRD`; surrounding white space does not matter."""
    return _checked(tuple(text.strip()[: MAX_MOVES + 1]))


def parse_code(text: str) -> str | None:
    """The content of the only fenced code block, or None unless there is exactly one, opened by ```python."""
    parts = text.split(_FENCE)
    if len(parts) != 3:
        return None
    language, newline, code = parts[1].partition("\n")
    return code if newline and language.strip() == "python" and code.strip() else None


def show(moves: Moves) -> str:
    """The paper's notation: `[U,R,D,L]`. `parse_list` reads it back."""
    return f"[{','.join(moves)}]"


def _unquoted(item: str) -> str:
    if len(item) == 3 and item[0] == item[2] and item[0] in "'\"":
        return item[1]
    return item


def _checked(moves: Moves) -> Moves | None:
    return moves if len(moves) <= MAX_MOVES and all(move in MOVES for move in moves) else None
