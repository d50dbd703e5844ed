"""The rules of Sokoban. Expected states are drawn by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas_games.sokoban.game import SYMBOLS, Board, State, border_cells, parse_state, roll_out

OPEN = """\
######
#----#
#-@$.#
#----#
#----#
######"""

moves = st.lists(st.sampled_from("UDLR"), max_size=30)


@st.composite
def states(draw: st.DrawFn) -> State:
    """Any position on a 6x6 grid with up to three boxes and inner walls; need not be solvable."""
    border = border_cells(6, 6)
    inside = draw(st.permutations([cell for cell in range(36) if cell not in border]))
    boxes, walls = draw(st.integers(1, 3)), draw(st.integers(0, 5))
    goals = draw(st.lists(st.sampled_from(inside[walls:]), min_size=boxes, max_size=boxes, unique=True))
    board = Board(6, 6, border | frozenset(inside[:walls]), frozenset(goals))
    return State(board, inside[walls], frozenset(inside[walls + 1 : walls + 1 + boxes]))


def drawn(*rows: str) -> State:
    return parse_state("\n".join(rows))


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        ("U", ["######", "#-@--#", "#--$.#", "#----#", "#----#", "######"]),
        ("D", ["######", "#----#", "#--$.#", "#-@--#", "#----#", "######"]),
        ("L", ["######", "#----#", "#@-$.#", "#----#", "#----#", "######"]),
        ("R", ["######", "#----#", "#--@*#", "#----#", "#----#", "######"]),
    ],
)
def test_each_move_steps_or_pushes(move: str, expected: list[str]) -> None:
    following = parse_state(OPEN).step(move)
    assert following is not None
    assert following.render() == "\n".join(expected)


def test_a_step_into_a_wall_is_illegal() -> None:
    assert drawn("#####", "#@-.#", "#--$#", "#####").step("U") is None


def test_a_push_into_a_wall_is_illegal() -> None:
    assert drawn("#####", "#-@$#", "#--.#", "#####").step("R") is None


def test_a_push_into_another_box_is_illegal() -> None:
    assert drawn("######", "#@$$-#", "#-..-#", "######").step("R") is None


def test_a_move_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError):
        parse_state(OPEN).step("X")


def test_player_and_box_on_goals_are_drawn_apart_from_those_on_the_floor() -> None:
    state = drawn("######", "#+$*-#", "######")
    assert state.render() == "######\n#+$*-#\n######"
    assert state.boxes_on_goals == 1
    assert len(state.board.goals) == 2


def test_the_border_can_be_left_out() -> None:
    assert parse_state(OPEN).render(border=False) == "----\n-@$.\n----\n----"


@pytest.mark.parametrize(
    ("rows", "deadlocked"),
    [
        (["#####", "#$--#", "#-@.#", "#####"], True),  # corner of the border
        (["#####", "#*--#", "#-@-#", "#####"], False),  # the same corner is a goal
        (["######", "#----#", "#-$--#", "#@--.#", "######"], False),  # no wall
        (["######", "#-$--#", "#----#", "#@--.#", "######"], False),  # one wall
        (["######", "#-$--#", "#-#--#", "#@--.#", "######"], False),  # two walls that face each other
        (["######", "#-#--#", "##$--#", "#@--.#", "######"], True),  # corner of inner walls
        (["######", "#*@-$#", "#---.#", "######"], True),  # one box home, one lost
    ],
)
def test_a_box_in_a_corner_that_is_no_goal_is_deadlocked(rows: list[str], deadlocked: bool) -> None:
    assert drawn(*rows).deadlocked is deadlocked


def test_potential_is_minus_the_manhattan_distance_to_the_nearest_goal() -> None:
    # Box at (1, 1): goals at (1, 4) and (3, 2) are 3 and 3 away. Box at (3, 4): 2 and 2 away. psi = -(3 + 2).
    state = drawn("######", "#$--.#", "#--@-#", "#-.-$#", "######")
    assert state.potential == -5


def test_two_boxes_may_share_their_nearest_goal() -> None:
    # Both boxes are 1 away from the goal at (1, 3): psi = -2, as the paper's minimum is taken for each box alone.
    assert drawn("#######", "#-$.$-#", "#@---.#", "#######").potential == -2


def test_a_roll_out_ignores_illegal_moves_and_stops_when_solved() -> None:
    rollout = roll_out(drawn("######", "#@-$.#", "######"), "URRLLL")
    assert rollout.executed == ("U", "R", "R")
    assert rollout.legal == (False, True, True)
    assert rollout.after.render() == "######\n#--@*#\n######"
    assert [state.player - 7 for state in rollout.states] == [0, 1, 2]


def test_a_solved_state_executes_nothing() -> None:
    state = drawn("######", "#@-*-#", "######")
    assert roll_out(state, "LR").executed == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("####\n#@$#\n####", "1 boxes for 0 goals"),
        ("####\n#@-#\n####", "0 boxes"),
        ("####\n#-.$#\n####", "equal length"),
        ("#####\n#-.$#\n#####", "exactly one player"),
        ("######\n#@@.$#\n######", "exactly one player"),
        ("#####\n#@.$-\n#####", "border"),
        ("#####\n#@.x#\n#####", "unknown symbols"),
        ("", "exactly one player"),
    ],
)
def test_text_that_is_no_level_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_state(text)


@given(states())
def test_rendering_and_parsing_are_inverse(state: State) -> None:
    text = state.render()
    assert set(text) <= set(SYMBOLS + "\n")
    assert parse_state(text) == state
    assert hash(parse_state(text)) == hash(state)


@given(states(), moves)
def test_moves_keep_the_boxes_in_number_and_everything_out_of_the_walls(state: State, sequence: list[str]) -> None:
    before = state.render()
    for reached in roll_out(state, sequence).states:
        assert len(reached.boxes) == len(state.boxes)
        assert not (reached.boxes | {reached.player}) & reached.board.walls
        assert reached.player not in reached.boxes
        assert reached.board is state.board
    assert state.render() == before


@given(states(), moves)
def test_a_deadlock_never_goes_away(state: State, sequence: list[str]) -> None:
    deadlocked = [state.deadlocked, *(reached.deadlocked for reached in roll_out(state, sequence).states)]
    assert deadlocked == sorted(deadlocked)


@given(states())
def test_potential_is_never_positive_and_zero_where_every_box_is_on_a_goal(state: State) -> None:
    assert state.potential <= 0
    assert (state.potential == 0) == (state.boxes_on_goals == len(state.boxes))


@given(states(), st.sampled_from("UDLR"))
def test_one_move_changes_the_potential_by_at_most_one(state: State, move: str) -> None:
    assert abs(roll_out(state, [move]).after.potential - state.potential) <= 1
