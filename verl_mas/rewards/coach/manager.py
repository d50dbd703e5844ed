"""The `coach` reward manager: an LLM scores every action of a finished trajectory (MAPPA, 2.2 and appendix F)."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_mas.rewards.base import Reward, RewardManager
from verl_mas.rewards.coach.asking import Asker, together
from verl_mas.rewards.coach.backpropagation import attribute
from verl_mas.rewards.coach.cache import VerdictCache
from verl_mas.rewards.coach.client import CoachClient, Usage
from verl_mas.rewards.coach.ensemble import Judgement, judge
from verl_mas.rewards.coach.limits import Budget, FailureAccount
from verl_mas.rewards.coach.outcome import consistent
from verl_mas.rewards.coach.questions import NOTES, Questions
from verl_mas.rewards.coach.settings import read_options
from verl_mas.rewards.coach.statistics import ScoreStatistics
from verl_mas.rewards.parts import RewardParts
from verl_mas.trajectory.records import Invocation, Trajectory

logger = logging.getLogger(__name__)


class CoachRewardManager(RewardManager):
    """Scores actions with one coach or several.

    `score` gives the team score, by which tree sampling chooses; `assign` replaces it for every candidate, chosen or
    not, by the coach's score in [0, 1], or masks the action if there is none. Breakdown: "coach"; under backpropagation
    "process" and "outcome", alpha * p_t and beta * Delta_t. An invocation's `info["coach"]` holds what was said, the
    trajectory's what it cost.

    Args:
        options: see RunSettings and CoachSettings.

    Raises:
        UnknownNameError, ValueError: see `read_options`; or the key's environment variable is not set.
    """

    def __init__(self, **options: Any) -> None:
        self._settings, self._coaches = read_options(options)
        self._keys = [coach.api_key() for coach in self._coaches]
        self._backward = self._settings.backward
        self._directory = None if self._settings.cache_dir is None else Path(self._settings.cache_dir)
        self._workers = 1
        self._cache: VerdictCache | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._askers: list[Asker] = []
        self._account = FailureAccount(
            " and ".join(coach.described for coach in self._coaches),
            self._settings.max_failure_rate,
            self._settings.failure_allowance,
        )
        self._scores = ScoreStatistics()
        self._usage = Usage()

    def open(self, directory: Path, workers: int = 1) -> None:
        """See RewardManager. Rates and concurrency are divided by `workers`; budgets are counted on disk, for all."""
        self._workers = workers
        if self._directory is None:
            self._directory = directory / "coach"

    def score(self, role: str, parts: RewardParts) -> Reward:
        """The team score, until the coach has spoken."""
        return Reward.of({"team": parts.team})

    async def assign(self, trajectory: Trajectory) -> None:
        """Ask about all actions at once, and settle their rewards.

        Raises:
            CoachError: the coach is unavailable, or its budget is used up; nothing is made up.
            UnknownNameError: a role or a fact is not what the options say.
        """
        if not trajectory.invocations or (trajectory.split != "train" and not self._settings.score_validation):
            return
        self._ready()
        questions, usage = Questions(self._settings, trajectory), Usage()
        pair: list[Any] = await together([self._processes(questions, usage), self._contributions(questions, usage)])
        processes, contributions = pair
        for invocation, process in zip(trajectory.invocations, processes, strict=True):
            self._settle(invocation, questions.task_type(invocation), process, contributions.get(invocation.row))
        trajectory.info[NOTES] = {"calls": usage.calls, "known": usage.known, "tokens": usage.tokens}
        self._usage.add(usage)

    def statistics(self) -> dict[str, float]:
        """Scores by role and type of task, and costs, of this process so far."""
        usage, account = self._usage, self._account
        rate = account.failures / account.actions if account.actions else 0.0
        costs = {"coach/calls": usage.calls, "coach/known": usage.known, "coach/tokens": usage.tokens}
        return {
            **self._scores.metrics(),
            **{name: float(cost) for name, cost in costs.items()},
            "coach/failure_rate": rate,
        }

    async def close(self) -> None:
        """See RewardManager."""
        for asker in self._askers:
            await asker.client.close()
        self._askers, self._loop = [], None
        if self._cache is not None:
            self._cache.close()
            self._cache = None

    async def _processes(self, questions: Questions, usage: Usage) -> list[Judgement]:
        """p_t of every candidate of the trajectory, in order."""
        invocations = questions.trajectory.invocations
        self._account.begun(len(invocations))
        return await together([self._process(questions, invocation, usage) for invocation in invocations])

    async def _process(self, questions: Questions, invocation: Invocation, usage: Usage) -> Judgement:
        note = self._scores.note() if self._settings.feedback else ""
        verdicts = await together(
            [asker.ask(questions.process(invocation, asker.settings, note), usage) for asker in self._askers]
        )
        judgement = judge([coach.label for coach in self._coaches], verdicts, self._settings.aggregate)
        self._scores.add(invocation.role, questions.task_type(invocation), judgement.value)
        self._note(invocation, judgement)
        return judgement

    async def _contributions(self, questions: Questions, usage: Usage) -> dict[str, Judgement]:
        """Delta_t of every committed action, by row; {} without backpropagation."""
        settings = self._backward
        if settings is None or not questions.path:
            return {}
        value = settings.value(questions.outcome(settings.outcome))
        chains = await together([attribute(asker, questions, value, usage) for asker in self._askers])
        labels = [coach.label for coach in self._coaches]
        steps = [judge(labels, verdicts, self._settings.aggregate) for verdicts in zip(*chains, strict=True)]
        contributions = [step.value for step in steps if step.value is not None]
        if len(contributions) == len(steps):  # else the rest would have to carry what nobody attributed
            adjusted = consistent(contributions, value, settings.consistency)
            steps = [replace(step, value=one) for step, one in zip(steps, adjusted, strict=True)]
        for invocation, step in zip(questions.path, steps, strict=True):
            self._note(invocation, step)
        return {invocation.row: step for invocation, step in zip(questions.path, steps, strict=True)}

    def _note(self, invocation: Invocation, judgement: Judgement) -> None:
        """Log a coach's silence, and count an action that no coach gave a number."""
        if not judgement.cause:
            return
        level = logging.INFO if judgement.value is not None else logging.WARNING
        logger.log(level, "row %s: %s", invocation.row, judgement.cause)
        if judgement.value is None:
            self._account.failed(judgement.cause)

    def _settle(self, invocation: Invocation, task_type: str, process: Judgement, outcome: Judgement | None) -> None:
        """Write the reward, or the mask."""
        said: dict[str, Any] = {"task_type": task_type, "score": process.value}
        if len(self._askers) > 1:
            said["by_coach"] = dict(process.by_coach)
        if outcome is not None:
            said["contribution"] = outcome.value
        cause = process.cause if process.value is None else ""
        if outcome is not None and outcome.value is None:
            cause = cause or outcome.cause
        invocation.info[NOTES] = {**said, "cause": cause} if cause else said
        if process.value is None or cause:
            invocation.reward, invocation.breakdown, invocation.masked = None, {}, True
            return
        terms = {"coach": process.value}
        if self._backward is not None:  # a candidate that was not committed had no part in the outcome
            delta = 0.0 if outcome is None or outcome.value is None else outcome.value
            terms = self._backward.breakdown(process.value, delta)
        reward = Reward.of(terms)
        invocation.reward, invocation.breakdown, invocation.masked = reward.value, dict(reward.breakdown), False

    def _ready(self) -> None:
        """Open the cache once, and connections once for each event loop (they belong to it)."""
        settings, loop = self._settings, asyncio.get_running_loop()
        if self._cache is None:
            self._cache = VerdictCache(self._directory, keep=settings.cache)
        if self._loop is loop:
            return
        budget = Budget(self._cache, settings.max_calls, settings.max_total_tokens)
        clients = [
            CoachClient(
                coach,
                key,
                budget,
                workers=self._workers,
                retries=settings.retries,
                backoff_s=settings.backoff_s,
                max_backoff_s=settings.max_backoff_s,
            )
            for coach, key in zip(self._coaches, self._keys, strict=True)
        ]
        self._askers = [
            Asker(coach, client, self._cache, settings.attempts)
            for coach, client in zip(self._coaches, clients, strict=True)
        ]
        self._loop = loop
