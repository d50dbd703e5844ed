"""What this package provides to verl-mas."""

from verl_mas import hookimpl
from verl_mas_games.sokoban.environment import Sokoban
from verl_mas_games.sokoban.workflow import SokobanWorkflow
from verl_mas_games.writers.environment import Writers
from verl_mas_games.writers.workflow import WritersWorkflow


@hookimpl
def verl_mas_workflows() -> dict[str, object]:
    """The workflows by name."""
    return {"sokoban": SokobanWorkflow, "writers": WritersWorkflow}


@hookimpl
def verl_mas_environments() -> dict[str, object]:
    """The task families by name."""
    return {"sokoban": Sokoban, "writers": Writers}
