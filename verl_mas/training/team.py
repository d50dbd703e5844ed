"""All policies of a run, driven in lock step: sample together, learn side by side, serve the new weights."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import ray
import transfer_queue
from omegaconf import DictConfig

from verl_mas.training.policy_trainer import PolicyTrainer
from verl_mas.training.worker import Server, WorkflowWorker
from verl_mas.trajectory.records import Invocation, Trajectory
from verl_mas.workflow.environment import Split, Task

Result = TypeVar("Result")


class StartupTimeout(RuntimeError):
    """Workers or servers did not come up before the deadline."""


@dataclass(slots=True)
class Learned:
    """What a step's update reported.

    Attributes:
        metrics: verl's, prefixed by policy. seconds: per phase, the slowest policy's.
        skipped: policies that got no rows.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


class Team:
    """The policies' trainers and the workers that execute the workflow.

    Args:
        trainers: by policy, not yet initialised.
    """

    def __init__(self, trainers: Mapping[str, PolicyTrainer]) -> None:
        self.trainers = dict(trainers)
        self._workers: list[Any] = []
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(self.trainers)), thread_name_prefix="policy")

    def start(self, run: DictConfig, report: Callable[[str], None]) -> None:
        """Bring up worker groups, servers and workflow workers.

        Args:
            run: the run's own options. report: tells the person what is starting.

        Raises:
            StartupTimeout: not everything was up within `ray.startup_timeout_s` seconds.
        """
        timeout_s = run.ray.startup_timeout_s
        deadline = time.monotonic() + timeout_s
        self._workers = [
            ray.remote(WorkflowWorker).remote(run) for _ in range(run.controller.workers)
        ]  # import meanwhile
        report(f"starting {len(self.trainers)} policies: {', '.join(self.trainers)}")
        starting = [
            _Starting(f"policy {policy!r} (workers and vLLM servers)", trainer.init)
            for policy, trainer in self.trainers.items()
        ]
        for one in starting:
            one.wait(deadline, timeout_s)
        report("starting workflow workers")
        servers = {policy: _server(trainer) for policy, trainer in self.trainers.items()}
        connecting = [worker.connect.remote(servers) for worker in self._workers]
        _Starting("the workflow workers", lambda: ray.get(connecting)).wait(deadline, timeout_s)

    def rollout(self, tasks: Sequence[Task], split: Split, step: int, greedy: bool) -> list[Trajectory]:
        """Execute the workflow on the tasks with the weights of `step`; trajectories in the order of the tasks."""
        count = len(self._workers)
        shares = [list(tasks[index::count]) for index in range(count)]
        pending = [
            worker.run.remote(share, split, step, greedy)
            for worker, share in zip(self._workers, shares, strict=True)
            if share
        ]
        order = {task.id: position for position, task in enumerate(tasks)}
        trajectories = [trajectory for share in ray.get(pending) for trajectory in share]
        return sorted(trajectories, key=lambda trajectory: (order[trajectory.task], trajectory.sample))

    def learn(self, invocations: Sequence[Invocation], step: int) -> Learned:
        """Update every policy from its own rows, policies side by side, then let them serve the new weights.

        Args:
            invocations: all rows of the step, with rewards and advantages. step: the step being trained (from 1).
        """
        rows: dict[str, list[Invocation]] = {policy: [] for policy in self.trainers}
        for invocation in sorted(invocations, key=lambda one: one.row):
            if not invocation.masked:
                rows[invocation.policy].append(invocation)
        learned = Learned()
        self._everywhere(lambda policy, trainer: trainer.pause_serving())
        reports = self._everywhere(lambda policy, trainer: _learn(trainer, rows[policy], step))
        for policy, report in reports.items():
            if report is None:
                if self.trainers[policy].train:
                    learned.skipped.append(policy)
                continue
            metrics, seconds = report
            learned.metrics.update({f"{policy}/{name}": value for name, value in metrics.items()})
            for phase, value in seconds.items():
                learned.seconds[phase] = max(value, learned.seconds.get(phase, 0.0))
        start = time.perf_counter()
        self._everywhere(lambda policy, trainer: trainer.resume_serving(step))
        learned.seconds["update_weights"] = time.perf_counter() - start
        self._clear()
        return learned

    def save(self, folder: Path, step: int) -> None:
        """Write every policy below `folder`."""
        self._everywhere(lambda policy, trainer: trainer.save(folder / policy, step))

    def _clear(self) -> None:
        """Empty the partitions of the step's rows, padding included."""
        for policy, keys in transfer_queue.kv_list().items():
            if keys:
                transfer_queue.kv_clear(keys=list(keys), partition_id=policy)

    def _everywhere(self, act: Callable[[str, PolicyTrainer], Result]) -> dict[str, Result]:
        """Call `act` for all policies at once; the first error ends the step."""
        futures = {policy: self._pool.submit(act, policy, trainer) for policy, trainer in self.trainers.items()}
        return {policy: future.result() for policy, future in futures.items()}


def _learn(
    trainer: PolicyTrainer, rows: Sequence[Invocation], step: int
) -> tuple[dict[str, Any], dict[str, float]] | None:
    """One policy's share of a step; None if it is frozen or got no rows."""
    if not rows or not trainer.train:
        return None
    batch = trainer.begin(rows, step)
    trainer.update(batch)
    return batch.metrics, batch.seconds


def _server(trainer: PolicyTrainer) -> Server:
    """How workflow workers reach the policy."""
    model = trainer.config.actor_rollout_ref.model
    return Server(
        client=trainer.get_llm_client(),
        tokenizer_path=model.get("tokenizer_path") or model.path,
        prompt_length=trainer.config.data.max_prompt_length,
        response_length=trainer.config.data.max_response_length,
    )


class _Starting:
    """Something that starts on a thread of its own; the thread dies with the process."""

    def __init__(self, what: str, act: Callable[[], Any]) -> None:
        self._what = what
        self._act = act
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"start {what}")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._act()
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            self._error = error

    def wait(self, deadline: float, timeout_s: float) -> None:
        """Wait for the end; raise what the thread raised, or StartupTimeout at the deadline."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            raise StartupTimeout(
                f"{self._what} did not start within {timeout_s:g} s; the run's log says how far it came "
                "(ray.startup_timeout_s sets the limit)"
            )
        if self._error is not None:
            raise self._error
