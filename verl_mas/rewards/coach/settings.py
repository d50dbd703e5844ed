"""The options of the coach reward manager (`reward.options`), each with its default and its range."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from verl_mas.config.suggest import unknown_name_error
from verl_mas.rewards.coach.ensemble import AGGREGATES
from verl_mas.rewards.coach.outcome import BackpropagationSettings
from verl_mas.rewards.coach.prompts import check_template
from verl_mas.rewards.coach.templates import GENERAL_FORMAT, TEMPLATES, Template

REPLY_FORMATS = ("text", "json_schema")
Settings = TypeVar("Settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoachSettings:
    """One coach: a model behind an OpenAI-compatible endpoint. Members of an ensemble each have these.

    Attributes:
        model: its name at the endpoint. name: what it is called here; None: as the model.
        base_url: address of the endpoint, up to /v1; None: the client's own (OPENAI_BASE_URL, else OpenAI's).
        api_key_env: name of the environment variable that holds the key; None: the endpoint needs none.
        temperature: None: the endpoint's own. max_tokens: longest reply in tokens; None: the endpoint's own.
        reply_format: text: a verdict line; json_schema: JSON that the endpoint holds to a schema (response_format).
        reasoning: whether JSON holds the coach's reasoning before the score.
        timeout_s: seconds that one request may take.
        requests_per_minute: evenly spaced; None: no limit. max_concurrency: requests under way at once.
        extra_body: further members of the request.
    """

    model: str
    name: str | None = None
    base_url: str | None = None
    api_key_env: str | None = "OPENAI_API_KEY"
    temperature: float | None = 0.0
    max_tokens: int | None = 2048
    reply_format: str = "text"
    reasoning: bool = True
    timeout_s: float = 120.0
    requests_per_minute: float | None = None
    max_concurrency: int = 512
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _texts(self, "model", optional=("name", "base_url", "api_key_env"))
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"option 'base_url' must begin with http:// or https://, not {self.base_url!r}")
        if self.temperature is not None:
            _number(self, "temperature", low=0.0)
        if self.max_tokens is not None:
            _whole(self, "max_tokens", low=1)
        if self.reply_format not in REPLY_FORMATS:
            raise unknown_name_error("reply_format", str(self.reply_format), REPLY_FORMATS)
        _switch(self, "reasoning")
        _number(self, "timeout_s", above=0.0)
        if self.requests_per_minute is not None:
            _number(self, "requests_per_minute", above=0.0)
        _whole(self, "max_concurrency", low=1)
        if not isinstance(self.extra_body, Mapping):
            raise ValueError(f"option 'extra_body' must be a mapping, not {self.extra_body!r}")

    @property
    def label(self) -> str:
        """What messages and metrics call the coach."""
        return self.name or self.model

    @property
    def described(self) -> str:
        """The coach and its endpoint, for messages."""
        return f"coach {self.label} at {self.base_url or os.environ.get('OPENAI_BASE_URL') or 'the OpenAI endpoint'}"

    def api_key(self) -> str:
        """The key, read from the environment.

        Raises:
            ValueError: the variable is not set.
        """
        if self.api_key_env is None:
            return "none"  # the client insists on one, and the endpoint ignores it
        key = os.environ.get(self.api_key_env)
        if not key:
            raise ValueError(
                f"option 'api_key_env': the environment variable {self.api_key_env} is not set; name the one that "
                "holds the coach's key, or null if the endpoint needs none"
            )
        return key


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How actions are scored, whichever coach does it.

    Attributes:
        ensemble: options that differ from the common ones, for each of several coaches; empty: one coach.
        aggregate: mean or median of the scores that the coaches of an ensemble gave.
        template: general, mathchat or dsbench. prompt: a template of one's own instead.
        facts: placeholders of `prompt` that the environment's step provides in `info`.
        roles: what the coach reads about each role; empty: its name. last_role: the role that ends the workflow, whose
            last action is judged with the ground truth; None: whichever role acts last.
        problem_key, ground_truth_key, observation_key, task_type_key: where `info` of a step has the problem, the
            ground truth, the tool's observation and the type of task. Without a problem, the first input of the
            trajectory is shown; without an observation, all other facts of the step.
        score_validation: whether validation is scored too; otherwise it keeps the team score and costs nothing.
        attempts: how often a coach is asked until its reply has a score. retries: further requests after a transport
            error, each `backoff_s`, 2 * backoff_s, ... seconds after the last, at most `max_backoff_s`.
        max_failure_rate: largest tolerated share of actions without a score. failure_allowance: failures that are
            tolerated whatever their share.
        cache: whether verdicts are kept on disk, or in this process alone. cache_dir: where; None: <run_dir>/coach.
        max_calls, max_total_tokens: budgets of the run, over all workers and resumes; None: no limit.
        feedback: whether the coach is told its own score statistics.
        backpropagation: outcome-aware reward backpropagation (MAPPA, appendix F); None: off.
    """

    ensemble: Sequence[Mapping[str, Any]] = ()
    aggregate: str = "mean"
    template: str = "general"
    prompt: str | None = None
    facts: Sequence[str] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    last_role: str | None = None
    problem_key: str = "problem"
    ground_truth_key: str = "ground_truth"
    observation_key: str = "tool_observation"
    task_type_key: str = "task_type"
    score_validation: bool = False
    attempts: int = 2
    retries: int = 5
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    max_failure_rate: float = 0.05
    failure_allowance: int = 5
    cache: bool = True
    cache_dir: str | None = None
    max_calls: int | None = None
    max_total_tokens: int | None = None
    feedback: bool = False
    backpropagation: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.aggregate not in AGGREGATES:
            raise unknown_name_error("aggregate", str(self.aggregate), AGGREGATES)
        if self.template not in TEMPLATES:
            raise unknown_name_error("template", str(self.template), TEMPLATES)
        check_template(self.asked.text, self.asked.facts)
        if self.last_role is not None and self.roles and self.last_role not in self.roles:
            raise unknown_name_error("role", self.last_role, self.roles)
        _texts(
            self,
            *("problem_key", "ground_truth_key", "observation_key", "task_type_key"),
            optional=("prompt", "last_role", "cache_dir"),
        )
        for name in ("score_validation", "cache", "feedback"):
            _switch(self, name)
        _whole(self, "attempts", low=1)
        _whole(self, "retries", low=0)
        _whole(self, "failure_allowance", low=0)
        _number(self, "backoff_s", low=0.0)
        _number(self, "max_backoff_s", low=0.0)
        _number(self, "max_failure_rate", low=0.0, high=1.0)
        for name in ("max_calls", "max_total_tokens"):
            if getattr(self, name) is not None:
                _whole(self, name, low=1)

    @property
    def asked(self) -> Template:
        """The template in use."""
        if self.prompt is None:
            return TEMPLATES[self.template]
        return Template(self.prompt, GENERAL_FORMAT, tuple(self.facts))

    @property
    def backward(self) -> BackpropagationSettings | None:
        """The settings of the backward pass, None if it is off."""
        if self.backpropagation is None:
            return None
        return _settings(BackpropagationSettings, self.backpropagation, "option of backpropagation")


def read_options(options: Mapping[str, Any]) -> tuple[RunSettings, tuple[CoachSettings, ...]]:
    """The settings that `reward.options` means.

    Raises:
        UnknownNameError: an unknown option or name, with the nearest known one. ValueError: an option is missing, or
        its value is of the wrong kind or out of range; it names the option.
    """
    run_names, coach_names = _names(RunSettings), _names(CoachSettings)
    for name in options:
        if name not in (*run_names, *coach_names):
            raise unknown_name_error("option", name, (*run_names, *coach_names))
    run = _settings(RunSettings, {name: value for name, value in options.items() if name in run_names}, "option")
    _ = run.backward  # checks it
    common = {name: value for name, value in options.items() if name in coach_names}
    members = run.ensemble or ({},)
    for member in members:
        if not isinstance(member, Mapping):
            raise ValueError(f"option 'ensemble' must be a list of mappings, not of {member!r}")
    what = "option of ensemble" if run.ensemble else "option"
    coaches = tuple(_settings(CoachSettings, {**common, **member}, what) for member in members)
    labels = [coach.label for coach in coaches]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"option 'ensemble': two coaches are called {label!r}; give each a 'name'")
    return run, coaches


def _names(settings: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(settings))


def _settings(kind: type[Settings], options: Mapping[str, Any], what: str) -> Settings:
    names = _names(kind)
    for name in options:
        if name not in names:
            raise unknown_name_error(what, str(name), names)
    for one in fields(kind):  # type: ignore[arg-type]
        if one.default is MISSING and one.default_factory is MISSING and one.name not in options:
            raise ValueError(f"{what} '{one.name}' must be given")
    return kind(**options)


def _number(
    settings: object, name: str, *, low: float = -math.inf, high: float = math.inf, above: float = -math.inf
) -> None:
    value = getattr(settings, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"option '{name}' must be a finite number, not {value!r}")
    if not (low <= value <= high and value > above):
        bound = (
            f"in [{low:g}, {high:g}]"
            if high < math.inf
            else f"above {above:g}"
            if above > -math.inf
            else f"at least {low:g}"
        )
        raise ValueError(f"option '{name}' must be {bound}, not {value!r}")


def _whole(settings: object, name: str, *, low: int) -> None:
    value = getattr(settings, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"option '{name}' must be a whole number of at least {low}, not {value!r}")


def _switch(settings: object, name: str) -> None:
    if not isinstance(getattr(settings, name), bool):
        raise ValueError(f"option '{name}' must be true or false, not {getattr(settings, name)!r}")


def _texts(settings: object, *names: str, optional: Sequence[str] = ()) -> None:
    for name in (*names, *optional):
        value = getattr(settings, name)
        if value is None and name in optional:
            continue
        if not isinstance(value, str) or not value:
            raise ValueError(f"option '{name}' must be a text, not {value!r}")
