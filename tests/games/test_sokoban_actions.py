"""Reading action lists: what is a list, what is not, and where it may stand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas_games.sokoban.actions import MAX_MOVES, parse_answer, parse_code, parse_letters, parse_list, show

moves = st.lists(st.sampled_from("UDLR"), max_size=50)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[U,R,D,L]", ("U", "R", "D", "L")),
        ('["U","R"]', ("U", "R")),
        ("['U', 'R']", ("U", "R")),
        (" [ \"U\" ,R\n, 'D' ]\n", ("U", "R", "D")),
        ("[U]", ("U",)),
        ("[]", ()),
        ("[ ]", ()),
    ],
)
def test_lists_are_read_with_and_without_quotes(text: str, expected: tuple[str, ...]) -> None:
    assert parse_list(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "]",
        "U,R",
        "[U,R",
        "U,R]",
        "[u,r]",  # lower case is no symbol of the paper
        "[U,X]",
        "[UR]",
        "[U R]",
        "[U,,R]",
        "[U,]",
        "[,]",
        "[[U]]",
        "['U\"]",
        "[''U'']",
        "['']",
        "(U,R)",
        "[U,R] and more",
        "Actions: [U,R]",
        "[U][R]",
        "[__import__('os').system('true')]",
        "[\uff35]",  # a full-width U
        "[" * 10_000,
        "[" + "U," * MAX_MOVES + "U]",
    ],
)
def test_anything_else_is_malformed(text: str) -> None:
    assert parse_list(text) is None


def test_the_longest_list_is_read() -> None:
    assert parse_list("[" + ",".join("U" * MAX_MOVES) + "]") == ("U",) * MAX_MOVES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#### [U,R,D,L]", ("U", "R", "D", "L")),
        ("I push the box up.\n#### [U]", ("U",)),
        ("#### [U]\nNo, better:\n#### [D]", ("D",)),
        ("#### [U] #### [D]", ("D",)),
        ("####\n\n[U,R]\n", ("U", "R")),
        ("#### [U,R]\nThis is the simplest plan.", ("U", "R")),
        ("#####[L]", ("L",)),
        ("#### []", ()),
        ("[U,R]", None),
        ("", None),
        ("####", None),
        ("####   \n ", None),
        ("### [U]", None),
        ("#### [U] is best", None),
        ("#### U", None),
        ("#### [U]\n#### none", None),
    ],
)
def test_the_answer_stands_after_the_last_marker(text: str, expected: tuple[str, ...] | None) -> None:
    assert parse_answer(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("URDL", ("U", "R", "D", "L")),
        (" UU\n", ("U", "U")),
        ("", ()),
        ("urdl", None),
        ("UR>DL", None),
        ("[U]", None),
        ("U R", None),
        ("<unk>", None),
        ("U" * (MAX_MOVES + 1), None),
    ],
)
def test_letters_are_read_only_where_they_are_all_of_the_text(text: str, expected: tuple[str, ...] | None) -> None:
    assert parse_letters(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```python\nprint('[U]')\n```", "print('[U]')\n"),
        ("**Code:**\n```python \nx = 1\nprint(x)\n```\nDone.", "x = 1\nprint(x)\n"),
        ("print('[U]')", None),
        ("```\nprint('[U]')\n```", None),
        ("```bash\nls\n```", None),
        ("```python\nprint(1)\n", None),
        ("```python\n\n```", None),
        ("```python```", None),
        ("```python\na\n```\n```python\nb\n```", None),  # the paper: only ONE code block
        ("", None),
    ],
)
def test_code_is_the_only_fenced_block(text: str, expected: str | None) -> None:
    assert parse_code(text) == expected


@given(moves)
def test_what_is_shown_and_what_python_prints_can_be_read_back(sequence: list[str]) -> None:
    assert parse_list(show(tuple(sequence))) == tuple(sequence)
    assert parse_list(str(sequence)) == tuple(sequence)
    assert parse_list(json.dumps(sequence)) == tuple(sequence)
    assert parse_letters("".join(sequence)) == tuple(sequence)


@given(st.text())
def test_no_text_makes_a_reader_raise_or_let_another_symbol_through(text: str) -> None:
    for read in (parse_list, parse_answer, parse_letters):
        assert set(read(text) or ()) <= set("UDLR")
    assert parse_code(text) is None or "```python" in text
