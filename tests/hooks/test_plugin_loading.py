"""Plugins of installed packages are found, and a plugin that is wrong is an error that names it."""

import pickle
from pathlib import Path

import pytest

from verl_mas import hookimpl
from verl_mas.config.suggest import UnknownNameError
from verl_mas.hooks import (
    HookDefinitionError,
    HookFailedError,
    HookResultError,
    NameConflictError,
    PluginError,
    PluginLoadError,
    load_plugins,
)
from verl_mas.hooks import manager as manager_module

GAME = """
    from verl_mas import hookimpl

    class Game:
        pass

    @hookimpl
    def verl_mas_environments():
        return {"NAME": Game}
"""

PROVIDERS = {
    "verl_mas_workflows": "workflows",
    "verl_mas_environments": "environments",
    "verl_mas_tools": "tools",
    "verl_mas_reward_managers": "reward_managers",
    "verl_mas_advantage_estimators": "advantage_estimators",
    "verl_mas_engines": "engines",
    "verl_mas_platforms": "platforms",
}


class Thing:
    """What a provider provides."""


def test_a_module_of_an_installed_package_is_a_plugin(install):
    install("games-plugin", "games_plugin_module", GAME.replace("NAME", "sokoban"))

    environments = load_plugins().environments

    assert list(environments) == ["sokoban"]
    assert environments["sokoban"].__module__ == "games_plugin_module"


def test_an_object_of_an_installed_package_is_a_plugin(install):
    source = """
        from verl_mas import hookimpl

        class Plugin:
            def __init__(self, name):
                self.name = name

            @hookimpl
            def verl_mas_tools(self):
                return {self.name: print}

        plugin = Plugin("search")
    """
    install("tool-plugin", "tool_plugin_module", source, value="tool_plugin_module:plugin")

    assert dict(load_plugins().tools) == {"search": print}


def test_two_packages_may_use_one_entry_point_name(install):
    install("package-a", "module_a", GAME.replace("NAME", "a"), name="games")
    install("package-b", "module_b", GAME.replace("NAME", "b"), name="games")

    assert sorted(load_plugins().environments) == ["a", "b"]


@pytest.mark.parametrize(("hook", "attribute"), PROVIDERS.items())
def test_every_provider_hook_fills_its_own_table(install, hook, attribute):
    source = f"""
        from verl_mas import hookimpl

        class Thing:
            pass

        @hookimpl
        def {hook}():
            return {{"thing": Thing}}
    """
    install("thing-plugin", "thing_plugin_module", source)

    plugins = load_plugins()

    assert {name for name in PROVIDERS.values() if "thing" in getattr(plugins, name)} == {attribute}
    assert plugins.recipe_dirs == []


def test_an_unknown_name_is_an_error_with_the_nearest_name(install):
    install("games-plugin", "games_plugin_module", GAME.replace("NAME", "sokoban"))

    environments = load_plugins().environments

    with pytest.raises(UnknownNameError, match=r"unknown environment 'sokban'; did you mean 'sokoban'\?"):
        environments["sokban"]
    assert "sokban" not in environments
    assert environments.get("sokban") is None


def test_recipe_directories_are_collected_from_every_package(install, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        source = f"""
            from pathlib import Path
            from verl_mas import hookimpl

            @hookimpl
            def verl_mas_recipe_dirs():
                return [Path(__file__).parent / "{name}"]
        """
        install(f"recipes-{name}", f"recipes_module_{name}", source)

    assert sorted(load_plugins().recipe_dirs) == [tmp_path / "one", tmp_path / "two"]


def test_plugins_that_are_passed_in_are_loaded_beside_installed_ones(install):
    class Extra:
        @hookimpl
        def verl_mas_environments(self):
            return {"extra": Thing}

    install("games-plugin", "games_plugin_module", GAME.replace("NAME", "sokoban"))

    assert sorted(load_plugins([Extra()]).environments) == ["extra", "sokoban"]


def test_two_packages_claiming_one_name_are_both_named(install):
    install("package-a", "module_a", GAME.replace("NAME", "sokoban"))
    install("package-b", "module_b", GAME.replace("NAME", "sokoban"))

    with pytest.raises(NameConflictError) as caught:
        load_plugins()

    for part in ("package-a", "package-b", "environment 'sokoban'", "verl_mas_environments"):
        assert part in str(caught.value)


def test_one_name_may_be_claimed_in_different_hooks(install):
    class Extra:
        @hookimpl
        def verl_mas_workflows(self):
            return {"sokoban": Thing}

    install("games-plugin", "games_plugin_module", GAME.replace("NAME", "sokoban"))

    plugins = load_plugins([Extra()])

    assert plugins.workflows["sokoban"] is Thing
    assert plugins.environments["sokoban"] is not Thing


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import there_is_no_such_module", ModuleNotFoundError),
        ("def broken(:", SyntaxError),
        ("1 / 0", ZeroDivisionError),
    ],
)
def test_a_plugin_that_fails_to_import_is_named_with_the_cause(install, source, cause):
    install("broken-package", "broken_plugin_module", source)

    with pytest.raises(
        PluginLoadError, match=rf"plugin 'main' .* of package 'broken-package': .*{cause.__name__}"
    ) as e:
        load_plugins()

    assert isinstance(e.value.__cause__, cause)


def test_an_entry_point_to_a_missing_attribute_is_named(install):
    install("broken-package", "broken_plugin_module", "", value="broken_plugin_module:plugin")

    with pytest.raises(PluginLoadError, match=r"'broken-package'.*AttributeError"):
        load_plugins()


def test_a_module_registered_under_two_entry_points_is_refused(install):
    install("package-a", "module_a", GAME.replace("NAME", "sokoban"))
    install("package-b", "module_b", "", value="module_a")

    with pytest.raises(PluginLoadError, match="package 'package-b': is registered twice"):
        load_plugins()


def test_a_plugin_without_hooks_is_refused(install):
    install("empty-package", "empty_plugin_module", "def environments(): return {}")

    with pytest.raises(PluginLoadError, match="'empty-package': implements no hook"):
        load_plugins()


def test_a_class_in_place_of_an_instance_is_refused(install):
    source = """
        from verl_mas import hookimpl

        class Plugin:
            @hookimpl
            def verl_mas_tools(self):
                return {}
    """
    install("class-package", "class_plugin_module", source, value="class_plugin_module:Plugin")

    with pytest.raises(PluginLoadError, match="'class-package': must be a module or an instance"):
        load_plugins()


def test_an_unknown_hook_is_an_error_with_the_nearest_hook(install):
    install("typo-package", "typo_plugin_module", GAME.replace("verl_mas_environments", "verl_mas_enviroments"))

    with pytest.raises(HookDefinitionError, match=r"'typo-package'.*did you mean 'verl_mas_environments'"):
        load_plugins()


def test_a_hook_without_its_marker_is_an_error_instead_of_silence(install):
    install("bare-package", "bare_plugin_module", GAME.replace("@hookimpl", ""))

    with pytest.raises(HookDefinitionError, match=r"'bare-package', hook verl_mas_environments.*@hookimpl"):
        load_plugins()


@pytest.mark.parametrize(
    "definition",
    [
        "def verl_mas_environments(config): return {}",
        "def verl_mas_on_step_end(run, metric): pass",
        "def verl_mas_on_step_end(run, metrics=None): pass",
        "def verl_mas_on_step_end(run, *, metrics): pass",
        "def verl_mas_on_step_end(*arguments): pass",
        "def verl_mas_on_step_end(**arguments): pass",
        "async def verl_mas_on_step_end(run): pass",
        "def verl_mas_environments(): yield {}",
    ],
)
def test_a_hook_with_a_wrong_signature_is_named(install, definition):
    install("wrong-package", "wrong_plugin_module", f"from verl_mas import hookimpl\n@hookimpl\n{definition}\n")

    with pytest.raises(HookDefinitionError, match="package 'wrong-package'") as caught:
        load_plugins()

    assert definition.split("(")[0].split()[-1] in str(caught.value)


@pytest.mark.parametrize("options", ["wrapper=True", "hookwrapper=True"])
def test_a_wrapper_is_refused(install, options):
    source = f"from verl_mas import hookimpl\n@hookimpl({options})\ndef verl_mas_tools():\n    return (yield)\n"
    install("wrapper-package", "wrapper_plugin_module", source)

    with pytest.raises(HookDefinitionError, match="'wrapper-package', hook verl_mas_tools: hooks cannot be wrapped"):
        load_plugins()


@pytest.mark.parametrize(
    ("hook", "returned", "complaint"),
    [
        ("verl_mas_environments", "None", "must return a mapping from names, not None"),
        ("verl_mas_environments", "[('sokoban', object)]", "must return a mapping from names"),
        ("verl_mas_environments", "{1: object}", "every name must be a string that is not empty, not 1"),
        ("verl_mas_environments", "{'': object}", "every name must be a string that is not empty"),
        ("verl_mas_environments", "{'sokoban': 3}", "the environment 'sokoban' must be a class, not 3"),
        ("verl_mas_advantage_estimators", "{'grpo': 'grpo'}", "the advantage estimator 'grpo' must be callable"),
        ("verl_mas_tools", "{'search': None}", "the tool 'search' must be an object, not None"),
        ("verl_mas_recipe_dirs", "'recipes'", "must return a list of pathlib.Path"),
        ("verl_mas_recipe_dirs", "['recipes']", "must return a list of pathlib.Path"),
        ("verl_mas_recipe_dirs", "[Path(__file__).parent / 'absent']", "absent does not exist"),
        ("verl_mas_recipe_dirs", "[Path(__file__)]", "does not exist"),
    ],
)
def test_a_provider_that_returns_the_wrong_thing_is_named(install, hook, returned, complaint):
    source = f"""
        from pathlib import Path
        from verl_mas import hookimpl

        @hookimpl
        def {hook}():
            return {returned}
    """
    install("wrong-package", "wrong_plugin_module", source)

    with pytest.raises(HookResultError, match=rf"package 'wrong-package', hook {hook}: .*") as caught:
        load_plugins()

    assert complaint in str(caught.value)


def test_a_provider_that_raises_is_named_with_the_cause(install):
    install("raising-package", "raising_plugin_module", GAME.replace('{"NAME": Game}', '{}["lost"]'))

    with pytest.raises(HookFailedError, match="'raising-package', hook verl_mas_environments: raised KeyError") as e:
        load_plugins()

    assert isinstance(e.value.__cause__, KeyError)


def test_every_plugin_error_has_one_base_and_survives_pickling():
    for kind in (PluginLoadError, HookDefinitionError, HookFailedError, HookResultError, NameConflictError):
        error = kind("plugin 'p' of package 'q'", "is wrong", "verl_mas_tools")
        copy = pickle.loads(pickle.dumps(error))
        assert isinstance(copy, PluginError)
        assert type(copy) is kind
        assert str(copy) == "plugin 'p' of package 'q', hook verl_mas_tools: is wrong"


def test_the_specification_holds_the_documented_hooks_and_no_others():
    observers = {"run_start", "run_end", "trajectory_end", "rewards_assigned", "step_end", "validation", "checkpoint"}

    assert set(manager_module._HOOKS) == {
        *PROVIDERS,
        "verl_mas_recipe_dirs",
        *(f"verl_mas_on_{name}" for name in observers),
    }


def test_a_file_without_its_distribution_is_no_plugin(install, tmp_path: Path):
    (tmp_path / "stray_plugin_module.py").write_text(GAME)

    assert dict(load_plugins().environments) == {}
