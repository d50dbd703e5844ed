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

from verl_mas.training.policy_trainer import PolicyBatch, PolicyTrainer
from verl_mas.training.token_credit import TokenAdvantages, TokenRows
from verl_mas.training.worker import Server, WorkflowWorker
from verl_mas.trajectory.records import Invocation, Trajectory
from verl_mas.workflow.environment import Split, Task

Result = TypeVar("Result")
TokenCredit = Callable[[Mapping[str, TokenRows]], Mapping[str, TokenAdvantages]]


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

    def learn(self, invocations: Sequence[Invocation], step: int, token_credit: TokenCredit | None = None) -> Learned:
        """Update every policy from its own rows, policies side by side, then let them serve the new weights.

        Args:
            invocations: all rows of the step, with rewards, and advantages unless `token_credit` is given.
            step: the step being trained (from 1).
            token_credit: computes the advantages of all policies' tokens at once; None if they are those of the
                invocations.
        """
        rows: dict[str, list[Invocation]] = {policy: [] for policy in self.trainers}
        for invocation in sorted(invocations, key=lambda one: one.row):
            if not invocation.masked:
                rows[invocation.policy].append(invocation)
        learned = Learned()
        self._everywhere(lambda policy, trainer: trainer.pause_serving())
        learned.skipped = [policy for policy, trainer in self.trainers.items() if trainer.train and not rows[policy]]
        learning = {policy: trainer for policy, trainer in self.trainers.items() if trainer.train and rows[policy]}
        for policy, batch in self._update(learning, rows, step, token_credit).items():
            learned.metrics.update({f"{policy}/{name}": value for name, value in batch.metrics.items()})
            for phase, value in batch.seconds.items():
                learned.seconds[phase] = max(value, learned.seconds.get(phase, 0.0))
        start = time.perf_counter()
        self._everywhere(lambda policy, trainer: trainer.resume_serving(step))
        learned.seconds["update_weights"] = time.perf_counter() - start
        self._clear()
        return learned

    def _update(
        self,
        learning: Mapping[str, PolicyTrainer],
        rows: Mapping[str, Sequence[Invocation]],
        step: int,
        token_credit: TokenCredit | None,
    ) -> dict[str, PolicyBatch]:
        """One update of the policies that learn. They only wait for each other where credit is over their tokens."""

        over_tokens = token_credit is not None

        def settle(policy: str, trainer: PolicyTrainer) -> tuple[PolicyBatch, TokenRows | None]:
            batch = trainer.begin(rows[policy], step, credit_over_tokens=over_tokens)
            settled = trainer.token_rows(batch, credit_over_tokens=over_tokens)
            if not over_tokens:
                trainer.update(batch)
            return batch, settled

        settled = self._everywhere(settle, learning)
        batches = {policy: batch for policy, (batch, _) in settled.items()}
        if token_credit is None:
            return batches
        shards = {policy: shard for policy, (_, shard) in settled.items() if shard is not None}
        credit = token_credit(shards)

        def finish(policy: str, trainer: PolicyTrainer) -> None:
            trainer.set_token_advantages(shards[policy], credit[policy])
            trainer.update(batches[policy])

        self._everywhere(finish, learning)
        return batches

    def save(self, folder: Path, step: int) -> None:
        """Write every policy below `folder`."""
        self._everywhere(lambda policy, trainer: trainer.save(folder / policy, step))

    def close(self) -> None:
        """At the ordinary end of a run: let the workers end what they keep open."""
        ray.get([worker.close.remote() for worker in self._workers])

    def _clear(self) -> None:
        """Empty the partitions of the step's rows, padding included."""
        for policy, keys in transfer_queue.kv_list().items():
            if keys:
                transfer_queue.kv_clear(keys=list(keys), partition_id=policy)

    def _everywhere(
        self, act: Callable[[str, PolicyTrainer], Result], trainers: Mapping[str, PolicyTrainer] | None = None
    ) -> dict[str, Result]:
        """Call `act` for these policies (by default all) at once; the first error ends the step."""
        chosen = self.trainers if trainers is None else trainers
        futures = {policy: self._pool.submit(act, policy, trainer) for policy, trainer in chosen.items()}
        return {policy: future.result() for policy, future in futures.items()}


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
