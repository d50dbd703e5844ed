"""The record of a workflow's execution, in memory and as JSONL."""

from verl_mas.trajectory.jsonl import (
    TrajectoryFileError,
    TruncatedLineError,
    append_trajectories,
    drop_truncated_line,
    read_trajectories,
)
from verl_mas.trajectory.records import Invocation, Trajectory

__all__ = [
    "Invocation",
    "Trajectory",
    "TrajectoryFileError",
    "TruncatedLineError",
    "append_trajectories",
    "drop_truncated_line",
    "read_trajectories",
]
