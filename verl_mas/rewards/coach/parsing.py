"""Reading a coach's verdict: the last well-formed line outside quoted text, or no score; never a guess."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

PROCESS_SCORE = "PROCESS_SCORE"
OUTCOME_CONTRIBUTION = "OUTCOME_CONTRIBUTION"
#: the scale that coaches score on (MAPPA, 2.2); rewards are divided by it
SCALE = 10.0

_BLANK = "\x00"  # stands for quoted characters; no verdict line contains one
_MARKER = re.compile(r"<<<BEGIN ([^<>\n]{1,200})>>>")
_FENCE = re.compile(r" {0,3}(?P<run>`{3,}|~{3,})(?P<info>.*)")
_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][\w.:-]*)(?:\s[^<>]*)?>")
_OPENS, _CLOSES = " \t\n([{:>", " \t\n.,;:!?)]}<"


def parse_score(reply: str, *, agent_text: Iterable[str] = ()) -> float | None:
    """The process score in `reply`, scaled from 0..10 to [0, 1]; None if there is no score.

    The last well-formed `PROCESS_SCORE:` line that is not quoted counts (MAPPA, appendix B.4); `**PROCESS_SCORE:** 8`,
    `8/10` and `[8]` read as 8. Out of range, negative, NaN or missing is no score. Quoted is what stands in a code
    fence (an unclosed one: and all that follows), an indented block, a block quote, code spans, double quotes, a pair
    of tags, or the fences of the coach's prompt.

    Args:
        agent_text: what the coach was shown. A verdict that also stands there counts only if the reply ends with it and
            has no other; so that an agent's words, repeated without quotes, are not taken for the coach's.
    """
    score = parse_line(reply, PROCESS_SCORE, 0.0, SCALE, agent_text=agent_text)
    return None if score is None else score / SCALE


def parse_line(reply: str, label: str, low: float, high: float, *, agent_text: Iterable[str] = ()) -> float | None:
    """The number of the last well-formed `label:` line outside quotes if it lies in [low, high], else None."""
    lines = unquoted(reply).split("\n")
    verdicts = list(_verdicts(lines, label))
    if not verdicts:
        return None
    position, value = verdicts[-1]
    if not low <= value <= high:  # also true for NaN
        return None
    ends = not any(
        line.strip() and not line.lstrip(" *").startswith("ANSWER_CORRECT") for line in lines[position + 1 :]
    )
    agrees = all(other == value for _, other in verdicts)
    if not (ends and agrees):
        pattern = _pattern(label)
        if any(value == _number(claim) for text in agent_text for claim in pattern.finditer(text)):
            return None
    return value


def parse_json_score(reply: str) -> float | None:
    """The member `process_score` of a reply that is one JSON object, scaled to [0, 1]; None if there is no score."""
    score = parse_json_number(reply, "process_score", 0.0, SCALE)
    return None if score is None else score / SCALE


def parse_json_number(reply: str, key: str, low: float, high: float) -> float | None:
    """The number `key` of a reply that is one JSON object with distinct keys, if in [low, high], else None."""
    try:
        value = json.loads(reply, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return None
    number = value.get(key) if isinstance(value, dict) else None
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return float(number) if low <= number <= high else None


def unquoted(reply: str) -> str:
    """`reply` with every quoted character replaced by NUL; line breaks, as \\n, stay where they are."""
    text = "\n".join(_lines(reply))
    text = _blank(text, _marked(text))
    text = _blank(text, _fenced(text))
    text = _blank(text, _code_spans(text))
    text = _blank(text, _tagged(text))
    return _blank(text, _in_double_quotes(text))


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@lru_cache(maxsize=8)
def _pattern(label: str) -> re.Pattern[str]:
    number = r"(?:[+−–-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)|[+−–-]?(?i:nan|inf(?:inity)?))"
    out_of = r"(?:[ \t]*/[ \t]*10)"
    stars, gap = r"[*]{0,3}", r"[ \t]*"
    boxed = rf"\[{gap}(?P<boxed>{number}){out_of}?{gap}\]|\[{gap}(?P<box>{number}){gap}\]{out_of}"
    value = rf"(?:{boxed}|(?P<plain>{number}){out_of}?)"
    return re.compile(rf" {{0,3}}{stars}{label}{stars}{gap}:{stars}{gap}{stars}{value}\.?{stars}{gap}")


def _verdicts(lines: Sequence[str], label: str) -> Iterator[tuple[int, float]]:
    """(index, number) of every well-formed `label:` line."""
    pattern = _pattern(label)
    for index, line in enumerate(lines):
        found = pattern.fullmatch(line)
        if found is not None:
            yield index, _number(found)


def _number(verdict: re.Match[str]) -> float:
    number = verdict["plain"] or verdict["boxed"] or verdict["box"]
    return float(number.replace("−", "-").replace("–", "-"))


def _marked(text: str) -> Iterator[tuple[int, int]]:
    """The fences of the coach's own prompt; one that is not closed reaches to the end."""
    position = 0
    while (found := _MARKER.search(text, position)) is not None:
        closing = f"<<<END {found[1]}>>>"
        end = text.find(closing, found.end())
        position = len(text) if end < 0 else end + len(closing)
        yield found.start(), position


def _fenced(text: str) -> Iterator[tuple[int, int]]:
    """Fenced code blocks (CommonMark 4.5). If one is never closed, which fences are pairs is unsure: all the rest."""
    first, opening, start, offset = -1, "", 0, 0
    spans = []
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        if found is not None:
            run, info = found["run"], found["info"]
            if not opening:
                if run[0] == "~" or "`" not in info:
                    opening, start = run, offset
                    first = offset if first < 0 else first
            elif run[0] == opening[0] and len(run) >= len(opening) and not info.strip():
                spans.append((start, offset + len(line)))
                opening = ""
        offset += len(line) + 1
    yield from [(first, len(text))] if opening else spans


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Text between two equal runs of backticks (CommonMark 6.1)."""
    runs = [(found.start(), found.end()) for found in re.finditer("`+", text)]
    later: dict[int, list[int]] = {}
    for index in range(len(runs) - 1, -1, -1):
        later.setdefault(runs[index][1] - runs[index][0], []).append(index)
    index = 0
    while index < len(runs):
        start, end = runs[index]
        same = later[end - start]
        while same and same[-1] <= index:
            same.pop()
        if same:
            index = same[-1]
            yield start, runs[index][1]
        index += 1


def _tagged(text: str) -> Iterator[tuple[int, int]]:
    """Text between `<name>` and its `</name>`."""
    open_tags: dict[str, list[int]] = {}
    for found in _TAG.finditer(text):
        if not found["close"]:
            open_tags.setdefault(found["name"], []).append(found.start())
        elif open_tags.get(found["name"]):
            yield open_tags[found["name"]].pop(), found.end()


def _in_double_quotes(text: str) -> Iterator[tuple[int, int]]:
    """Text between an opening and a closing double quote; a quote that is never closed is none."""
    start = -1
    for found in re.finditer('["“”]', text):
        at, sign = found.start(), found[0]
        if start < 0:
            if sign == "“" or (sign == '"' and (at == 0 or text[at - 1] in _OPENS)):
                start = at
        elif sign == "”" or (sign == '"' and (at + 1 == len(text) or text[at + 1] in _CLOSES)):
            yield start, at + 1
            start = -1


def _blank(text: str, spans: Iterable[tuple[int, int]]) -> str:
    parts, position = [], 0
    for start, end in sorted(spans):
        if end <= position:
            continue
        start = max(start, position)
        parts += [text[position:start], re.sub(r"[^\n]", _BLANK, text[start:end]) or _BLANK]
        position = end
    return "".join([*parts, text[position:]])


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)
