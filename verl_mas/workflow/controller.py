"""The asynchronous controller: runs a workflow on many tasks at once and returns what happened, in a fixed order."""

import asyncio
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from verl_mas.config.suggest import UnknownNameError, unknown_name_error
from verl_mas.rewards.base import RewardManager
from verl_mas.trajectory.records import Trajectory
from verl_mas.workflow.agent import RunContext
from verl_mas.workflow.base import Workflow
from verl_mas.workflow.environment import Split, Task, TaskFamily
from verl_mas.workflow.errors import ControllerError, InternalError, WorkflowError
from verl_mas.workflow.model import Model, Sampling
from verl_mas.workflow.offload import DaemonPool, gather_all
from verl_mas.workflow.prompts import check_prompts
from verl_mas.workflow.rollout import Rollout
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
        concurrency: rollouts in execution at once: trajectories, or groups of joint sampling, which meet as they go.
        env_timeout_s: seconds that one call of an environment may take. Calls run on threads, unless the environment
            says `inline = True`: then on the event loop, which is quicker for micro-steps but has no protection
            against a hang.
        max_failure_rate: largest tolerated share of failed trajectories in one call of `run`, in [0, 1].
        retries: further attempts at a rollout after a failed one.
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
            `error` set, no invocations, and what was said in `info["transcript"]` (of joint sampling, whose groups
            fail as a whole, in the first one's). Trajectories of joint sampling may share responses: equal rows.

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
                total=len(tasks) * scheme.rollouts_per_task * scheme.trajectories_per_rollout,
                slots=asyncio.Semaphore(self._concurrency),
            )
            rollouts = [
                self._rollout(call, scheme, task, index) for task in tasks for index in range(scheme.rollouts_per_task)
            ]
            try:
                trajectories = [one for rollout in await gather_all(*rollouts) for one in rollout]
            except BaseException:
                self._model.discard(call.unpublished)
                raise
        # a response that several trajectories share has one row
        rows = dict.fromkeys(invocation.row for one in trajectories for invocation in one.invocations)
        if call.trains and rows:
            await self._model.publish(list(rows))
        return trajectories

    async def close(self) -> None:
        """After the last `run`: let the reward manager end what it keeps open."""
        await self._reward_manager.close()

    async def _rollout(self, call: "_Call", scheme: SamplingScheme, task: Task, index: int) -> list[Trajectory]:
        """One rollout to its end: attempts, then rewards. Waiting for rewards holds no slot."""
        async with call.slots:
            trajectories = await self._attempts(call, scheme, task, index)
        await gather_all(*(self._settle(trajectory) for trajectory in trajectories))
        return trajectories

    async def _settle(self, trajectory: Trajectory) -> None:
        if trajectory.error is None:
            await self._reward_manager.assign(trajectory)
            _check_rewards(trajectory)
        if self._on_trajectory is not None:
            self._on_trajectory(trajectory)

    async def _attempts(self, call: "_Call", scheme: SamplingScheme, task: Task, index: int) -> list[Trajectory]:
        """What the first attempt that succeeds gave, else failed trajectories with the error of the first attempt."""
        failed: Rollout | None = None
        cause: Exception | None = None
        for attempt in range(1 + self._retries):
            rollout = Rollout(
                call.context, self._family, self._workflow_factory, task=task, split=call.split, index=index
            )
            try:
                return await self._attempt(call, scheme, rollout)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - counted, recorded, and chained if too many fail
                logger.warning("attempt %d at task %s, sample %d: %s", attempt + 1, task.id, index, _describe(error))
                if failed is None:
                    failed, cause = rollout, error
        assert failed is not None
        assert cause is not None
        count = scheme.trajectories_per_rollout
        call.count_failures(count, cause, self._max_failure_rate)
        return _failed(failed, count, _describe(cause))

    async def _attempt(self, call: "_Call", scheme: SamplingScheme, rollout: Rollout) -> list[Trajectory]:
        """Execute the rollout once. Whatever ends it early, no row of it remains."""
        try:
            trajectories = await scheme.execute(rollout)
        except BaseException:
            self._model.discard(rollout.rows)
            raise
        if call.trains:
            call.unpublished += rollout.rows
        else:
            self._model.discard(rollout.rows)
        return trajectories


@dataclass(slots=True)
class _Call:
    """The accounts of one call of `Controller.run`. `unpublished`: rows of the rollouts that finished."""

    context: RunContext
    split: Split
    trains: bool
    total: int
    slots: asyncio.Semaphore
    unpublished: list[str] = field(default_factory=list)
    failures: int = 0
    first_cause: Exception | None = None

    def count_failures(self, count: int, cause: Exception, max_failure_rate: float) -> None:
        """Raise ControllerError once the failures exceed the tolerated share of all trajectories of the call."""
        self.failures += count
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


def _failed(rollout: Rollout, count: int, error: str) -> list[Trajectory]:
    """`count` failed trajectories; the first says what was said, once each, and for how long."""
    said = {one.row: one for trajectory in rollout.trajectories for one in trajectory.invocations}
    failed = [
        Trajectory(
            rollout.task.id,
            rollout.task.digest,
            rollout.index + extra,
            rollout.split,
            rollout.context.step,
            error=error,
        )
        for extra in range(count)
    ]
    failed[0].seconds = max((trajectory.seconds for trajectory in rollout.trajectories), default=0.0)
    failed[0].info["transcript"] = [
        {"role": one.role, "turn": one.turn, "candidate": one.candidate, "response": one.response}
        for one in said.values()
    ]
    return failed


def _describe(error: Exception) -> str:
    """The error's type and text, and the notes on where it happened."""
    return f"{type(error).__name__}: {'; '.join([str(error), *getattr(error, '__notes__', ())])}"


def _check_rewards(trajectory: Trajectory) -> None:
    for invocation in trajectory.invocations:
        if invocation.masked:
            continue
        if invocation.reward is None or not math.isfinite(invocation.reward):
            raise InternalError(f"reward manager left row {invocation.row} with reward {invocation.reward}, not masked")
