"""The score of a response: a reward function with verl's signature, from a file or verl's own."""

import importlib.util
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from verl_mas.config.suggest import unknown_name_error
from verl_mas.workflow import WorkflowError
from verl_mas_dataset.rows import Row

#: verl's signature: keyword arguments data_source, solution_str, ground_truth, extra_info
RewardFunction = Callable[..., Any]
#: options of `reward_function` with their defaults, as in verl's reward.custom_reward_function
_DEFAULTS: Mapping[str, Any] = {"path": None, "name": "compute_score", "reward_kwargs": {}}


class ScoreError(WorkflowError):
    """A reward function gave something that is no score in [0, 1]. Another attempt cannot mend it: the run ends."""


def load_reward_function(options: Mapping[str, Any] | None) -> RewardFunction:
    """The function that `reward_function` names, or verl's own for the data sources that it knows.

    Args:
        options: path of a Python file, name of a function in it (compute_score), reward_kwargs for it.

    Raises:
        UnknownNameError (a ValueError): an option, or a function in the file, that does not exist.
        ValueError: no path, no such file, not callable, or a coroutine function. What the file itself raises.
    """
    if options is None:
        return verl_score
    for option in options:
        if option not in _DEFAULTS:
            raise unknown_name_error("key of reward_function", str(option), _DEFAULTS)
    chosen = {**_DEFAULTS, **options}
    if not chosen["path"]:
        raise ValueError("option 'reward_function' needs the path of a Python file")
    path = Path(chosen["path"]).expanduser()
    if not path.is_file():
        raise ValueError(f"option 'reward_function': {path} is no file")
    content = _execute(path)
    if chosen["name"] not in content:
        public = [name for name, value in content.items() if callable(value) and not name.startswith("_")]
        raise unknown_name_error(f"function of {path}", chosen["name"], public)
    function = content[chosen["name"]]
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ValueError(f"option 'reward_function': {chosen['name']} of {path} must be a plain function")
    extra = dict(chosen["reward_kwargs"] or {})
    return lambda **arguments: function(**arguments, **extra)


def verl_score(**arguments: Any) -> Any:
    """verl's default_compute_score, imported on first use: verl wants its environment variables before."""
    from verl.utils.reward_score import default_compute_score

    return default_compute_score(**arguments)


def score_response(function: RewardFunction, row: Row, response: str) -> tuple[float, dict[str, Any]]:
    """The score of `response` in [0, 1], and what else the function said about it.

    Raises:
        ScoreError: the result is neither a number in [0, 1] nor a mapping with such a `score`.
    """
    result = function(
        data_source=row.data_source,
        solution_str=response,
        ground_truth=row.ground_truth,
        extra_info=dict(row.extra_info),
    )
    said: dict[str, Any] = {}
    value = result
    if isinstance(result, Mapping):
        said = {str(name): one for name, one in result.items() if name != "score"}
        value = result.get("score")
    try:
        score = float(value)
    except (TypeError, ValueError):
        raise ScoreError(
            f"the reward function gave {result!r} for a response to data source '{row.data_source}': it must give a "
            "number, or a mapping with a number under 'score'"
        ) from None
    if not (math.isfinite(score) and 0.0 <= score <= 1.0):
        raise ScoreError(
            f"the reward function gave the score {score:g} for a response to data source '{row.data_source}': scores "
            "must be in [0, 1]; map them in a function of your own and name it in environment.options.reward_function"
        )
    return score, said


def _execute(path: Path) -> dict[str, Any]:
    specification = importlib.util.spec_from_file_location(f"verl_mas_dataset_reward_{path.stem}", path)
    if specification is None or specification.loader is None:
        raise ValueError(f"option 'reward_function': {path} is no Python file")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return vars(module)
