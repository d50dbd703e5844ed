"""A rollout: what a sampling scheme needs to execute a workflow on one task, once or several times."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from verl_mas.trajectory.records import Trajectory
from verl_mas.workflow.agent import Agents, Decide, RunContext, causal_order
from verl_mas.workflow.base import Workflow
from verl_mas.workflow.environment import Environment, Split, Task, TaskFamily
from verl_mas.workflow.errors import EndOfSampling


@dataclass(slots=True)
class Rollout:
    """One attempt at one rollout of a task.

    Attributes:
        index: which rollout of the task. roles: of the workflow, in its order.
        rows: every row that was asked for. trajectories: every record that was begun.
    """

    context: RunContext
    family: TaskFamily
    workflow_factory: Callable[[], Workflow]
    task: Task
    split: Split
    index: int
    rows: list[str] = field(default_factory=list)
    trajectories: list[Trajectory] = field(default_factory=list)

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(self.context.prompts)

    def trajectory(self, sample: int) -> Trajectory:
        """A record to be filled."""
        record = Trajectory(self.task.id, self.task.digest, sample, self.split, self.context.step)
        self.trajectories.append(record)
        return record

    async def environment(self) -> Environment:
        """A fresh state of the task."""
        return await self.context.pool.run(lambda: self.family.environment(self.task))

    async def play(self, trajectory: Trajectory, env: Environment, decide: Decide) -> None:
        """Execute the workflow once into `trajectory`; `decide` may end it early with EndOfSampling.

        Raises:
            What the workflow raises; the first one where it raises a group of errors.
        """
        started = time.perf_counter()
        agents = Agents(self.context, decide, trajectory, self.rows)
        failure: BaseException | None = None
        try:
            await self.workflow_factory().run(env, agents)
        except EndOfSampling:
            pass
        except BaseExceptionGroup as group:  # a workflow that runs its roles in a TaskGroup
            failure = _first(group)
        finally:
            trajectory.seconds = time.perf_counter() - started
        if failure is not None and not isinstance(failure, EndOfSampling):
            raise failure
        trajectory.success = env.success
        trajectory.invocations.sort(key=causal_order)
        trajectory.turns = 1 + max((invocation.turn for invocation in trajectory.invocations), default=-1)


def _first(error: BaseException) -> BaseException:
    """The first error of a group that is more than the end of sampling."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    inner = [_first(one) for one in error.exceptions]
    return next((one for one in inner if not isinstance(one, EndOfSampling)), inner[0])
