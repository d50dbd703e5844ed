"""The asynchronous controller: runs a workflow on many tasks at once and returns what happened, in a fixed order."""

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from verl_mas.config.suggest import UnknownNameError, unknown_name_error
from verl_mas.rewards.base import RewardManager
from verl_mas.trajectory.records import Trajectory
from verl_mas.workflow.agent import Agents, RunContext, causal_order
from verl_mas.workflow.base import Workflow
from verl_mas.workflow.environment import Split, Task, TaskFamily
from verl_mas.workflow.errors import ControllerError, InternalError, WorkflowError
from verl_mas.workflow.model import Model, Sampling
from verl_mas.workflow.offload import DaemonPool, gather_all
from verl_mas.workflow.prompts import check_prompts
from verl_mas.workflow.sampling import ParallelSampling, SamplingScheme

logger = logging.getLogger(__name__)

#: errors that another attempt cannot mend and that no failure rate excuses
FATAL = (InternalError, WorkflowError, UnknownNameError)

#: threads that run environments: enough to keep waiting subprocesses in flight, few enough to share the interpreter
ENVIRONMENT_THREADS = min(32, 4 + (os.cpu_count() or 1))


class Controller:
    """Runs trajectories; owns no weights, no tokens and no tasks.

    Args:
        model: serves every role.
        family: gives environments and prompt templates.
        workflow_factory: makes the workflow, anew for each trajectory.
        scheme: how training trajectories are sampled.
        reward_manager: scores actions and settles the rewards of finished trajectories.
        roles: how each role of the workflow samples.
        concurrency: trajectories in execution at once.
        env_timeout_s: seconds that one call of an environment may take. Calls run on threads, unless the environment
            says `inline = True`: then on the event loop, which is quicker for micro-steps but has no protection
            against a hang.
        max_failure_rate: largest tolerated share of failed trajectories in one call of `run`, in [0, 1].
        retries: further attempts after a failed one.
        deterministic: whether requests carry seeds.
        prompts: templates that replace the family's, by role.
        on_trajectory: called with each trajectory as it ends, in order of completion; an exception ends the run.

    Raises:
        ValueError: a number out of range. WorkflowError, UnknownNameError: see `check_roles`.
        PromptError: see `check_prompts`.
    """

    def __init__(
        self,
        model: Model,
        family: TaskFamily,
        workflow_factory: Callable[[], Workflow],
        scheme: SamplingScheme,
        reward_manager: RewardManager,
        *,
        roles: Mapping[str, Sampling],
        concurrency: int,
        env_timeout_s: float,
        max_failure_rate: float,
        retries: int,
        deterministic: bool,
        prompts: Mapping[str, str] | None = None,
        on_trajectory: Callable[[Trajectory], None] | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        if not (math.isfinite(env_timeout_s) and env_timeout_s > 0):
            raise ValueError(f"env_timeout_s must be a positive number of seconds, not {env_timeout_s}")
        if not 0.0 <= max_failure_rate <= 1.0:
            raise ValueError(f"max_failure_rate must be in [0, 1], not {max_failure_rate}")
        if retries < 0:
            raise ValueError(f"retries must not be negative, not {retries}")
        self._model = model
        self._family = family
        self._workflow_factory = workflow_factory
        self._scheme = scheme
        self._reward_manager = reward_manager
        self._concurrency = concurrency
        self._env_timeout_s = env_timeout_s
        self._max_failure_rate = max_failure_rate
        self._retries = retries
        self._deterministic = deterministic
        self._on_trajectory = on_trajectory
        self._sampling = check_roles(workflow_factory().roles, roles)
        self._prompts = check_prompts(tuple(self._sampling), family, prompts)

    async def run(
        self, tasks: Sequence[Task], *, split: Split, step: int, seed: int, greedy: bool = False
    ) -> list[Trajectory]:
        """Execute the workflow on every task.

        Trajectories of the training split (unless greedy) are trained on: the rows of those that finished are
        published in one call at the end, the rows of all others are discarded.

        Args:
            tasks: distinct tasks (by id). split: what they belong to. step: training step whose weights act.
            seed: of the run; with the step and the task it decides every seed below.
            greedy: one trajectory per task at temperature 0, whatever the scheme.

        Returns:
            In the order of (task, sample): every finished trajectory with its rewards, and every failed one with
            `error` set, no invocations, and what was said in `info["transcript"]`.

        Raises:
            ControllerError: more than `max_failure_rate` of the trajectories failed, after their retries.
            InternalError, WorkflowError, UnknownNameError, and whatever the reward manager's `assign`, `on_trajectory`
            or `model.publish` raises: at once. Unless it was `publish`, all rows of the call are discarded.
            ValueError: two tasks have one id.
        """
        if len({task.id for task in tasks}) < len(tasks):
            raise ValueError("two tasks of one call have the same id")
        scheme = ParallelSampling(n=1) if greedy else self._scheme
        with DaemonPool(ENVIRONMENT_THREADS, self._env_timeout_s) as pool:
            call = _Call(
                context=RunContext(
                    model=self._model,
                    prompts=self._prompts,
                    sampling=_greedy(self._sampling) if greedy else self._sampling,
                    reward_manager=self._reward_manager,
                    pool=pool,
                    seed=seed,
                    step=step,
                    deterministic=self._deterministic,
                ),
                split=split,
                trains=split == "train" and not greedy,
                total=len(tasks) * scheme.rollouts_per_task,
                slots=asyncio.Semaphore(self._concurrency),
            )
            executions = []
            for task in tasks:
                shared = scheme.for_task(task)
                executions += [self._trajectory(call, shared, task, n) for n in range(scheme.rollouts_per_task)]
            try:
                trajectories = await gather_all(*executions)
            except BaseException:
                self._model.discard(call.unpublished)
                raise
        rows = [invocation.row for trajectory in trajectories for invocation in trajectory.invocations]
        if call.trains and rows:
            await self._model.publish(rows)
        return trajectories

    async def _trajectory(self, call: "_Call", scheme: SamplingScheme, task: Task, sample: int) -> Trajectory:
        """One trajectory to its end: attempts, then rewards. Waiting for rewards holds no slot."""
        async with call.slots:
            trajectory = await self._attempts(call, scheme, task, sample)
        if trajectory.error is None:
            await self._reward_manager.assign(trajectory)
            _check_rewards(trajectory)
        if self._on_trajectory is not None:
            self._on_trajectory(trajectory)
        return trajectory

    async def _attempts(self, call: "_Call", scheme: SamplingScheme, task: Task, sample: int) -> Trajectory:
        """The first attempt that succeeds, else the first that failed, with its error."""
        failed: Trajectory | None = None
        cause: Exception | None = None
        for attempt in range(1 + self._retries):
            trajectory = Trajectory(task.id, task.digest, sample, call.split, call.context.step)
            try:
                await self._attempt(call, scheme, task, trajectory)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - counted, recorded, and chained if too many fail
                logger.warning("attempt %d at task %s, sample %d: %s", attempt + 1, task.id, sample, _describe(error))
                if failed is None:
                    failed, cause = trajectory, error
            else:
                return trajectory
        assert failed is not None
        assert cause is not None
        failed.error = _describe(cause)
        failed.info["transcript"] = [
            {"role": said.role, "turn": said.turn, "candidate": said.candidate, "response": said.response}
            for said in failed.invocations
        ]
        failed.invocations.clear()
        call.count_failure(cause, self._max_failure_rate)
        return failed

    async def _attempt(self, call: "_Call", scheme: SamplingScheme, task: Task, trajectory: Trajectory) -> None:
        """Execute the workflow once into `trajectory`. Whatever ends it early, no row of it remains."""
        started = time.perf_counter()
        agents = Agents(call.context, scheme, trajectory)
        try:
            env = await call.context.pool.run(lambda: self._family.environment(task))
            await self._workflow_factory().run(env, agents)
            trajectory.success = env.success
        except BaseException:
            self._model.discard(agents.rows)
            raise
        finally:
            trajectory.seconds = time.perf_counter() - started
        trajectory.invocations.sort(key=causal_order)
        trajectory.turns = 1 + max((invocation.turn for invocation in trajectory.invocations), default=-1)
        if call.trains:
            call.unpublished += agents.rows
        else:
            self._model.discard(agents.rows)


@dataclass(slots=True)
class _Call:
    """The accounts of one call of `Controller.run`. `unpublished`: rows of the trajectories that finished."""

    context: RunContext
    split: Split
    trains: bool
    total: int
    slots: asyncio.Semaphore
    unpublished: list[str] = field(default_factory=list)
    failures: int = 0
    first_cause: Exception | None = None

    def count_failure(self, cause: Exception, max_failure_rate: float) -> None:
        """Raise ControllerError once the failures exceed the tolerated share of all trajectories of the call."""
        self.failures += 1
        self.first_cause = self.first_cause or cause
        if self.failures / self.total > max_failure_rate:
            raise ControllerError(
                f"{self.failures} of {self.total} trajectories failed, above max_failure_rate {max_failure_rate:g}; "
                f"the first: {_describe(self.first_cause)}"
            ) from self.first_cause


def check_roles(names: Sequence[str], roles: Mapping[str, Sampling]) -> dict[str, Sampling]:
    """The sampling of each of the workflow's roles, in the workflow's order.

    Raises:
        UnknownNameError: sampling for a role that the workflow does not have. WorkflowError: a role has none, is named
        twice, or is no identifier.
    """
    for name in names:
        if not name.isidentifier():
            raise WorkflowError(f"role '{name}' must be an identifier (letters, digits, underscores)")
        if names.count(name) > 1:
            raise WorkflowError(f"the workflow names role '{name}' twice")
    for name in roles:
        if name not in names:
            raise unknown_name_error("role", name, names)
    for name in names:
        if name not in roles:
            raise WorkflowError(
                f"role '{name}' of the workflow is not configured (roles: {', '.join(roles) or 'none'})"
            )
    return {name: roles[name] for name in names}


def _greedy(sampling: Mapping[str, Sampling]) -> dict[str, Sampling]:
    return {role: replace(how, temperature=0.0, top_p=1.0, top_k=-1) for role, how in sampling.items()}


def _describe(error: Exception) -> str:
    """The error's type and text, and the notes on where it happened."""
    return f"{type(error).__name__}: {'; '.join([str(error), *getattr(error, '__notes__', ())])}"


def _check_rewards(trajectory: Trajectory) -> None:
    for invocation in trajectory.invocations:
        if invocation.masked:
            continue
        if invocation.reward is None or not math.isfinite(invocation.reward):
            raise InternalError(f"reward manager left row {invocation.row} with reward {invocation.reward}, not masked")
