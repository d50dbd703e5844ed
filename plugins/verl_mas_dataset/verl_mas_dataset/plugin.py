"""What this package provides to verl-mas."""

from verl_mas import hookimpl
from verl_mas_dataset.environment import Dataset
from verl_mas_dataset.workflow import SingleTurn


@hookimpl
def verl_mas_workflows() -> dict[str, object]:
    """The workflows by name."""
    return {"single_turn": SingleTurn}


@hookimpl
def verl_mas_environments() -> dict[str, object]:
    """The task families by name."""
    return {"dataset": Dataset}
