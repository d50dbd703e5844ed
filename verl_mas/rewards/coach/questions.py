"""From a finished trajectory to questions: what the coach is shown of each action, and how its reply is read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from verl_mas.config.suggest import unknown_name_error
from verl_mas.rewards.coach import prompts, templates
from verl_mas.rewards.coach.parsing import (
    OUTCOME_CONTRIBUTION,
    SCALE,
    parse_json_number,
    parse_json_score,
    parse_line,
    parse_score,
)
from verl_mas.rewards.coach.prompts import Prompt
from verl_mas.rewards.coach.settings import CoachSettings, RunSettings
from verl_mas.trajectory.records import Invocation, Trajectory

#: where an invocation's `info` holds what the coach said about it
NOTES = "coach"


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, the schema of the reply (None: text), and what reads a number from the reply (None: there is none)."""

    prompt: Prompt
    schema: Mapping[str, Any] | None
    read: Callable[[str], float | None]


def committed(trajectory: Trajectory) -> list[Invocation]:
    """The actions that were taken, in causal order: the steps s_1 ... s_T."""
    return [invocation for invocation in trajectory.invocations if invocation.chosen]


class Questions:
    """Asks about the actions of one trajectory.

    Args:
        settings: of the run. trajectory: finished; its `breakdown` still holds the team score.

    Raises:
        UnknownNameError: a role that `roles` does not describe.
    """

    def __init__(self, settings: RunSettings, trajectory: Trajectory) -> None:
        self._settings = settings
        self.trajectory = trajectory
        self.path = committed(trajectory)
        named = list(dict.fromkeys(invocation.role for invocation in trajectory.invocations))
        for role in named:
            if settings.roles and role not in settings.roles:
                raise unknown_name_error("role in reward.options.roles", role, settings.roles)
        self._roles = dict(settings.roles) or {role: role for role in named}
        last_role = settings.last_role or (self.path[-1].role if self.path else "")
        last = [invocation for invocation in self.path if invocation.role == last_role]
        self._last_decision = (last_role, last[-1].turn) if last else None

    def process(self, invocation: Invocation, coach: CoachSettings, note: str) -> Question:
        """How good is this action? (MAPPA, 2.2.) The ground truth is shown for the last action of the last role only.

        With backpropagation it is not shown at all: p_t does not know the outcome (appendix F.2).

        Args:
            note: score statistics that the coach is told.

        Raises:
            UnknownNameError: the step's info lacks a fact that the template shows.
        """
        settings, template = self._settings, self._settings.asked
        shows_truth = settings.backpropagation is None and (invocation.role, invocation.turn) == self._last_decision
        written = self._written(invocation)
        written["ground_truth_answer"] = self._truth(invocation) if shows_truth else None
        for fact in template.facts:
            if fact not in invocation.info:
                raise unknown_name_error("fact in the info of the environment's step", fact, invocation.info)
            written[fact] = invocation.info[fact]
        output_format = template.output_format
        if coach.reply_format == "json_schema":
            output_format = prompts.JSON_REASONED_SCORE_FORMAT if coach.reasoning else prompts.JSON_SCORE_FORMAT
        prompt = prompts.render(template.text, self._trusted(invocation, output_format), written, note=note)
        if coach.reply_format == "json_schema":
            return Question(prompt, _schema("process_score", 0, coach.reasoning), parse_json_score)
        return Question(prompt, None, partial(parse_score, agent_text=prompt.agent_text))

    def backward(
        self, step: int, coach: CoachSettings, *, value: float, unexplained: float, residual: str | None
    ) -> Question:
        """Which part of the outcome does action `step` (0 is the first) explain? (MAPPA, appendix F.2.)

        Args:
            value, unexplained: v(R) and what of it is not yet attributed, in points (10 is 1.0).
            residual: what was said about later actions.
        """
        invocation = self.path[step]
        as_json = coach.reply_format == "json_schema"
        trusted = {
            **self._trusted(invocation, prompts.JSON_CONTRIBUTION_FORMAT if as_json else prompts.CONTRIBUTION_FORMAT),
            "step": str(step + 1),
            "steps": str(len(self.path)),
            "value": f"{value:g}",
            "unexplained": f"{unexplained:g}",
            "last": "This is the first action: no earlier one can explain what is left." if step == 0 else "",
        }
        written = {**self._written(invocation), "outcome": self._outcome(), "residual": residual}
        prompt = prompts.render(templates.BACKWARD, trusted, written)
        if as_json:
            read = partial(parse_json_number, key="outcome_contribution", low=-SCALE, high=SCALE)
            return Question(prompt, _schema("outcome_contribution", -int(SCALE), True), read)
        read_line = partial(
            parse_line, label=OUTCOME_CONTRIBUTION, low=-SCALE, high=SCALE, agent_text=prompt.agent_text
        )
        return Question(prompt, None, read_line)

    def outcome(self, kind: str) -> float:
        """The outcome in [0, 1]: success, or the environment's team score after the last action."""
        return float(self.trajectory.success) if kind == "success" else self.path[-1].breakdown["team"]

    def task_type(self, invocation: Invocation) -> str:
        """The type of task, "" if the environment names none."""
        return str(invocation.info.get(self._settings.task_type_key, ""))

    def _trusted(self, invocation: Invocation, output_format: str) -> dict[str, str]:
        team = "\n".join(f"{number}. {said}" for number, said in enumerate(self._roles.values(), start=1))
        return {"team": team, "agent_role": self._roles[invocation.role], "output_format": output_format}

    def _written(self, invocation: Invocation) -> dict[str, Any]:
        settings = self._settings
        return {
            "problem": invocation.info.get(settings.problem_key, self.trajectory.invocations[0].prompt),
            "agent_input": invocation.prompt,
            "agent_output": invocation.response,
            "tool_observation": self._observation(invocation),
        }

    def _observation(self, invocation: Invocation) -> Any:
        settings = self._settings
        if settings.observation_key in invocation.info:
            return invocation.info[settings.observation_key]
        shown_elsewhere = {settings.problem_key, settings.ground_truth_key, settings.task_type_key, NOTES}
        shown_elsewhere |= set(settings.asked.facts)
        return {key: value for key, value in invocation.info.items() if key not in shown_elsewhere} or None

    def _truth(self, invocation: Invocation) -> Any:
        return invocation.info.get(self._settings.ground_truth_key)

    def _outcome(self) -> dict[str, Any]:
        """R_T as the coach reads it."""
        said = {"solved": self.trajectory.success, "team score, from 0 to 1": self.outcome("team")}
        truth = self._truth(self.path[-1])
        return said if truth is None else {**said, "ground truth": truth}


def residual_text(steps: Sequence[tuple[int, str, float | None]], last_reply: str) -> str:
    """What is passed backward: the points of every later action (step, role, points), and the last explanation."""
    lines = [
        f"Action {step + 1} ({role}): {'nothing was said' if points is None else f'{points:g} points'}"
        for step, role, points in steps
    ]
    return "\n".join([*lines, "", last_reply]) if last_reply else "\n".join(lines)


def _schema(key: str, low: int, reasoning: bool) -> dict[str, Any]:
    properties: dict[str, Any] = {"reasoning": {"type": "string"}} if reasoning else {}
    properties[key] = {"type": "integer", "minimum": low, "maximum": int(SCALE)}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
