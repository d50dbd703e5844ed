"""Finds plugins, checks them, and calls their hooks so that whatever goes wrong names the plugin and the hook."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pluggy
from pluggy import HookImpl

from verl_mas.config.suggest import unknown_name_error
from verl_mas.hooks import spec
from verl_mas.hooks.errors import (
    HookDefinitionError,
    HookFailedError,
    HookResultError,
    NameConflictError,
    PluginLoadError,
)

ENTRY_POINT_GROUP: Final = "verl_mas"

_PREFIX: Final = "verl_mas_"
_OBSERVER_PREFIX: Final = "verl_mas_on_"
_HOOKS: Final = tuple(name for name in vars(spec) if name.startswith(_PREFIX))


class _Provided(dict[str, Any]):
    """A dict whose missing names are errors that tell the nearest one."""

    def __init__(self, kind: str, entries: Mapping[str, Any]) -> None:
        super().__init__(entries)
        self.kind = kind

    def __missing__(self, name: str) -> Any:
        raise unknown_name_error(self.kind, name, self)


@dataclass(frozen=True)
class Plugins:
    """Everything that the installed plugins provide. Looking up an unknown name raises UnknownNameError."""

    workflows: Mapping[str, Any]
    environments: Mapping[str, Any]
    tools: Mapping[str, Any]
    reward_managers: Mapping[str, Any]
    advantage_estimators: Mapping[str, Any]
    engines: Mapping[str, Any]
    platforms: Mapping[str, Any]
    recipe_dirs: list[Path]
    _manager: pluggy.PluginManager

    def notify(self, event: str, **arguments: Any) -> None:
        """Call every observer of `event`: `notify("step_end", run=run, metrics=metrics)` for verl_mas_on_step_end.

        Raises:
            UnknownNameError: there is no such event.
            TypeError: `arguments` are not those of the hook.
            HookFailedError: an observer raised; later observers are not called.
            HookResultError: an observer returned a coroutine, which nothing would await.
        """
        hook = _OBSERVER_PREFIX + event
        events = [name.removeprefix(_OBSERVER_PREFIX) for name in _HOOKS if name.startswith(_OBSERVER_PREFIX)]
        if event not in events:
            raise unknown_name_error("event", event, events)
        expected = set(_arguments(hook))
        if set(arguments) != expected:
            raise TypeError(f"event {event!r} takes {sorted(expected)}, not {sorted(arguments)}")
        for implementation in _implementations(self._manager, hook):
            result = _call(implementation, hook, arguments)
            if inspect.isawaitable(result):
                raise HookResultError(
                    implementation.plugin_name, "returned a coroutine; an observer is a plain function", hook
                )


def load_plugins(extra: Iterable[object] = ()) -> Plugins:
    """Load every installed plugin, ask each what it provides, and check the answers.

    A plugin is a module, or an instance of a class, with functions marked `@hookimpl`, that an installed package names
    in the entry-point group "verl_mas". Plugins are loaded in the order of their package and entry-point names.

    Args:
        extra: further plugins that belong to no installed package, loaded last.

    Raises:
        PluginLoadError: a plugin cannot be imported, implements no hook, or is registered twice.
        HookDefinitionError: a hook has an unknown name, or a signature that differs from the specification.
        HookFailedError: a provider raised.
        HookResultError: a provider returned the wrong type, or a recipe directory that does not exist.
        NameConflictError: two plugins provide the same name through the same hook.
    """
    manager = pluggy.PluginManager("verl_mas")
    manager.add_hookspecs(spec)
    for entry_point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: (_package(entry), entry.name)):
        _register(manager, _import(entry_point), _describe(entry_point))
    for number, plugin in enumerate(extra):
        _register(manager, plugin, f"plugin {getattr(plugin, '__name__', type(plugin).__name__)!r} (extra {number})")
    return Plugins(
        workflows=_provided(manager, "workflow", "verl_mas_workflows"),
        environments=_provided(manager, "environment", "verl_mas_environments", _is_class),
        tools=_provided(manager, "tool", "verl_mas_tools"),
        reward_managers=_provided(manager, "reward manager", "verl_mas_reward_managers"),
        advantage_estimators=_provided(manager, "advantage estimator", "verl_mas_advantage_estimators", _is_callable),
        engines=_provided(manager, "engine", "verl_mas_engines"),
        platforms=_provided(manager, "platform", "verl_mas_platforms"),
        recipe_dirs=_recipe_dirs(manager),
        _manager=manager,
    )


def _package(entry_point: EntryPoint) -> str:
    if entry_point.dist is None:
        raise PluginLoadError(f"plugin {entry_point.name!r}", "its entry point belongs to no installed package")
    return entry_point.dist.name


def _describe(entry_point: EntryPoint) -> str:
    return f"plugin {entry_point.name!r} ({entry_point.value}) of package {_package(entry_point)!r}"


def _import(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except Exception as error:
        raise PluginLoadError(_describe(entry_point), f"cannot be imported: {type(error).__name__}: {error}") from error


def _register(manager: pluggy.PluginManager, plugin: object, description: str) -> None:
    if plugin is None or inspect.isclass(plugin):
        raise PluginLoadError(description, f"must be a module or an instance, not {plugin!r}")
    for name in dir(plugin):
        marked = manager.parse_hookimpl_opts(plugin, name) is not None
        if name.startswith(_PREFIX) and inspect.isroutine(inspect.getattr_static(plugin, name)) and not marked:
            raise HookDefinitionError(description, f"names in {_PREFIX}* are hooks: mark it with @hookimpl", name)
    try:
        manager.register(plugin, description)
    except pluggy.PluginValidationError as error:
        raise HookDefinitionError(description, str(error)) from error
    except ValueError as error:
        raise PluginLoadError(description, f"is registered twice: {error}") from error
    implemented = 0
    for hook in vars(manager.hook).values():
        for implementation in hook.get_hookimpls():
            if implementation.plugin is plugin:
                _check_definition(hook, implementation)
                implemented += 1
    if implemented == 0:
        raise PluginLoadError(description, "implements no hook: mark its functions with @hookimpl")


def _check_definition(hook: pluggy.HookCaller, implementation: HookImpl) -> None:
    """What pluggy lets pass although the hook would not be called, or not with all that it asks for."""
    description = implementation.plugin_name
    if not hook.has_spec():
        raise HookDefinitionError(description, str(unknown_name_error("hook", hook.name, _HOOKS)), hook.name)
    if implementation.wrapper or implementation.hookwrapper:
        raise HookDefinitionError(description, "hooks cannot be wrapped", hook.name)
    if inspect.iscoroutinefunction(implementation.function) or inspect.isgeneratorfunction(implementation.function):
        raise HookDefinitionError(description, "must be a plain function, not a coroutine or generator", hook.name)
    for parameter in inspect.signature(implementation.function).parameters.values():
        positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if not positional or parameter.default is not parameter.empty or parameter.name not in _arguments(hook.name):
            raise HookDefinitionError(
                description,
                f"parameter '{parameter}' is not in the specification, which is ({', '.join(_arguments(hook.name))}) "
                "without defaults",
                hook.name,
            )


def _arguments(hook: str) -> tuple[str, ...]:
    return tuple(inspect.signature(getattr(spec, hook)).parameters)


def _implementations(manager: pluggy.PluginManager, hook: str) -> Iterator[HookImpl]:
    """In the order in which pluggy itself calls: its list is sorted from last to first."""
    caller: pluggy.HookCaller = getattr(manager.hook, hook)
    return reversed(caller.get_hookimpls())


def _call(implementation: HookImpl, hook: str, arguments: Mapping[str, Any]) -> Any:
    # Called one by one and not through pluggy, which would not tell whose implementation raised or returned what.
    try:
        return implementation.function(*(arguments[name] for name in implementation.argnames))
    except Exception as error:
        raise HookFailedError(implementation.plugin_name, f"raised {type(error).__name__}: {error}", hook) from error


def _is_class(value: object) -> str | None:
    return None if inspect.isclass(value) else "a class"


def _is_callable(value: object) -> str | None:
    return None if callable(value) else "callable"


def _is_something(value: object) -> str | None:
    return None if value is not None else "an object"


def _provided(
    manager: pluggy.PluginManager,
    kind: str,
    hook: str,
    check: Callable[[object], str | None] = _is_something,
) -> Mapping[str, Any]:
    """The union of what every plugin returns from the hook; `check` says what a value should have been."""
    entries: dict[str, Any] = {}
    providers: dict[str, str] = {}
    for implementation in _implementations(manager, hook):
        plugin = implementation.plugin_name
        result = _call(implementation, hook, {})
        if not isinstance(result, Mapping):
            raise HookResultError(plugin, f"must return a mapping from names, not {result!r}", hook)
        for name, value in result.items():
            if not isinstance(name, str) or not name:
                raise HookResultError(plugin, f"every name must be a string that is not empty, not {name!r}", hook)
            if name in entries:
                raise NameConflictError(plugin, f"the {kind} {name!r} is also provided by {providers[name]}", hook)
            expected = check(value)
            if expected is not None:
                raise HookResultError(plugin, f"the {kind} {name!r} must be {expected}, not {value!r}", hook)
            entries[name] = value
            providers[name] = plugin
    return MappingProxyType(_Provided(kind, entries))


def _recipe_dirs(manager: pluggy.PluginManager) -> list[Path]:
    hook = "verl_mas_recipe_dirs"
    directories: list[Path] = []
    for implementation in _implementations(manager, hook):
        plugin = implementation.plugin_name
        result = _call(implementation, hook, {})
        if not isinstance(result, list) or not all(isinstance(path, Path) for path in result):
            raise HookResultError(plugin, f"must return a list of pathlib.Path, not {result!r}", hook)
        for path in result:
            if not path.is_dir():
                raise HookResultError(plugin, f"the recipe directory {path} does not exist", hook)
        directories.extend(result)
    return directories
