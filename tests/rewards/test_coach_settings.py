"""Options of the coach: wrong ones name themselves and the nearest right one."""

import subprocess
import sys

import pytest

from verl_mas.config.factories import make
from verl_mas.config.suggest import UnknownNameError
from verl_mas.hooks import load_plugins
from verl_mas.rewards import RewardParts
from verl_mas.rewards.coach import coach_reward_manager
from verl_mas.rewards.coach.settings import read_options

RIGHT = {"model": "m", "api_key_env": None}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modle": "m"}, "unknown option 'modle'; did you mean 'model'"),
        ({"template": "mathchatt"}, "unknown template 'mathchatt'; did you mean 'mathchat'"),
        ({"aggregate": "medien"}, "unknown aggregate 'medien'; did you mean 'median'"),
        ({"reply_format": "json"}, "unknown reply_format 'json'"),
        ({"ensemble": [{"modl": "m"}]}, "unknown option of ensemble 'modl'; did you mean 'model'"),
        ({"backpropagation": {"alpa": 1}}, "unknown option of backpropagation 'alpa'; did you mean 'alpha'"),
        ({"backpropagation": {"outcome": "sucess"}}, "unknown outcome 'sucess'; did you mean 'success'"),
        ({"backpropagation": {"consistency": "shft"}}, "unknown consistency 'shft'; did you mean 'shift'"),
        ({"roles": {"solver": "s"}, "last_role": "sovler"}, "unknown role 'sovler'; did you mean 'solver'"),
        (
            {"prompt": "{agent_roel}"},
            "unknown placeholder of the coach's prompt 'agent_roel'; did you mean 'agent_role'",
        ),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(options, message):
    with pytest.raises(UnknownNameError, match=message):
        coach_reward_manager(**{**RIGHT, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "localhost:80"}, "option 'base_url' must begin with http"),
        ({"temperature": -1}, "option 'temperature' must be at least 0"),
        ({"temperature": "hot"}, "option 'temperature' must be a finite number"),
        ({"max_tokens": 0}, "option 'max_tokens' must be a whole number of at least 1"),
        ({"timeout_s": 0}, "option 'timeout_s' must be above 0"),
        ({"timeout_s": float("nan")}, "option 'timeout_s' must be a finite number"),
        ({"requests_per_minute": 0}, "option 'requests_per_minute' must be above 0"),
        ({"max_concurrency": 0}, "option 'max_concurrency'"),
        ({"extra_body": 3}, "option 'extra_body' must be a mapping"),
        ({"attempts": 0}, "option 'attempts'"),
        ({"retries": -1}, "option 'retries'"),
        ({"retries": True}, "option 'retries'"),
        ({"max_failure_rate": 1.5}, r"option 'max_failure_rate' must be in \[0, 1\]"),
        ({"max_calls": 0}, "option 'max_calls'"),
        ({"max_total_tokens": 0.5}, "option 'max_total_tokens'"),
        ({"feedback": "yes"}, "option 'feedback' must be true or false"),
        ({"model": ""}, "option 'model' must be a text"),
        ({"ensemble": ["m"]}, "option 'ensemble' must be a list of mappings"),
        ({"ensemble": [{}, {}]}, "two coaches are called 'm'"),
        ({"backpropagation": {"alpha": -1}}, "option 'backpropagation.alpha' must be at least 0"),
        ({"backpropagation": {"beta": float("inf")}}, "option 'backpropagation.beta' must be a finite number"),
        ({"backpropagation": {"failure_value": -2}}, "option 'backpropagation.failure_value' must be in"),
        ({"prompt": "{agent_role}"}, "must have the placeholder"),
    ],
)
def test_values_out_of_range_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        coach_reward_manager(**{**RIGHT, **options})


def test_a_model_must_be_named():
    with pytest.raises(ValueError, match="option 'model' must be given"):
        coach_reward_manager(api_key_env=None)


def test_a_key_that_is_not_in_the_environment_is_refused_and_never_shown(monkeypatch):
    monkeypatch.delenv("COACH_KEY", raising=False)
    with pytest.raises(ValueError, match="environment variable COACH_KEY is not set"):
        coach_reward_manager(model="m", api_key_env="COACH_KEY")
    monkeypatch.setenv("COACH_KEY", "secret")
    assert "secret" not in repr(vars(coach_reward_manager(model="m", api_key_env="COACH_KEY"))["_settings"])


def test_members_of_an_ensemble_inherit_the_common_options():
    _, coaches = read_options(
        {"model": "m", "timeout_s": 7, "ensemble": [{"name": "x"}, {"model": "n", "timeout_s": 9}]}
    )
    assert [(coach.label, coach.model, coach.timeout_s) for coach in coaches] == [("x", "m", 7), ("n", "n", 9)]


def test_the_plugin_provides_it_and_the_configuration_makes_it():
    manager = make(load_plugins().reward_managers["coach"], RIGHT)
    assert manager.score("solver", RewardParts(team=0.25)).breakdown == {"team": 0.25}


def test_importing_verl_mas_and_the_parser_loads_no_client_library():
    code = (
        "import sys, verl_mas.builtin as b, verl_mas.rewards.coach;"
        "b.verl_mas_reward_managers();"
        "sys.exit(bool({'openai', 'tenacity', 'diskcache'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
