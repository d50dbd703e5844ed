"""Reads values from what an untrusted program printed, without executing anything."""

import ast
import json
from typing import Any


def parse_printed(text: str) -> Any:
    """The value that `text` denotes: as JSON, otherwise as a Python literal (`ast.literal_eval`).

    Integers stay integers, so that they compare exactly. The words NaN and Infinity are refused.

    Raises:
        ValueError: the text is neither, or is nested too deeply, or has more digits than Python converts.
    """
    stripped = text.strip()
    try:
        return json.loads(stripped, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        try:
            return ast.literal_eval(stripped)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            shown = stripped if len(stripped) <= 80 else f"{stripped[:80]}..."
            raise ValueError(f"neither JSON nor a Python literal: {shown!r}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
