"""The handles through which a workflow speaks to its roles, and one decision of a role as a sampling scheme sees it."""

import asyncio
import hashlib
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from verl_mas.config.suggest import unknown_name_error
from verl_mas.rewards.base import RewardManager
from verl_mas.trajectory.records import Invocation, Trajectory
from verl_mas.workflow.environment import Environment, StepOutcome
from verl_mas.workflow.errors import EnvironmentTimeout, InternalError, WorkflowError
from verl_mas.workflow.model import Model, Request, Sampling
from verl_mas.workflow.offload import DaemonPool, NoAnswerError, gather_all
from verl_mas.workflow.prompts import render

Result = TypeVar("Result")


def row_key(task: str, sample: int, role: str, turn: int, candidate: int) -> str:
    """The key of an invocation's token row. Unambiguous, since a role is an identifier and thus has no dot."""
    return f"{task}.{sample}.{role}.{turn}.{candidate}"


def derive_seed(*parts: str | int) -> int:
    """A seed in [0, 2**31) that depends on `parts` alone: equal on every machine and in every process."""
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def causal_order(invocation: Invocation) -> tuple[int, int, str, int]:
    """Sort key: after everything whose response its prompt saw, and independent of which branch was faster."""
    return len(invocation.parents), invocation.turn, invocation.role, invocation.candidate


@dataclass(frozen=True, slots=True)
class RunContext:
    """What the trajectories of one call of the controller share.

    Attributes:
        prompts, sampling: by role. pool: runs environments. seed, step: of the call.
        deterministic: whether each request carries a seed.
    """

    model: Model
    prompts: Mapping[str, str]
    sampling: Mapping[str, Sampling]
    reward_manager: RewardManager
    pool: DaemonPool
    seed: int
    step: int
    deterministic: bool


class Agents(Mapping[str, "Agent"]):
    """The roles of one trajectory: `agents["planner"].act(env)`.

    Args:
        decide: takes a decision as it begins and commits one response to it; the scheme's.
        rows: to which every row that is asked for is added, answered or not.

    Attributes:
        turn: the current turn, which `act` records; the workflow advances it.
    """

    def __init__(self, context: RunContext, decide: "Decide", trajectory: Trajectory, rows: list[str]) -> None:
        self.turn = 0
        self.context = context
        self.decide = decide
        self.trajectory = trajectory
        self.rows = rows
        self.committed: dict[tuple[str, int], Invocation] = {}
        self.state = asyncio.Lock()  # held while the real state is read, copied or stepped
        self._agents = {role: Agent(role, self) for role in context.prompts}
        self._acted: set[tuple[str, int]] = set()

    def __getitem__(self, role: str) -> "Agent":
        if role not in self._agents:
            raise unknown_name_error("role", role, self._agents)
        return self._agents[role]

    def __contains__(self, role: object) -> bool:
        return role in self._agents

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    def begin(self, role: str, turn: int) -> None:
        """Note that `role` acts in `turn`. Raises WorkflowError if it has already done so."""
        if (role, turn) in self._acted:
            raise WorkflowError(f"role '{role}' acts twice in turn {turn}: set agents.turn before each further round")
        self._acted.add((role, turn))

    def committed_rows(self) -> tuple[str, ...]:
        """The rows committed so far, in causal order."""
        return tuple(invocation.row for invocation in sorted(self.committed.values(), key=causal_order))


class Agent:
    """One role of one trajectory."""

    def __init__(self, role: str, agents: Agents) -> None:
        self.role = role
        self._agents = agents

    async def act(
        self, env: Environment, *, turn: int | None = None, parents: tuple[str, ...] | None = None
    ) -> StepOutcome:
        """Observe, render the role's prompt, sample under the scheme, and commit one response to `env`.

        Args:
            turn: the turn to record, `agents.turn` by default.
            parents: rows whose response this prompt can show; by default all that are committed by now.

        Returns:
            What the committed response did to the real state.

        Raises:
            WorkflowError: the role has already acted in this turn. PromptError: see `prompts.render`.
            EnvironmentTimeout: the environment hangs. Whatever the model or the environment raises.
        """
        agents = self._agents
        turn = agents.turn if turn is None else turn
        agents.begin(self.role, turn)
        decision = Decision(agents, env, self.role, turn, parents)
        try:
            return await agents.decide(decision)
        except Exception as error:
            trajectory = agents.trajectory
            error.add_note(f"role '{self.role}', turn {turn}, task '{trajectory.task}', sample {trajectory.sample}")
            raise


class Decision:
    """One decision of one role: a prompt, and the means to sample, score and commit responses to it.

    Attributes:
        role, turn: whose, and when. env: the real state, as the workflow holds it.
        prompt: the rendered prompt, from `observe` on. parents: see Invocation; from `observe` on, unless given.
        state: lock to hold from the first `score` to `commit`, so that the state stands still in between.
    """

    def __init__(
        self, agents: Agents, env: Environment, role: str, turn: int, parents: tuple[str, ...] | None = None
    ) -> None:
        self.role = role
        self.turn = turn
        self.env = env
        self.prompt = ""
        self.parents: tuple[str, ...] = parents or ()
        self.state = agents.state
        self._agents = agents
        self.parents_given = parents is not None

    @property
    def rng(self) -> random.Random:
        """For the scheme's choice: always the same numbers, by the run's seed and by which decision this is."""
        return random.Random(self._seed(self._agents.trajectory.sample, "choose"))

    def _seed(self, sample: int, last: str | int) -> int:
        context, task = self._agents.context, self._agents.trajectory.task
        return derive_seed(context.seed, context.step, task, sample, self.role, self.turn, last)

    async def observe(self) -> None:
        """Read the real state and render the prompt."""
        async with self.state:
            values = await self.call("observe", lambda: self.env.observe(self.role))
            if not self.parents_given:
                self.parents = self.committed_rows()
        self.prompt = self._render(values)

    def committed_rows(self) -> tuple[str, ...]:
        """The rows that the trajectory has committed so far, in causal order."""
        return self._agents.committed_rows()

    async def observe_at(self, env: Environment) -> str:
        """The prompt that the role would get in another state."""
        return self._render(await self.call("observe", lambda: env.observe(self.role)))

    def _render(self, values: Mapping[str, str]) -> str:
        return render(self._agents.context.prompts[self.role], values, self.role)

    async def sample(self, count: int) -> list[Invocation]:
        """`count` responses to the prompt, sampled concurrently, recorded as one group in order of candidate.

        Raises:
            InternalError: the group has another size, or its prompts differ as token ids.
        """
        group = await self.ask(self._agents.trajectory.sample, count)
        self._agents.trajectory.invocations.extend(group)
        return group

    async def ask(self, sample: int, count: int = 1) -> list[Invocation]:
        """Like `sample`, but recorded nowhere; the rows are those of execution `sample` of the task."""
        requests = [self._request(sample, candidate) for candidate in range(count)]
        self._agents.rows.extend(request.row for request in requests)
        completions = await gather_all(*(self._agents.context.model.complete(request) for request in requests))
        group = [
            Invocation(
                row=request.row,
                task=self._agents.trajectory.task,
                sample=sample,
                role=self.role,
                policy=completion.policy,
                turn=self.turn,
                candidate=candidate,
                prompt=self.prompt,
                response=completion.text,
                prompt_digest=completion.prompt_digest,
                num_prompt_tokens=completion.num_prompt_tokens,
                num_response_tokens=completion.num_response_tokens,
                stop_reason=completion.stop_reason,
                chosen=False,
                parents=self.parents,
            )
            for candidate, (request, completion) in enumerate(zip(requests, completions, strict=True))
        ]
        check_group(group, count)
        return group

    async def score(self, group: list[Invocation]) -> list[float]:
        """The reward of each response, applied to its own copy of the state. The real state does not change."""

        async def score_one(invocation: Invocation) -> float:
            def step() -> StepOutcome:
                return self.env.copy().step(self.role, invocation.response)

            return self._record(invocation, await self.call("step on a copy", step))

        return await gather_all(*(score_one(invocation) for invocation in group))

    async def commit(self, invocation: Invocation) -> StepOutcome:
        """Apply the response to the real state; it earns its reward here unless it was scored on a copy."""
        outcome = await self.call("step", lambda: self.env.step(self.role, invocation.response))
        self.settle(invocation, outcome)
        return outcome

    def settle(self, invocation: Invocation, outcome: StepOutcome) -> None:
        """Note that the response has become part of the real state, with this outcome."""
        if invocation.reward is None:
            self._record(invocation, outcome)
        invocation.chosen = True
        self._agents.committed[self.role, self.turn] = invocation

    async def call(self, what: str, function: Callable[[], Result]) -> Result:
        """The result of a function of the environment, off the event loop unless the environment is inline.

        Raises:
            EnvironmentTimeout: it hangs; `what` says in what.
        """
        if self.env.inline:
            return function()
        try:
            return await self._agents.context.pool.run(function)
        except NoAnswerError as error:
            where = f"task '{self._agents.trajectory.task}', role '{self.role}', turn {self.turn}"
            raise EnvironmentTimeout(f"environment hangs in {what} of {where}: {error}") from None

    def _record(self, invocation: Invocation, outcome: StepOutcome) -> float:
        reward = self._agents.context.reward_manager.score(self.role, outcome.parts)
        invocation.reward = reward.value
        invocation.breakdown = dict(reward.breakdown)
        invocation.info = dict(outcome.info)
        return reward.value

    def _request(self, sample: int, candidate: int) -> Request:
        context = self._agents.context
        sampling = context.sampling[self.role]
        if context.deterministic:
            sampling = replace(sampling, seed=self._seed(sample, candidate))
        row = row_key(self._agents.trajectory.task, sample, self.role, self.turn, candidate)
        return Request(row=row, role=self.role, prompt=self.prompt, sampling=sampling)


#: commits exactly one response to a decision, which has just begun: observes, samples, settles
Decide = Callable[[Decision], Awaitable[StepOutcome]]


def check_group(group: list[Invocation], size: int) -> None:
    """Raise InternalError unless the group has `size` members, all sampled from one prompt (as token ids)."""
    if len(group) != size:
        raise InternalError(f"group {[member.row for member in group]} has {len(group)} members instead of {size}")
    digests = {member.prompt_digest for member in group}
    if len(digests) > 1:
        raise InternalError(f"prompts differ within the group of row {group[0].row}: digests {sorted(digests)}")
