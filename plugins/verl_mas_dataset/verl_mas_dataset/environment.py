"""A data set in verl's format as a task family: the prompt is the task, the score of the response is its reward."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from verl_mas.config.suggest import unknown_name_error
from verl_mas.rewards.parts import RewardParts
from verl_mas.workflow.environment import Environment, Split, StepOutcome, Task, TaskFamily
from verl_mas_dataset.rows import Row, read_rows
from verl_mas_dataset.scoring import RewardFunction, load_reward_function, score_response

ROLE = "solver"


class DatasetEnvironment(Environment):
    """One problem, until it is answered.

    Args:
        row: the problem. function: scores the response. success_score: score from which the problem counts as solved.
    """

    def __init__(self, row: Row, function: RewardFunction, success_score: float) -> None:
        self._row = row
        self._function = function
        self._success_score = success_score
        self._score: float | None = None

    @property
    def done(self) -> bool:
        """Whether the problem has been answered."""
        return self._score is not None

    @property
    def success(self) -> bool:
        """Whether the answer scored at least `success_score`."""
        return self._score is not None and self._score >= self._success_score

    def copy(self) -> "DatasetEnvironment":
        """An independent copy; the problem itself never changes and is shared."""
        copied = DatasetEnvironment(self._row, self._function, self._success_score)
        copied._score = self._score
        return copied

    def observe(self, role: str) -> Mapping[str, str]:
        """The prompt as it stands in the file. Raises UnknownNameError for another role than the solver."""
        _check_role(role)
        return {"prompt": self._row.prompt}

    def step(self, role: str, response: str) -> StepOutcome:
        """Score the response: the team's score, without local components.

        Raises ScoreError for a score outside [0, 1], and whatever the reward function raises.
        """
        _check_role(role)
        self._score, said = score_response(self._function, self._row, response)
        return StepOutcome(RewardParts(team=self._score), {"score": self._score, **said})


class Dataset(TaskFamily):
    """Problems from parquet files in verl's format: prompt, data_source, reward_model.ground_truth, extra_info.

    Training goes through all rows once per epoch, in an order that follows from `seed` and the epoch alone; validation
    takes the first rows of its files and has no more tasks than they have rows.

    Args:
        train_files, val_files: paths of parquet files, one or a list. Every prompt is exactly one user message.
        reward_function: path, name and reward_kwargs, as in verl's reward.custom_reward_function; None: verl's own
            score for the data source.
        shuffle: whether the order changes with the epoch; False: the files' own order. seed: decides the order.
        success_score: score from which a problem counts as solved.

    Raises:
        ValueError: see `read_rows` and `load_reward_function`; or success_score is outside [0, 1].
    """

    prompts: Mapping[str, str] = {ROLE: "{prompt}"}

    def __init__(
        self,
        *,
        train_files: str | Sequence[str],
        val_files: str | Sequence[str],
        reward_function: Mapping[str, Any] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        success_score: float = 1.0,
    ) -> None:
        if not 0.0 <= success_score <= 1.0:
            raise ValueError(f"success_score must be in [0, 1], not {success_score}")
        self._rows: dict[Split, tuple[Row, ...]] = {
            "train": read_rows("train_files", train_files),
            "val": read_rows("val_files", val_files),
        }
        self._function = load_reward_function(reward_function)
        self._shuffle = shuffle
        self._seed = seed
        self._success_score = success_score

    def task(self, split: Split, index: int) -> Task:
        """The `index`-th problem of the split; see the class.

        Raises:
            ValueError: a validation index beyond the files. UnknownNameError: no such split.
        """
        if split not in self._rows:
            raise unknown_name_error("split", split, self._rows)
        rows = self._rows[split]
        if split == "val" and index >= len(rows):
            raise ValueError(f"val_files have {len(rows)} rows, so there is no validation task {index}")
        epoch, position = divmod(index, len(rows))
        if split == "train" and self._shuffle:
            position = _order(len(rows), self._seed, epoch)[position]
        row = rows[position]
        return Task(id=f"{split}-{index}", digest=row.digest, payload=asdict(row))

    def environment(self, task: Task) -> DatasetEnvironment:
        """The problem, not yet answered. Raises ValueError for a task whose payload is not what its digest says."""
        row = Row(**task.payload)
        if row.digest != task.digest:
            raise ValueError(f"task {task.id!r} does not have the content that its digest names")
        return DatasetEnvironment(row, self._function, self._success_score)

    def check(self, num_train: int, num_val: int) -> None:
        """Raise ValueError if the splits share a prompt, or validation asks for more tasks than its files have rows."""
        rows = len(self._rows["val"])
        if num_val > rows:
            raise ValueError(f"validation.tasks={num_val}, but val_files have {rows} rows: set validation.tasks={rows}")
        super().check(min(num_train, len(self._rows["train"])), num_val)


@lru_cache(maxsize=4)
def _order(count: int, seed: int, epoch: int) -> tuple[int, ...]:
    """A permutation of range(count), the same on every machine."""
    order = list(range(count))
    random.Random(f"{seed}.{epoch}").shuffle(order)
    return tuple(order)


def _check_role(role: str) -> None:
    if role != ROLE:
        raise unknown_name_error("role", role, (ROLE,))
