"""Making the run's plugins with the arguments that the configuration gives; wrong names get the nearest right one."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from verl_mas.config.suggest import unknown_name_error

if TYPE_CHECKING:
    from verl_mas.hooks import Plugins


def workflow_arguments(run: DictConfig) -> dict[str, Any]:
    """Arguments of the workflow class: max_turns if set, and workflow.options."""
    return _given(max_turns=run.workflow.max_turns) | _plain(run.workflow.options)


def environment_arguments(run: DictConfig) -> dict[str, Any]:
    """Arguments of the task family: environment.options."""
    return _plain(run.environment.options)


def reward_arguments(run: DictConfig) -> dict[str, Any]:
    """Arguments of the reward manager: mixing, alpha and lam if set, and reward.options."""
    reward = run.reward
    return _given(mixing=reward.mixing, alpha=reward.alpha, lam=reward.lam) | _plain(reward.options)


#: by scheme, the keys of `sampling` that are its options
_SAMPLING = {
    "tree": ("candidates", "selection"),
    "parallel": ("n",),
    "joint": ("n", "joint", "branching", "stop_threshold"),
}


def sampling_arguments(run: DictConfig) -> dict[str, Any]:
    """Options of the sampling scheme: those keys of `sampling` that are for it."""
    return {key: run.sampling[key] for key in _SAMPLING.get(run.sampling.scheme, ())}


def sampling_kind(run: DictConfig) -> str:
    """What an estimator has to know of the sampling, one of `advantages.SCHEMES`."""
    sampling = run.sampling
    if sampling.scheme != "joint":
        return str(sampling.scheme)
    if sampling.branching == "tree":
        return "joint_tree" if sampling.joint == "aligned" else "joint_cross_tree"
    return f"joint_{sampling.joint}"


def make(factory: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """`factory(**arguments)`, after checking the names.

    Raises:
        UnknownNameError: the factory has no such parameter. ValueError: a parameter is missing, or the factory's own.
    """
    parameters = inspect.signature(factory).parameters
    named = {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        for name in arguments:
            if name not in named:
                raise unknown_name_error("option", name, named)
    for name, parameter in named.items():
        if parameter.default is parameter.empty and name not in arguments:
            raise ValueError(f"option '{name}' must be given")
    return factory(**arguments)


def make_workflow(run: DictConfig, plugins: "Plugins") -> Any:
    """A fresh instance of the run's workflow. Raises: see `make`; UnknownNameError for the workflow's name."""
    return make(plugins.workflows[run.workflow.name], workflow_arguments(run))


def make_environment(run: DictConfig, plugins: "Plugins") -> Any:
    """The run's task family. Raises: see `make`; UnknownNameError for its name."""
    return make(plugins.environments[run.environment.name], environment_arguments(run))


def make_reward_manager(run: DictConfig, plugins: "Plugins", family: Any = None) -> Any:
    """The run's reward manager. Raises: see `make`; UnknownNameError for its name.

    Args:
        family: the run's task family; its `reward_rules` go to a manager with the argument `rules`.
    """
    manager, arguments = plugins.reward_managers[run.reward.manager], reward_arguments(run)
    rules = tuple(getattr(family, "reward_rules", ()))
    if rules and "rules" in inspect.signature(manager).parameters:
        arguments["rules"] = rules
    return make(manager, arguments)


def make_estimator(run: DictConfig, plugins: "Plugins") -> Any:
    """The run's advantage estimator with algorithm.options, a callable on Credits.

    A class is made with the options. An estimator with a method `with_options(**options)` checks them itself; those of
    any other callable are its keyword-only parameters.

    Raises:
        UnknownNameError: no such estimator or option. ValueError: a wrong value.
    """
    estimator = plugins.advantage_estimators[run.algorithm.adv_estimator]
    options = _plain(run.algorithm.options)
    if isinstance(estimator, type):
        return make(estimator, options)
    if hasattr(estimator, "with_options"):
        return estimator.with_options(**options)
    names = [name for name, one in inspect.signature(estimator).parameters.items() if one.kind is one.KEYWORD_ONLY]
    for name in options:
        if name not in names:
            raise unknown_name_error("option", name, names)
    return lambda credits: estimator(credits, **options)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _plain(options: DictConfig) -> dict[str, Any]:
    container = OmegaConf.to_container(options, resolve=True)
    if not isinstance(container, dict):
        raise TypeError(f"options must be a mapping, not {type(container).__name__}")
    return {str(key): value for key, value in container.items()}
