"""Sokoban as a task family: levels, prompts, and the environment in which tool and planner act.

In a turn the tool speaks first. Its proposal is simulated and scored on the current state but does not move it; the
planner then sees the proposal and gives the list that is executed.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from verl_mas.config.suggest import unknown_name_error
from verl_mas.workflow.environment import Environment, Split, StepOutcome, Task, TaskFamily
from verl_mas_games.sokoban import prompts
from verl_mas_games.sokoban.actions import Moves, parse_answer, parse_code, parse_letters, parse_list, show
from verl_mas_games.sokoban.game import Rollout, State, parse_state
from verl_mas_games.sokoban.generator import LevelOptions, content_digest, generate
from verl_mas_games.sokoban.rewards import LIST_SCORES, ListScore, planner_reward, tool_reward
from verl_mas_games.sokoban.sandboxed import PythonSandbox, default_sandbox

Style = Literal["text", "compact"]
ToolForm = Literal["code", "actions"]
ROLES = ("tool", "planner")
_SHOWN_OUTPUT = 1000  # characters of a program's output that the prompts show


@dataclass(frozen=True, slots=True)
class Rules:
    """How responses are read and what they may do; the same for every environment of a family. See `Sokoban`."""

    style: Style
    tool: ToolForm
    max_actions: int | None
    list_score: ListScore
    done_on_deadlock: bool
    sandbox: PythonSandbox | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the tool said in a turn: its response, the execution output, and the moves, None where it gave no list."""

    response: str
    output: str
    moves: Moves | None


class SokobanEnvironment(Environment):
    """One level being played. The state is immutable, so copies share nothing that changes."""

    def __init__(self, state: State, rules: Rules) -> None:
        self.state = state
        self.rules = rules
        self.proposal: Proposal | None = None
        self.history: tuple[str, ...] = ()
        self.inline = rules.tool == "actions"  # microseconds; handing a step to a thread would cost more

    @property
    def done(self) -> bool:
        """Solved, or (unless `done_on_deadlock` is false) a box is stuck in a corner for ever."""
        return self.state.solved or (self.rules.done_on_deadlock and self.state.deadlocked)

    @property
    def success(self) -> bool:
        """Whether every box is on a goal."""
        return self.state.solved

    def copy(self) -> "SokobanEnvironment":
        """An independent copy: every attribute is immutable and is replaced, never changed."""
        return copy.copy(self)

    def observe(self, role: str) -> Mapping[str, str]:
        """Values for the placeholders of the role's prompt. Raises UnknownNameError for a role not in ROLES."""
        _check_role(role)
        if self.rules.style == "compact":
            grid = self.state.render(border=False)
            return {"grid": grid} if role == "tool" else {"grid": grid, "proposal": "".join(self._proposed)}
        task = prompts.TASK
        if self.rules.max_actions is not None:
            task += prompts.LIMIT.format(max_actions=self.rules.max_actions)
        instructions, requirements = self._instructions(role)
        values = {
            "instructions": instructions,
            "task": task,
            "grid": self.state.render(),
            "history": prompts.HISTORY.format(steps="\n".join(self.history)) if self.history else "",
            "requirements": requirements,
        }
        if role == "planner":
            values["tool_response"] = self.proposal.response if self.proposal else "(none)"
            values["tool_output"] = self.proposal.output if self.proposal else "(none)"
            values["tool_action"] = show(self._proposed)
        return values

    def step(self, role: str, response: str) -> StepOutcome:
        """The tool's step records its proposal; the planner's step executes its list and ends the turn.

        Raises UnknownNameError for a role that is none of ROLES, and SandboxError where a program cannot be run at
        all. Whatever the response says is an outcome.
        """
        _check_role(role)
        return self._step_tool(response) if role == "tool" else self._step_planner(response)

    def _step_tool(self, response: str) -> StepOutcome:
        execution: dict[str, object] = {}
        if self.rules.tool == "code":
            moves, output, execution = self._run(response)
        else:
            moves = parse_letters(response) if self.rules.style == "compact" else parse_answer(response)
            output = "(no action list found)" if moves is None else show(moves)
        moves = self._capped(moves)
        parts, rollout = tool_reward(self.state, moves, self.rules.list_score, self.rules.max_actions)
        self.proposal = Proposal(response, output, moves)
        return StepOutcome(parts, {**_facts(moves, rollout), **execution})

    def _step_planner(self, response: str) -> StepOutcome:
        moves = parse_letters(response) if self.rules.style == "compact" else parse_answer(response)
        moves = self._capped(moves)
        parts, rollout = planner_reward(self.state, moves, self.rules.list_score, self.rules.max_actions)
        self.history += (_history_entry(len(self.history) + 1, self.proposal, moves, rollout),)
        self.state = rollout.after
        self.proposal = None
        return StepOutcome(parts, _facts(moves, rollout))

    def _run(self, response: str) -> tuple[Moves | None, str, dict[str, object]]:
        code = parse_code(response)
        if code is None:
            return None, "(no single Python code block found)", {"exit_code": None, "timed_out": False}
        if self.rules.sandbox is None:
            raise RuntimeError("tool=code needs a sandbox")
        result = self.rules.sandbox.run_python(code)
        facts: dict[str, object] = {"exit_code": result.exit_code, "timed_out": result.timed_out}
        if result.timed_out:
            return None, "(stopped at the time limit)", facts
        if result.exit_code != 0:
            return None, f"(failed with exit code {result.exit_code})", facts
        return parse_list(result.stdout), result.stdout.strip()[:_SHOWN_OUTPUT] or "(nothing printed)", facts

    @property
    def _proposed(self) -> Moves:
        return (self.proposal.moves or ()) if self.proposal else ()

    def _capped(self, moves: Moves | None) -> Moves | None:
        return moves if moves is None or self.rules.max_actions is None else moves[: self.rules.max_actions]

    def _instructions(self, role: str) -> tuple[str, str]:
        first, code = not self.history, self.rules.tool == "code"
        if role == "planner":
            if not first:
                return prompts.PLANNER_REFINE, prompts.PLANNER_REFINE_REQUIREMENTS
            given = prompts.PLANNER_FIRST_CODE if code else prompts.PLANNER_FIRST_ACTIONS
            return given, prompts.PLANNER_FIRST_REQUIREMENTS
        if code and first:
            return prompts.TOOL_CODE_FIRST, prompts.TOOL_CODE_REQUIREMENTS
        if code:
            return prompts.TOOL_CODE_REFINE, prompts.TOOL_CODE_REFINE_REQUIREMENTS
        return prompts.TOOL_ACTIONS_FIRST if first else prompts.TOOL_ACTIONS_REFINE, prompts.TOOL_ACTIONS_REQUIREMENTS


class Sokoban(TaskFamily):
    """Levels of Sokoban (the paper: 6x6) for the roles `tool` and `planner`.

    Args:
        style: "text", natural-language prompts for language models, or "compact", characters for the embedded model.
        tool: "code": the tool writes Python that prints an action list (the paper), run in a sandbox without which the
            family refuses to start; "actions": it gives the list itself.
        size, boxes, walls, min_length, max_length: see LevelOptions.
        train_min_length, train_max_length: the same bounds for training levels, where they shall differ.
        max_actions: how many moves of a list are executed and scored in a turn; the rest is ignored. None: all of them,
            as in the paper.
        list_score: "all", "mean" or "slots" (which needs max_actions), see rewards.py.
        done_on_deadlock: end a trajectory whose box is stuck in a corner for ever.
        time_limit: seconds that a program of the tool may take.
        seed: decides the levels. sandbox: runs programs for tool="code"; None: bubblewrap.

    Raises:
        UnknownNameError (a ValueError): style, tool or list_score that does not exist.
        ValueError: numbers out of range, or the compact style with tool="code".
        SandboxUnavailable: tool="code" where programs cannot be contained.
    """

    def __init__(
        self,
        *,
        style: Style = "text",
        tool: ToolForm = "code",
        size: int = 6,
        boxes: int = 1,
        walls: int = 2,
        min_length: int = 3,
        max_length: int = 9,
        train_min_length: int | None = None,
        train_max_length: int | None = None,
        max_actions: int | None = None,
        list_score: ListScore = "all",
        done_on_deadlock: bool = True,
        time_limit: float = 5.0,
        seed: int = 0,
        sandbox: PythonSandbox | None = None,
    ) -> None:
        for kind, name, known in (
            ("style", style, ("text", "compact")),
            ("tool", tool, ("code", "actions")),
            ("list_score", list_score, LIST_SCORES),
        ):
            if name not in known:
                raise unknown_name_error(kind, name, known)
        if style == "compact" and tool == "code":
            raise ValueError("style=compact has no characters for programs: use tool=actions with it, or style=text")
        if max_actions is not None and max_actions < 1:
            raise ValueError(f"max_actions must be at least 1, or null for no limit, not {max_actions}")
        if list_score == "slots" and max_actions is None:
            raise ValueError("list_score=slots averages over the actions of a turn: give their number, max_actions")
        if time_limit <= 0:
            raise ValueError(f"time_limit must be above 0 s, not {time_limit}")
        levels = LevelOptions(size, boxes, walls, min_length, max_length)
        self._levels: dict[Split, LevelOptions] = {
            "val": levels,
            "train": replace(
                levels,
                min_length=min_length if train_min_length is None else train_min_length,
                max_length=max_length if train_max_length is None else train_max_length,
            ),
        }
        self._seed = seed
        if tool == "code":
            sandbox = sandbox or default_sandbox(time_limit)
            sandbox.check()
        self.prompts = prompts.COMPACT if style == "compact" else prompts.TEXT
        self._rules = Rules(style, tool, max_actions, list_score, done_on_deadlock, sandbox)

    def task(self, split: Split, index: int) -> Task:
        """The `index`-th level. The payload holds the text of the level and the length of its shortest solution."""
        if split not in self._levels:
            raise unknown_name_error("split", split, self._levels)
        level = generate(self._levels[split], self._seed, split, index)
        payload = {"level": level.state.render(), "solution_length": len(level.solution)}
        return Task(id=f"{split}-{index}", digest=level.digest, payload=payload)

    def environment(self, task: Task) -> SokobanEnvironment:
        """A fresh game. Raises ValueError for a task whose payload is not what its digest says."""
        state = parse_state(task.payload["level"])
        if content_digest(state) != task.digest:
            raise ValueError(f"task {task.id!r} does not have the content that its digest names")
        return SokobanEnvironment(state, self._rules)


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise unknown_name_error("role", role, ROLES)


def _facts(moves: Moves | None, rollout: Rollout) -> dict[str, object]:
    return {
        "parsed": moves is not None,
        "actions": "".join(rollout.executed),
        "legal": list(rollout.legal),
        "boxes_on_goals": rollout.after.boxes_on_goals,
        "potential": rollout.after.potential,
        "deadlocked": rollout.after.deadlocked,
        "solved": rollout.after.solved,
    }


def _history_entry(turn: int, proposal: Proposal | None, moves: Moves | None, rollout: Rollout) -> str:
    illegal = [str(number) for number, legal in enumerate(rollout.legal, start=1) if not legal]
    lines = []
    if proposal is not None:
        lines += [f"Tool response of turn {turn}:", proposal.response, f"Its execution output: {proposal.output}"]
    given = "not readable, so nothing was done" if moves is None else show(rollout.executed)
    lines.append(f"The {turn}-th final action list is {given}.")
    if illegal:
        lines.append(f"Illegal moves in it, which changed nothing: number {', '.join(illegal)}.")
    lines += [f"The {turn}-th state is", rollout.after.render()]
    return "\n".join(lines)
