"""Observers are called with what they ask for, and one that fails is named."""

import pytest

from verl_mas import hookimpl
from verl_mas.config.suggest import UnknownNameError
from verl_mas.hooks import HookFailedError, HookResultError, load_plugins


class Observer:
    """Records the events that it sees."""

    def __init__(self):
        self.seen = []

    @hookimpl
    def verl_mas_on_run_start(self, run):
        self.seen.append(("run_start", run))

    @hookimpl
    def verl_mas_on_step_end(self, metrics):
        self.seen.append(("step_end", metrics))

    @hookimpl
    def verl_mas_on_checkpoint(self, path, run):
        self.seen.append(("checkpoint", run, path))


def test_an_observer_gets_the_arguments_it_names(install):
    observer = Observer()
    plugins = load_plugins([observer])

    plugins.notify("run_start", run="the run")
    plugins.notify("step_end", run="the run", metrics={"loss": 1.0})
    plugins.notify("checkpoint", run="the run", path="the path")
    plugins.notify("run_end", run="the run", summary={})

    assert observer.seen == [
        ("run_start", "the run"),
        ("step_end", {"loss": 1.0}),
        ("checkpoint", "the run", "the path"),
    ]


def test_every_plugin_observes(install):
    observers = [Observer(), Observer()]

    load_plugins(observers).notify("run_start", run="the run")

    assert [observer.seen for observer in observers] == [[("run_start", "the run")]] * 2


def test_pluggys_order_marks_are_kept(install):
    order = []

    class Last:
        @hookimpl(trylast=True)
        def verl_mas_on_run_start(self):
            order.append("last")

    class First:
        @hookimpl(tryfirst=True)
        def verl_mas_on_run_start(self):
            order.append("first")

    class Middle:
        @hookimpl
        def verl_mas_on_run_start(self):
            order.append("middle")

    load_plugins([First(), Last(), Middle()]).notify("run_start", run=None)

    assert order == ["first", "middle", "last"]


def test_an_observer_that_raises_is_named_with_the_cause(install):
    source = """
        from verl_mas import hookimpl

        @hookimpl
        def verl_mas_on_step_end(metrics):
            raise KeyError("reward")
    """
    install("watching-package", "watching_plugin_module", source)
    plugins = load_plugins()

    with pytest.raises(
        HookFailedError, match=r"package 'watching-package', hook verl_mas_on_step_end: raised KeyError: 'reward'"
    ) as caught:
        plugins.notify("step_end", run=None, metrics={})

    assert isinstance(caught.value.__cause__, KeyError)


def test_an_observer_that_returns_a_coroutine_is_named(install):
    async def observe():
        return None

    coroutine = observe()

    class Plugin:
        @hookimpl
        def verl_mas_on_run_start(self):
            return coroutine

    with pytest.raises(HookResultError, match=r"'Plugin' \(extra 0\), hook verl_mas_on_run_start: returned a cor"):
        load_plugins([Plugin()]).notify("run_start", run=None)
    coroutine.close()


def test_an_unknown_event_is_an_error_with_the_nearest_event(install):
    with pytest.raises(UnknownNameError, match="unknown event 'step_ends'; did you mean 'step_end'"):
        load_plugins().notify("step_ends", run=None, metrics={})


@pytest.mark.parametrize("arguments", [{}, {"run": None}, {"run": None, "metrics": {}, "step": 1}])
def test_an_event_with_the_wrong_arguments_is_an_error_even_unobserved(install, arguments):
    with pytest.raises(TypeError, match=r"event 'step_end' takes \['metrics', 'run'\]"):
        load_plugins().notify("step_end", **arguments)
