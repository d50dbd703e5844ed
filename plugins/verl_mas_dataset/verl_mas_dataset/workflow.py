"""The workflow of a data set: one role answers once."""

from verl_mas.workflow import Agents, Environment, TurnWorkflow


class SingleTurn(TurnWorkflow):
    """The solver answers once; there is no option."""

    roles = ("solver",)

    def __init__(self) -> None:
        super().__init__(max_turns=1)

    async def turn(self, env: Environment, agents: Agents) -> None:
        """Let the solver answer."""
        await agents["solver"].act(env)
