"""What a workflow is: a coroutine over an environment and a handle for each role. It knows no model, no sampling."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from verl_mas.workflow.environment import Environment

if TYPE_CHECKING:
    from verl_mas.workflow.agent import Agents


class Workflow(ABC):
    """Who acts when. A fresh instance executes each trajectory, so an instance may keep state of its own."""

    #: the roles that may act; identifiers, each with a prompt template in the task family
    roles: tuple[str, ...]

    @abstractmethod
    async def run(self, env: Environment, agents: "Agents") -> None:
        """Execute the workflow: call `await agents[role].act(env)` until the task is done or given up.

        A role acts once per turn: set `agents.turn` before each further round (TurnWorkflow does).
        """


class TurnWorkflow(Workflow):
    """A workflow in turns: the same round of roles again and again, until the environment is done or out of turns."""

    def __init__(self, max_turns: int = 4) -> None:
        if max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, not {max_turns}")
        self.max_turns = max_turns

    async def run(self, env: Environment, agents: "Agents") -> None:
        """Run `turn` at most `max_turns` times, with `agents.turn` counting from 0."""
        for turn in range(self.max_turns):
            if env.done:
                return
            agents.turn = turn
            await self.turn(env, agents)

    @abstractmethod
    async def turn(self, env: Environment, agents: "Agents") -> None:
        """One turn. To stop early, return once `env.done` holds."""
