"""States that branches share: what is computed once, states that stand still, and the view that a workflow holds."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

from verl_mas.workflow.environment import Environment, StepOutcome
from verl_mas.workflow.errors import WorkflowError

Result = TypeVar("Result")


class Once(Generic[Result]):
    """A result that the first who asks computes, and for which the others wait."""

    def __init__(self) -> None:
        self._future: asyncio.Future[Result] | None = None

    async def get(self, compute: Callable[[], Awaitable[Result]]) -> Result:
        if self._future is not None:
            return await asyncio.shield(self._future)
        self._future = asyncio.get_running_loop().create_future()
        try:
            result = await compute()
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self._future.cancel()
            else:
                self._future.set_exception(error)
                self._future.exception()  # whoever asked gets it; nobody else needs to
            raise
        self._future.set_result(result)
        return result


class State:
    """A state that never changes: it is observed and copied, one at a time."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.lock = asyncio.Lock()


class View(Environment):
    """The state that an execution has come to, as the workflow sees it: all but `state` belongs to the environment."""

    state: State

    def __init__(self, state: State) -> None:
        self.__dict__.update(state=state, inline=state.env.inline)

    def observe(self, role: str) -> Mapping[str, str]:
        return self.state.env.observe(role)

    def step(self, role: str, response: str) -> StepOutcome:
        raise WorkflowError("a workflow steps its environment through agents[role].act(env) alone")

    def copy(self) -> Environment:
        return self.state.env.copy()

    @property
    def done(self) -> bool:
        return self.state.env.done

    @property
    def success(self) -> bool:
        return self.state.env.success

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["state"].env, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise WorkflowError(f"a workflow sets '{name}' of the environment, whose state only actions may change")

    def move_to(self, state: State) -> None:
        self.__dict__["state"] = state
