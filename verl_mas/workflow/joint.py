"""Joint sampling (MAGRPO, Alg. 1): groups of joint actions on one task, around workflows with synchronous roles.

A joint action is what all roles do in one turn. Its responses are sampled from the state at the start of the turn, so
that no role sees what another does in the same turn. The workflow is executed once for every joint action of a group,
and an execution is a path through the joint actions. Where a group begins (in the first turn; in a tree in every turn)
the execution that gets there first goes on with the first joint action and starts one execution for each of the others.
These repeat the turns behind them: responses, outcomes and states are taken from the record, so nothing is sampled and
no environment is stepped twice. States are copies; the workflow holds a view of the one it has come to.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import fsum

from verl_mas.trajectory.records import Invocation, Trajectory
from verl_mas.workflow.agent import Decision
from verl_mas.workflow.branches import Once, State, View
from verl_mas.workflow.environment import StepOutcome
from verl_mas.workflow.errors import EndOfSampling, InternalError, WorkflowError
from verl_mas.workflow.rollout import Rollout

_UNREPEATABLE = (
    "joint sampling executes a workflow once for each joint action, and this one did not do twice the same: the roles "
    "that act may depend on the environment and the actions, but not on time or chance"
)


@dataclass(frozen=True, slots=True)
class JointTerms:
    """The options of `JointSampling`."""

    n: int
    cross: bool
    tree: bool
    stop_threshold: float | None


class _Wave:
    """The joint actions that are one group. It is over when all have their reward, or have ended without."""

    def __init__(self) -> None:
        self.rewards: list[float] = []
        self.over = asyncio.Event()
        self._open = 0

    def join(self) -> None:
        self._open += 1

    def leave(self, reward: float | None) -> None:
        if reward is not None:
            self.rewards.append(reward)
        self._open -= 1
        if self._open == 0:
            self.over.set()

    def exceeds(self, threshold: float | None) -> bool:
        return threshold is not None and fsum(self.rewards) / len(self.rewards) > threshold


@dataclass(slots=True)
class _Turn:
    """A turn from one state.

    Attributes:
        index: of the turn. start: the state in which all its responses are sampled.
        path: the joint actions before it, by their numbers; linear: at most the one of the first turn.
        group: whether a group is sampled here; else each role gives one response.
        parents: rows committed before the turn.
        digests: of each role's prompt, as its responses report it.
        indices: the joint actions sampled here. teams: the sets of roles that took part in them.
    """

    index: int
    start: State
    path: tuple[int, ...]
    group: bool
    parents: tuple[str, ...]
    wave: _Wave
    prompts: dict[str, Once[str]] = field(default_factory=dict)
    responses: dict[tuple[str, int], Once[Invocation]] = field(default_factory=dict)
    digests: dict[str, set[str]] = field(default_factory=dict)
    indices: set[int] = field(default_factory=set)
    teams: set[frozenset[str]] = field(default_factory=set)

    @property
    def number(self) -> int:
        """The joint action that the turn follows, 0 at the root."""
        return self.path[-1] if self.path else 0


@dataclass(frozen=True, slots=True)
class _Commit:
    """An action and what it did."""

    invocation: Invocation
    outcome: StepOutcome
    after: State


class JointRollout:
    """All executions of the workflow on one task."""

    def __init__(self, terms: JointTerms, rollout: Rollout) -> None:
        self.terms = terms
        self.rollout = rollout
        self.position = {role: index for index, role in enumerate(rollout.roles)}
        self.width = terms.n ** len(self.position) if terms.cross else terms.n  # joint actions from one state
        self.executions: list[_Execution] = []
        self.turns: list[_Turn] = []
        self._waves: dict[int, _Wave] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> list[Trajectory]:
        """Sample every group of the task.

        Returns:
            A trajectory for each path of joint actions. Where paths share a response, its row occurs in each.

        Raises:
            WorkflowError: the workflow is none that joint sampling can go around. InternalError: a group has not as
            many joint actions as it must have. What an execution raises: the first error ends all the others.
        """
        self.initial = State(await self.rollout.environment())
        failure: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as self._task_group:
                self.start((), None, {})
        except BaseExceptionGroup as failures:
            failure = failures.exceptions[0]
        if failure is not None:
            raise failure
        if any(task.cancelled() for task in self._tasks):
            raise RuntimeError("a call was cancelled, but not by its caller")
        for turn in self.turns:
            self._check(turn)
        ordered = sorted(self.executions, key=lambda one: one.path)
        for leaf, execution in enumerate(ordered):
            execution.trajectory.sample = leaf if self.terms.tree or not execution.path else execution.path[-1]
        return [execution.trajectory for execution in ordered]

    def start(self, history: tuple[_Commit, ...], turn: _Turn | None, choices: Mapping[str, int]) -> None:
        """Begin an execution that repeats `history` and then makes these choices in the turn."""
        execution = _Execution(self, history, turn, dict(choices), len(self.executions))
        self.executions.append(execution)
        if turn is not None:
            turn.wave.join()
        self._tasks.append(self._task_group.create_task(execution.run()))

    def wave(self, turn: int) -> _Wave:
        """A new group in a tree; else the one of all executions in this turn."""
        return _Wave() if self.terms.tree else self._waves.setdefault(turn, _Wave())

    def _check(self, turn: _Turn) -> None:
        """A group is the joint actions of (task, turn), in a tree below one parent; it is complete or wrong."""
        where = f"the group of task '{self.rollout.task.id}', turn {turn.index}, joint action {turn.number}"
        for role, digests in turn.digests.items():
            if len(digests) > 1:
                raise InternalError(f"prompts of role '{role}' differ within {where}: digests {sorted(digests)}")
        if not turn.group or len(turn.teams) != 1:  # roles that act in some joint actions alone span no product
            return
        expected = self.terms.n ** len(next(iter(turn.teams))) if self.terms.cross else self.terms.n
        if len(turn.indices) != expected:
            raise InternalError(f"{where} has {len(turn.indices)} joint actions instead of {expected}")


class _Execution:
    """One execution of the workflow: one path through the joint actions."""

    def __init__(
        self, joint: JointRollout, history: tuple[_Commit, ...], turn: _Turn | None, choices: dict[str, int], index: int
    ) -> None:
        self.trajectory = joint.rollout.trajectory(index)
        self.path: tuple[int, ...] = () if turn is None else turn.path
        self._joint = joint
        self._view = View(joint.initial)
        self._script = {(one.invocation.role, one.invocation.turn): (at, one) for at, one in enumerate(history)}
        self._at = -1  # how far the repetition has come
        self._begins = turn  # the turn in which the repetition ends
        self._turn: _Turn | None = None
        self._choices = choices
        self._history = list(history)
        self._own = len(history)  # where the current turn begins in the history
        self._entry = asyncio.Lock()
        self._open: list[int] = []  # turns of the decisions under way
        self._last: asyncio.Event | None = None
        self._ended = False

    async def run(self) -> None:
        """Execute the workflow; the reward of the last turn counts when it is over."""
        try:
            await self._joint.rollout.play(self.trajectory, self._view, self.decide)
            if self._script or self._begins is not None:
                raise WorkflowError(_UNREPEATABLE)
            if self._turn is not None:
                turn, self._turn = self._turn, None
                turn.wave.leave(self._close(turn))
        finally:
            for unfinished in (self._turn, self._begins):
                if unfinished is not None:
                    unfinished.wave.leave(None)

    async def decide(self, decision: Decision) -> StepOutcome:
        """Repeat the decision, or make it: the choice of this path, from the state at the start of the turn."""
        if decision.env is not self._view:
            raise WorkflowError("joint sampling needs the workflow to act on the environment that it was given")
        known = self._script.pop((decision.role, decision.turn), None)
        if known is not None:
            return self._repeat(decision, *known)
        before, self._last = self._last, asyncio.Event()
        mine = self._last
        sequential = self._turn is not None and self._turn.index == decision.turn and len(self._history) > self._own
        self._open.append(decision.turn)
        try:
            async with self._entry:  # in the order in which the decisions began
                if self._turn is None or self._turn.index != decision.turn:
                    await self._enter(decision)
                turn, sample = self._choose(decision.role)
            if sequential:
                await self._check_synchronous(decision, turn)
            response = await turn.responses.setdefault((decision.role, sample), Once()).get(
                lambda: self._sample(decision, turn, sample)
            )
            if before is not None:
                await before.wait()  # actions take effect in the order in which the decisions began
            return await self._commit(decision, response)
        finally:
            self._open.remove(decision.turn)
            mine.set()

    def _repeat(self, decision: Decision, at: int, commit: _Commit) -> StepOutcome:
        invocation = replace(
            commit.invocation, breakdown=dict(commit.invocation.breakdown), info=dict(commit.invocation.info)
        )
        self.trajectory.invocations.append(invocation)
        decision.settle(invocation, commit.outcome)
        if at > self._at:
            self._at = at
            self._view.move_to(commit.after)
        return commit.outcome

    async def _enter(self, decision: Decision) -> None:
        """Begin a turn: close the one before it, and begin a group where there is one."""
        if self._ended:
            raise EndOfSampling
        terms, index = self._joint.terms, decision.turn
        if self._begins is not None:
            if self._script or self._begins.index != index:
                raise WorkflowError(_UNREPEATABLE)
            self._turn, self._begins = self._begins, None
            return
        previous = self._turn
        if previous is not None and (index < previous.index or previous.index in self._open):
            raise WorkflowError(
                f"joint sampling needs the roles to answer turn by turn: role '{decision.role}' begins turn {index} "
                f"before turn {previous.index} is over"
            )
        if previous is not None and terms.tree and index != previous.index + 1:
            raise WorkflowError(f"a tree of joint actions needs turns 0, 1, 2, ...: {previous.index} precedes {index}")
        wave = self._joint.wave(index)
        wave.join()
        if previous is not None:
            self._turn = None
            previous.wave.leave(self._close(previous))
            if terms.stop_threshold is not None:
                await previous.wave.over.wait()
            if previous.wave.exceeds(terms.stop_threshold):
                self._ended = True
                wave.leave(None)
                raise EndOfSampling
        turn = _Turn(
            index=index,
            start=self._view.state,
            path=self.path,
            group=previous is None or terms.tree,
            parents=decision.committed_rows(),
            wave=wave,
        )
        self._joint.turns.append(turn)
        self._turn, self._own, self._choices = turn, len(self._history), {}
        if turn.group and not terms.cross:
            self._choices = dict.fromkeys(self._joint.position, 0)
            for choice in range(1, terms.n):
                self._joint.start(tuple(self._history), turn, dict.fromkeys(self._joint.position, choice))

    def _choose(self, role: str) -> tuple[_Turn, int]:
        """The turn, and the `sample` of the response that this path takes. Under cross, each of the others is begun."""
        turn, n = self._turn, self._joint.terms.n
        assert turn is not None
        if not turn.group:
            return turn, turn.number
        if role not in self._choices:
            for choice in range(1, n):
                self._joint.start(tuple(self._history[: self._own]), turn, {**self._choices, role: choice})
            self._choices[role] = 0
        return turn, turn.number * n + self._choices[role]

    async def _prompt(self, decision: Decision, turn: _Turn) -> str:
        async def observe() -> str:
            async with turn.start.lock:
                return await decision.observe_at(turn.start.env)

        return await turn.prompts.setdefault(decision.role, Once()).get(observe)

    async def _sample(self, decision: Decision, turn: _Turn, sample: int) -> Invocation:
        decision.prompt = await self._prompt(decision, turn)
        if not decision.parents_given:
            decision.parents = turn.parents
        (response,) = await decision.ask(sample)
        turn.digests.setdefault(decision.role, set()).add(response.prompt_digest)
        return response

    async def _check_synchronous(self, decision: Decision, turn: _Turn) -> None:
        """Raise WorkflowError if the role would see what another did in the same turn."""
        state = self._view.state
        async with state.lock:
            prompt = await decision.observe_at(state.env)
        if prompt != await self._prompt(decision, turn):
            raise WorkflowError(
                f"joint sampling needs the roles to answer a turn synchronously, but what role '{decision.role}' "
                "observes depends on what another role did in the same turn: let the roles act concurrently, let the "
                "environment show actions in the next turn only, or use sampling.scheme=parallel (or tree)"
            )

    async def _commit(self, decision: Decision, response: Invocation) -> StepOutcome:
        """Apply the response to a copy of the state, which becomes the state of this path."""
        state = self._view.state
        async with state.lock:
            env = await decision.call("copy", state.env.copy)
        outcome = await decision.call("step", lambda: env.step(decision.role, response.response))
        invocation = replace(response, breakdown={}, info={})
        self.trajectory.invocations.append(invocation)
        decision.settle(invocation, outcome)
        after = State(env)
        self._history.append(_Commit(invocation, outcome, after))
        self._view.move_to(after)
        return outcome

    def _close(self, turn: _Turn) -> float:
        """Number the joint action that this path took in the turn. Returns its reward, the sum over its roles."""
        own = [commit.invocation for commit in self._history[self._own :]]
        if turn.group:
            n = self._joint.terms.n
            if self._joint.terms.cross:
                chosen = sum(choice * n ** self._joint.position[role] for role, choice in self._choices.items())
            else:
                chosen = next(iter(self._choices.values()))
            if chosen in turn.indices:
                raise InternalError(f"joint action {chosen} of turn {turn.index} is taken twice below {turn.path}")
            turn.indices.add(chosen)
            turn.teams.add(frozenset(one.role for one in own))
            self.path = (*turn.path, turn.number * self._joint.width + chosen)
        for invocation in own:
            invocation.sample = self.path[-1]
            if self._joint.terms.tree:
                invocation.parent = turn.number if turn.path else -1
        return fsum(one.reward for one in own if one.reward is not None)
