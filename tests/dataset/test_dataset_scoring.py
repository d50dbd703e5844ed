"""Reward functions with verl's signature, from a file or verl's own; what counts as a score."""

import pytest
from verl_mas_dataset.rows import Row
from verl_mas_dataset.scoring import ScoreError, load_reward_function, score_response

from verl_mas.config.suggest import UnknownNameError

ROW = Row("3+4", "sums", "7", {"index": 3})

FUNCTIONS = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, bonus=0.0):
    assert (data_source, extra_info) == ("sums", {"index": 3})
    return float(solution_str == ground_truth) / 2 + bonus

def as_mapping(solution_str, ground_truth, **unused):
    return {"score": int(solution_str == ground_truth), "length": len(solution_str)}

async def later(**unused):
    return 1.0

number = 3
"""


def test_the_function_gets_verls_arguments(reward_file):
    function = load_reward_function({"path": reward_file(FUNCTIONS)})
    assert score_response(function, ROW, "7") == (0.5, {})
    assert score_response(function, ROW, "8") == (0.0, {})


def test_further_arguments_come_from_the_options(reward_file):
    function = load_reward_function({"path": reward_file(FUNCTIONS), "reward_kwargs": {"bonus": 0.25}})
    assert score_response(function, ROW, "7") == (0.75, {})


def test_a_mapping_has_the_score_and_facts(reward_file):
    function = load_reward_function({"path": reward_file(FUNCTIONS), "name": "as_mapping"})
    assert score_response(function, ROW, "7") == (1.0, {"length": 1})


@pytest.mark.parametrize("score", [-1.0, 1.5, float("nan"), float("inf")])
def test_a_score_outside_the_unit_interval_is_an_error(score):
    with pytest.raises(ScoreError, match=rf"score {score:g} .*'sums': scores must be in \[0, 1\]"):
        score_response(lambda **arguments: score, ROW, "7")


@pytest.mark.parametrize("result", [None, "good", {"acc": 1.0}, [1.0]])
def test_what_is_no_number_is_an_error(result):
    with pytest.raises(ScoreError, match="it must give a number, or a mapping with a number under 'score'"):
        score_response(lambda **arguments: result, ROW, "7")


def test_without_a_file_the_score_is_verls_own():
    # verl scores openai/gsm8k by the number after the last "####": 1.0 if it is the ground truth, else 0.0
    row = Row("3+4", "openai/gsm8k", "7")
    function = load_reward_function(None)
    assert score_response(function, row, "it is\n#### 7") == (1.0, {})
    assert score_response(function, row, "it is\n#### 8") == (0.0, {})


def test_wrong_options_name_the_nearest_valid_one(reward_file):
    path = reward_file(FUNCTIONS)
    with pytest.raises(UnknownNameError, match="unknown key of reward_function 'pth'; did you mean 'path'"):
        load_reward_function({"pth": path})
    with pytest.raises(UnknownNameError, match="'compute_scores'; did you mean 'compute_score'"):
        load_reward_function({"path": path, "name": "compute_scores"})


@pytest.mark.parametrize("name", ["later", "number"])
def test_only_a_plain_function_scores(reward_file, name):
    with pytest.raises(ValueError, match="must be a plain function"):
        load_reward_function({"path": reward_file(FUNCTIONS), "name": name})


def test_the_file_must_exist(tmp_path):
    with pytest.raises(ValueError, match=r"option 'reward_function': .*none\.py is no file"):
        load_reward_function({"path": str(tmp_path / "none.py")})
    with pytest.raises(ValueError, match="needs the path of a Python file"):
        load_reward_function({"name": "compute_score"})
