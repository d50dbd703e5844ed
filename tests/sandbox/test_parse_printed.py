"""Text from an untrusted program becomes a value, exactly, or a ValueError; it is never executed."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_mas.sandbox import parse_printed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('["up", "left"]\n', ["up", "left"]),
        ("['up', 'left']", ["up", "left"]),
        ("(1, 2)", (1, 2)),
        ("  {1: None, 'a': True} ", {1: None, "a": True}),
        ("true", True),
        ("True", True),
        ("null", None),
        ("12345678901234567890123", 12345678901234567890123),
        ("1.5", 1.5),
    ],
)
def test_json_and_python_literals_are_read(text, value):
    assert parse_printed(text) == value
    assert type(parse_printed(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "up, left and so on",
        "__import__('os').getpid()",
        "[x for x in (1, 2)]",
        "NaN",
        "[Infinity]",
        '{"a": 1, "a": [',
        "[1] [2]",
        "[" * 100_000,
        "-" * 100_000 + "1",
        "9" * 5000,
        "{[]: 1}",
        "\0",
        "'\ud800",
    ],
)
def test_other_text_is_a_value_error(text):
    with pytest.raises(ValueError, match="neither JSON nor a Python literal"):
        parse_printed(text)


@settings(max_examples=50)
@given(VALUES)
def test_a_value_survives_printing_as_json(value):
    assert parse_printed(json.dumps(value)) == value


@settings(max_examples=50)
@given(VALUES)
def test_a_value_survives_printing_as_python(value):
    assert parse_printed(repr(value)) == value


@given(st.text())
def test_any_text_is_a_value_or_a_value_error(text):
    try:
        parse_printed(text)
    except ValueError as error:
        assert "neither JSON nor a Python literal" in str(error)  # noqa: PT017 - both outcomes are right
