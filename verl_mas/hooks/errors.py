"""What can be wrong with a plugin. Every error names the plugin and, where there is one, the hook."""


class PluginError(Exception):
    """A plugin is at fault.

    Attributes:
        plugin: the plugin and the package it came from, as a phrase.
        detail: what is wrong. hook: the hook concerned, None if the plugin as a whole is.
    """

    def __init__(self, plugin: str, detail: str, hook: str | None = None) -> None:
        super().__init__(plugin, detail, hook)  # the arguments, so that the error survives pickling
        self.plugin = plugin
        self.detail = detail
        self.hook = hook

    def __str__(self) -> str:
        where = self.plugin if self.hook is None else f"{self.plugin}, hook {self.hook}"
        return f"{where}: {self.detail}"


class PluginLoadError(PluginError):
    """The plugin cannot be imported or registered."""


class HookDefinitionError(PluginError):
    """A hook implementation has an unknown name or a wrong signature."""


class HookFailedError(PluginError):
    """A hook implementation raised; the cause is chained."""


class HookResultError(PluginError):
    """A hook implementation returned something of the wrong type, or a directory that does not exist."""


class NameConflictError(PluginError):
    """Two plugins provide the same name through the same hook."""
