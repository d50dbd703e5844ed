"""Two writers as a task family: themes, prompts, and the environment that scores their words by one of three goals.

- fit: letter i of one word is the opposite of letter i of the other (U and D, L and R). The team score is the share of
  positions that fit, which no role can earn alone: the two must find a convention.
- letters: each role has a letter of its own, of which its whole word should consist. Its local score is the share of
  right positions, and the team score is the mean of both.
- guess: the first role as in `letters`, while the second shall match a random word that nothing tells it, so that
  whatever it writes is worth 1/4 on average. Only the first can help; the second's luck is noise in the team score.

A theme (sixteen symbols of the compact Sokoban prompts) makes tasks differ, and means nothing.

Whoever writes first in a turn cannot know what the words are worth together. The rule `partner` pays it later what the
other's word added to the team score, with the weight that the manager's mixing gives the team score.
"""

import copy
import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from verl_mas.config.suggest import unknown_name_error
from verl_mas.rewards.parts import Component, RewardParts
from verl_mas.rewards.rules import Assignment, DelayedRule
from verl_mas.trajectory.records import Invocation, Trajectory
from verl_mas.workflow.environment import Environment, Split, StepOutcome, Task, TaskFamily
from verl_mas_games.sokoban.actions import Moves
from verl_mas_games.sokoban.generator import split_of
from verl_mas_games.writers.words import OPPOSITE, fitting, guessing, matching, read_word

Goal = Literal["fit", "letters", "guess"]
GOALS = ("fit", "letters", "guess")
PARTNER = {"first": "second", "second": "first"}
#: the prompts of the embedded model, with the partner's last word where the planner sees a proposal
PROMPTS = {"first": "{theme}\nT{partner}>", "second": "{theme}\nP{partner}>"}
_THEME = "-" * 11 + "##@$."
_ROW = 4  # symbols in a row of a theme
_MAX_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class Rules:
    """What the words shall be; the same for every environment of a family. See `Writers`."""

    goal: Goal
    length: int
    letters: Mapping[str, str]


class WritersEnvironment(Environment):
    """One theme being written about. Copies share nothing that changes."""

    inline = True  # microseconds; handing a step to a thread would cost more

    def __init__(self, theme: str, hidden: Moves, rules: Rules) -> None:
        self.theme = theme
        self.hidden = hidden
        self.rules = rules
        self.last: Mapping[str, Moves | None] = {}  # the words of the last turn that is over
        self.words: Mapping[str, Moves | None] = {}  # those of the turn that is not

    @property
    def done(self) -> bool:
        """Whether the last words are right; then another turn can add nothing."""
        return self.success

    @property
    def success(self) -> bool:
        """Whether every position is right: of both words, or for the goal `guess` of the first role's."""
        if not self.last:
            return False
        if self.rules.goal == "guess":
            return self._own("first", self.last["first"]) == 1.0
        return self._team(self.last) == 1.0

    def copy(self) -> "WritersEnvironment":
        """An independent copy: every attribute is replaced, never changed."""
        return copy.copy(self)

    def observe(self, role: str) -> Mapping[str, str]:
        """The theme and the partner's last word, of a turn that is over. Raises UnknownNameError for another role."""
        _check_role(role)
        return {"theme": self.theme, "partner": "".join(self.last.get(PARTNER[role]) or ())}

    def step(self, role: str, response: str) -> StepOutcome:
        """Note the role's word; once both have written, the turn is over.

        The team score is what the turn's words are worth so far. Raises UnknownNameError for another role.
        """
        _check_role(role)
        word = read_word(response)
        words = {**self.words, role: word}
        over = len(words) == len(PARTNER)
        self.words, self.last = ({}, words) if over else (words, self.last)
        local = {} if self.rules.goal == "fit" else {self._component(role): Component(1.0, self._own(role, word))}
        info = {"parsed": word is not None, "word": "".join(word or ()), "turn_over": over}
        return StepOutcome(RewardParts(self._team(words), local), info)

    def _team(self, words: Mapping[str, Moves | None]) -> float:
        if self.rules.goal == "fit":
            return fitting(words.get("first"), words.get("second"), self.rules.length)
        return sum(self._own(role, word) for role, word in words.items()) / len(PARTNER)

    def _own(self, role: str, word: Moves | None) -> float:
        """What a role's word is worth by itself, for the goals that know such a thing."""
        if self._component(role) == "guess":
            return guessing(word, self.hidden)
        return matching(word, self.rules.letters[role] * self.rules.length)

    def _component(self, role: str) -> str:
        return "guess" if self.rules.goal == "guess" and role == "second" else "letters"


class Writers(TaskFamily):
    """Themes for the roles `first` and `second`.

    Args:
        goal: "fit", "letters" or "guess"; see above.
        length: letters that a word should have.
        letters: the letter of the first role and that of the second, for the goals that have them.
        hidden: letters of the hidden word; the fewer, the more luck, whose standard deviation is sqrt(3 / hidden) / 4.
        seed: decides the themes and the hidden words.

    Raises:
        UnknownNameError (a ValueError): an unknown goal. ValueError: another option is out of range.
    """

    prompts = PROMPTS

    def __init__(
        self, *, goal: Goal = "fit", length: int = 4, letters: str = "UL", hidden: int = 1, seed: int = 0
    ) -> None:
        if goal not in GOALS:
            raise unknown_name_error("goal", goal, GOALS)
        if length < 1:
            raise ValueError(f"length must be at least 1, not {length}")
        if len(letters) != len(PARTNER) or not set(letters) <= set(OPPOSITE):
            raise ValueError(f"letters must be two of {''.join(OPPOSITE)}, one for each role, not {letters!r}")
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, not {hidden}")
        self._hidden = hidden
        self._rules = Rules(goal, length, dict(zip(PARTNER, letters, strict=True)))
        self._seed = seed
        self.reward_rules = (partner_rule(additive=goal != "fit"),)

    def task(self, split: Split, index: int) -> Task:
        """The `index`-th theme. The payload holds it and, for the goal `guess`, the hidden word.

        The lowest bit of a theme's hash says in which split it may appear, for all seeds and goals together.
        """
        if split not in ("train", "val"):
            raise unknown_name_error("split", split, ("train", "val"))
        if index < 0:
            raise ValueError(f"index must not be negative, got {index}")
        rng = random.Random(f"writers/{self._seed}/{split}/{index}")
        for _ in range(_MAX_ATTEMPTS):
            symbols = "".join(rng.sample(_THEME, len(_THEME)))
            theme = "\n".join(symbols[start : start + _ROW] for start in range(0, len(symbols), _ROW))
            if split_of(hashlib.sha256(theme.encode()).hexdigest()) == split:
                payload: dict[str, Any] = {"theme": theme}
                if self._rules.goal == "guess":
                    payload["hidden"] = "".join(rng.choices(list(OPPOSITE), k=self._hidden))
                return Task(f"{split}-{index}", _digest(payload), payload)
        raise RuntimeError(f"no theme of split {split!r} found in {_MAX_ATTEMPTS} attempts")

    def environment(self, task: Task) -> WritersEnvironment:
        """A fresh state. Raises ValueError for a task whose payload is not what its digest says."""
        if _digest(task.payload) != task.digest:
            raise ValueError(f"task {task.id!r} does not have the content that its digest names")
        return WritersEnvironment(task.payload["theme"], tuple(task.payload.get("hidden", "")), self._rules)


def partner_rule(additive: bool) -> DelayedRule:
    """Pays whoever wrote first in a turn what the other's word added to the team score.

    Args:
        additive: whether that is the same for whichever word the first writer might have written, as where the team
            score is a mean of own scores. Then candidates that were not committed are paid it too; else the rule raises
            ValueError for them.
    """

    def assignments(trajectory: Trajectory) -> Iterator[Assignment]:
        committed = {(one.turn, one.role): one for one in trajectory.invocations if one.chosen}
        closing = {one.turn: one for one in committed.values() if one.info["turn_over"]}
        for one in trajectory.invocations:
            last = closing.get(one.turn)
            if last is None or last.role == one.role:
                continue
            if not one.chosen and not additive:
                raise ValueError(
                    f"rule 'partner': row {one.row} was not committed, so how well the words fit says nothing about "
                    "it; use a sampling scheme that commits every response (sampling.scheme=parallel or joint)"
                )
            yield Assignment(one.row, _team_term(last) - _team_term(committed[one.turn, one.role]))

    return DelayedRule("partner", assignments)


def _team_term(invocation: Invocation) -> float:
    return invocation.breakdown["team"]


def _digest(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(dict(payload), sort_keys=True).encode()).hexdigest()


def _check_role(role: str) -> None:
    if role not in PARTNER:
        raise unknown_name_error("role", role, PARTNER)
