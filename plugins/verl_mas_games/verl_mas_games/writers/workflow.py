"""Two writers in parallel, as in MAGRPO's writing tasks: neither sees what the other writes in the same turn."""

from verl_mas.workflow import Agents, Environment, TurnWorkflow
from verl_mas.workflow.offload import gather_all


class WritersWorkflow(TurnWorkflow):
    """Both write at once, up to `max_turns` times; in later turns each sees the other's last word."""

    roles = ("first", "second")

    def __init__(self, max_turns: int = 1) -> None:
        super().__init__(max_turns)

    async def turn(self, env: Environment, agents: Agents) -> None:
        """One word each. What a prompt can show are the words of earlier turns."""
        before = agents.committed_rows()
        await gather_all(*(agents[role].act(env, parents=before) for role in self.roles))
