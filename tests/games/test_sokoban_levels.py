"""Generator and solver: every level can be solved, is a pure function of its seed, and belongs to one split."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_mas_games.sokoban.game import parse_state, roll_out
from verl_mas_games.sokoban.generator import LevelOptions, content_digest, generate, split_of
from verl_mas_games.sokoban.solver import remaining_moves, solve

levels = st.builds(
    generate,
    st.builds(LevelOptions, walls=st.integers(0, 4), boxes=st.just(1)),
    st.integers(0, 2**32),
    st.sampled_from(["train", "val"]),
    st.integers(0, 10**6),
)


def test_the_solver_finds_a_shortest_solution() -> None:
    # By hand: go below the box in two moves (down, right), push it up twice.
    state = parse_state("######\n#--.-#\n#----#\n#-@$-#\n#----#\n######")
    assert solve(state) == "DRUU"
    assert remaining_moves(state)[state.player, state.boxes] == 4


def test_a_solved_state_needs_no_moves() -> None:
    assert solve(parse_state("#####\n#@*-#\n#####")) == ""


@pytest.mark.parametrize(
    "text",
    [
        "######\n#@--$#\n#--.-#\n######",  # the box is in a corner
        "######\n#-$@-#\n#---.#\n######",  # the box is at a wall that has no goal
        "######\n#@#$.#\n######",  # the player cannot reach the box
    ],
)
def test_an_unsolvable_state_has_no_solution(text: str) -> None:
    assert solve(parse_state(text)) is None
    assert remaining_moves(parse_state(text)) == {}


def test_the_solver_gives_up_beyond_the_longest_solution_allowed() -> None:
    state = parse_state("######\n#--.-#\n#----#\n#-@$-#\n#----#\n######")
    assert solve(state, max_length=3) is None
    assert solve(state, max_length=4) == "DRUU"


@settings(max_examples=50)
@given(levels)
def test_every_level_is_solved_by_its_solution_within_the_bounds(level) -> None:
    rollout = roll_out(level.state, level.solution)
    assert rollout.after.solved
    assert all(rollout.legal)
    assert len(rollout.executed) == len(level.solution)
    assert 3 <= len(level.solution) <= 9
    assert not level.state.deadlocked
    assert level.state.boxes_on_goals == 0


@settings(max_examples=30)
@given(levels)
def test_forward_and_backward_search_agree_on_every_position(level) -> None:
    remaining = remaining_moves(level.state)
    assert remaining[level.state.player, level.state.boxes] == len(level.solution)
    for state in roll_out(level.state, level.solution).states:
        shortest = solve(state)
        assert shortest is not None
        assert remaining[state.player, state.boxes] == len(shortest)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from(["train", "val"]), st.integers(0, 10**6))
def test_a_level_depends_on_seed_split_and_index_alone(seed: int, split, index: int) -> None:
    first = generate(LevelOptions(), seed, split, index)
    generate(LevelOptions(), seed, split, index + 1)
    assert generate(LevelOptions(), seed, split, index) == first


def test_levels_stay_the_same_from_version_to_version() -> None:
    # Recorded when the generator was written: a resumed run must find the levels that it left.
    assert generate(LevelOptions(), 0, "train", 0).state.render() == "######\n#@---#\n#-#--#\n#-#--#\n#--$.#\n######"
    assert generate(LevelOptions(), 0, "val", 0).state.render() == "######\n#-#.##\n#----#\n#-@$-#\n#----#\n######"


def test_seeds_and_indices_give_different_levels() -> None:
    digests = {generate(LevelOptions(), seed, "train", index).digest for seed in range(3) for index in range(20)}
    assert len(digests) >= 58  # of 60; hundreds of thousands of levels exist, so a repetition is rare


@settings(max_examples=50)
@given(levels)
def test_the_digest_is_that_of_the_content_and_names_the_split(level) -> None:
    assert level.digest == hashlib.sha256(level.state.render().encode()).hexdigest()
    assert content_digest(parse_state(level.state.render())) == level.digest


def test_no_level_can_be_in_both_splits() -> None:
    train = [generate(LevelOptions(), 0, "train", index).digest for index in range(200)]
    val = [generate(LevelOptions(), 1, "val", index).digest for index in range(200)]
    assert {split_of(digest) for digest in train} == {"train"}
    assert {split_of(digest) for digest in val} == {"val"}


def test_several_boxes_can_be_asked_for() -> None:
    level = generate(LevelOptions(boxes=2, walls=0, max_length=15), 0, "train", 0)
    assert len(level.state.boxes) == 2
    assert roll_out(level.state, level.solution).after.solved


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 3}, "size"),
        ({"boxes": 0}, "boxes"),
        ({"walls": -1}, "walls"),
        ({"walls": 14}, "do not fit"),
        ({"min_length": 0}, "min_length"),
        ({"min_length": 5, "max_length": 4}, "min_length"),
    ],
)
def test_options_that_no_level_meets_are_errors(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LevelOptions(**options)


def test_a_negative_index_and_an_unknown_split_are_errors() -> None:
    with pytest.raises(ValueError, match="index"):
        generate(LevelOptions(), 0, "train", -1)
    with pytest.raises(ValueError, match="split"):
        generate(LevelOptions(), 0, "test", 0)  # type: ignore[arg-type]


def test_options_without_a_level_end_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_mas_games.sokoban.generator._MAX_ATTEMPTS", 50)
    with pytest.raises(RuntimeError, match="no level found in 50 attempts"):
        generate(LevelOptions(size=4, walls=0, min_length=30, max_length=40), 0, "train", 0)
