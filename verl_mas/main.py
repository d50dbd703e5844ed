"""The command: `python -m verl_mas.main recipe=NAME [key=value ...]`."""

import sys
from collections.abc import Sequence

from verl_mas.config.compose import Composed, compose
from verl_mas.config.errors import ConfigError
from verl_mas.config.recipes import list_recipes
from verl_mas.config.validation import validate
from verl_mas.hooks import PluginError, Plugins, load_plugins

USAGE = (
    "usage: python -m verl_mas.main recipe=NAME [key=value ...]   (dry_run=true checks everything and trains nothing)"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line.

    Returns:
        0 on success, 1 if the run failed (it can be resumed from its folder), 2 if the configuration is wrong.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        plugins = load_plugins()
        if not arguments or arguments[0] in ("-h", "--help"):
            _say(_recipes(plugins))
            return 0
        composed = compose(arguments, plugins)
        facts = validate(composed, plugins)
    except (ConfigError, PluginError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if composed.run.dry_run:
        _say("\n".join([*facts, "the configuration is valid"]))
        return 0
    return _train(composed, plugins, facts)


def _recipes(plugins: Plugins) -> str:
    recipes = list_recipes(plugins)
    width = max((len(name) for name, _ in recipes), default=0)
    lines = [f"  {name:<{width}}  {description}" for name, description in recipes]
    return "\n".join([USAGE, "", "recipes:", *lines])


def _train(composed: Composed, plugins: Plugins, facts: Sequence[str]) -> int:
    from verl_mas.training.session import run_session
    from verl_mas.training.start import train_plain

    if composed.verl is not None:
        train_plain(composed.verl, plugins, composed.run.hardware)
        return 0
    return run_session(composed, plugins, facts)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
