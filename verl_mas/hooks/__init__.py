"""Plugins: the hooks they implement (`spec`), how they are found and called (`manager`), their faults (`errors`)."""

from verl_mas.hooks.errors import (
    HookDefinitionError,
    HookFailedError,
    HookResultError,
    NameConflictError,
    PluginError,
    PluginLoadError,
)
from verl_mas.hooks.manager import ENTRY_POINT_GROUP, Plugins, load_plugins

__all__ = [
    "ENTRY_POINT_GROUP",
    "HookDefinitionError",
    "HookFailedError",
    "HookResultError",
    "NameConflictError",
    "PluginError",
    "PluginLoadError",
    "Plugins",
    "load_plugins",
]
