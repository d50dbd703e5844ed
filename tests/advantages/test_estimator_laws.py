"""Laws that hold for any table, and agreement with an independent row-by-row implementation in plain Python."""

import math
from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_mas.advantages import Credits, get_estimator

VARIANTS = [
    ("at_grpo", {}),
    ("agent_grpo", {}),
    ("rloo", {}),
    ("remax", {}),
    ("reinforce", {}),
    ("reinforce", {"baseline": "mean"}),
    ("magrpo", {}),
    ("magrpo", {"normalize": "none"}),
    *(
        ("reinforce_pp_global", {"return_over": returns, "normalize_over": over})
        for returns in ("trajectory", "action")
        for over in ("all", "policy", "role")
    ),
]
# Sixteenths are exact in floating point, so that a group is constant or clearly not.
ROW = st.tuples(
    st.integers(-64, 64).map(lambda k: k / 16),  # reward
    st.sampled_from(["t0", "t1", "t2"]),
    st.sampled_from(["solver", "executor", "verifier"]),
    st.integers(0, 4),  # turn
    st.integers(0, 3),  # sample
    st.sampled_from(["p", "q"]),
    st.integers(1, 9),  # num_tokens
)
# Every table is tried with every variant: drawing one takes several times as long as an estimator.
LAW = settings(max_examples=100)
TABLE = st.lists(ROW, min_size=1, max_size=50)
NAMES = ("reward", "task", "role", "turn", "sample", "policy", "num_tokens")


def columns(rows):
    return dict(zip(NAMES, (list(column) for column in zip(*rows, strict=True)), strict=True))


def spread(values, ddof):
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / max(len(values) - ddof, 1))


def row_by_row(name, options, rows):
    """The definitions of the papers, written down as literally as possible."""
    keyed = [dict(zip(NAMES, row, strict=True)) for row in rows]
    if name == "magrpo":
        joint = defaultdict(float)
        for row in keyed:
            joint[row["task"], row["sample"], row["turn"]] += row["reward"]
        returns = {
            (task, sample, turn): sum(r for (e, g, t), r in joint.items() if (e, g) == (task, sample) and t >= turn)
            for task, sample, turn in joint
        }
        result = []
        for row in keyed:
            group = [value for (e, _, t), value in returns.items() if (e, t) == (row["task"], row["turn"])]
            mean, std = spread(group, ddof=0)
            own = returns[row["task"], row["sample"], row["turn"]]
            result.append((own - mean) / (std + 1e-6 if options.get("normalize") != "none" else 1))
        return result
    if name == "reinforce_pp_global":
        value = [row["reward"] for row in keyed]
        if options["return_over"] == "trajectory":
            same = ("task", "sample", "role")
            value = [
                sum(b["reward"] for b in keyed if all(a[k] == b[k] for k in same) and b["turn"] >= a["turn"])
                for a in keyed
            ]
        result = []
        for a, own in zip(keyed, value, strict=True):
            over = options["normalize_over"]
            tokens = [
                v
                for v, b in zip(value, keyed, strict=True)
                if over == "all" or a[over] == b[over]
                for _ in range(b["num_tokens"])
            ]
            mean, std = spread(tokens, ddof=0)
            result.append((own - mean) / math.sqrt(std**2 + 1e-8))
        return result
    key = ("task", "role") if name == "agent_grpo" else ("task", "role", "turn")
    result = []
    for a in keyed:
        group = [b["reward"] for b in keyed if all(a[k] == b[k] for k in key)]
        own, n = a["reward"], len(group)
        mean, std = spread(group, ddof=1)
        result.append(
            {
                "at_grpo": (own - mean) / (std + 1e-6),
                "agent_grpo": (own - mean) / (std + 1e-6),
                "rloo": own - (sum(group) - own) / (n - 1) if n > 1 else 0.0,
                "remax": own - max(group),
                "reinforce": own - mean if options.get("baseline") == "mean" else own,
            }[name]
        )
    return result


def assert_close(actual, expected, tolerance, of):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance, err_msg=str(of))


@LAW
@given(rows=TABLE)
def test_the_result_is_that_of_the_definition_row_by_row(rows):
    credits = Credits(**columns(rows))
    for name, options in VARIANTS:
        assert_close(get_estimator(name, **options)(credits), row_by_row(name, options, rows), 1e-9, (name, options))


@LAW
@given(rows=TABLE, data=st.data())
def test_permuting_the_rows_permutes_the_advantages(rows, data):
    order = data.draw(st.permutations(range(len(rows))))
    credits, permuted = Credits(**columns(rows)), Credits(**columns([rows[index] for index in order]))
    for name, options in VARIANTS:
        estimator = get_estimator(name, **options)
        assert_close(estimator(permuted), estimator(credits)[order], 1e-10, (name, options))


@LAW
@given(rows=TABLE)
def test_renaming_changes_nothing(rows):
    table = columns(rows)
    renamed = table | {
        "task": [{"t0": 10**12, "t1": -3, "t2": 5}[task] for task in table["task"]],
        "sample": [f"sample {sample}" for sample in table["sample"]],
        "turn": [turn * 10**10 - 7 for turn in table["turn"]],
    }
    for name, options in VARIANTS:
        estimator = get_estimator(name, **options)
        assert_close(estimator(Credits(**renamed)), estimator(Credits(**table)), 1e-10, (name, options))


@LAW
@given(rows=TABLE, offset=st.integers(-100, 100))
def test_an_offset_common_to_all_rewards_changes_nothing_and_a_group_sums_to_zero(rows, offset):
    table = columns(rows)
    credits = Credits(**table)
    shifted = Credits(**(table | {"reward": [reward + offset for reward in table["reward"]]}))
    for name in ("at_grpo", "agent_grpo", "rloo"):
        estimator = get_estimator(name)
        advantage = estimator(credits)
        assert_close(estimator(shifted), advantage, 1e-9, name)
        assert_close(estimator.groups(credits).sum(advantage), 0, 1e-9, name)
