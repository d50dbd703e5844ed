"""The Sokoban workflow of AT-GRPO: in every turn the tool proposes, then the planner decides."""

from verl_mas.workflow import Agents, Environment, TurnWorkflow


class SokobanWorkflow(TurnWorkflow):
    """Tool, then planner, up to `max_turns` times (the paper: 4)."""

    roles = ("tool", "planner")

    async def turn(self, env: Environment, agents: Agents) -> None:
        """Let each role act once. The planner sees the proposal that the tool's choice committed."""
        for role in self.roles:
            await agents[role].act(env)
