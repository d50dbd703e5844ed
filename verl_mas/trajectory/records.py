"""The record of one execution of a workflow: its invocations in order, their rewards and their advantages."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Invocation:
    """One call of a role's LLM. Texts and numbers only: the tokens lie in the policy's TransferQueue partition.

    Attributes:
        row: key of the row in the policy's partition; unique in the run's step, except that trajectories of joint
            sampling share responses: equal rows are one response.
        task: task id. sample: which execution of the task. A trajectory is (task, sample).
        role, policy: who spoke, with whose weights.
        turn: turn of the workflow, from 0. candidate: index within the group sampled from one prompt.
        prompt, response: the texts. prompt_digest: hash of the prompt's token ids.
        chosen: whether this candidate was committed to the real state.
        parents: rows whose response this prompt saw.
        reward: scalar reward, None until assigned or if it could not be scored (then `masked`).
        breakdown: the terms that add up to `reward`.
        advantage: scalar advantage, None until computed.
        masked: excluded from the loss, and counted.
        info: facts from the environment's step.
        parent: in a tree of joint actions, the `sample` of the joint action one turn earlier, -1 at the root; `sample`
            then counts the joint actions of the turn, and the trajectory's own counts the leaves. None: no such tree.
    """

    row: str
    task: str
    sample: int
    role: str
    policy: str
    turn: int
    candidate: int
    prompt: str
    response: str
    prompt_digest: str
    num_prompt_tokens: int
    num_response_tokens: int
    stop_reason: str = ""
    chosen: bool = True
    parents: tuple[str, ...] = ()
    reward: float | None = None
    breakdown: dict[str, float] = field(default_factory=dict)
    advantage: float | None = None
    masked: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    parent: int | None = None


@dataclass(slots=True)
class Trajectory:
    """One execution of a workflow on a task.

    Attributes:
        task: task id. task_digest: hash of its content. sample: which execution of the task.
        split: "train" or "val". step: training step whose weights acted.
        invocations: every candidate, in the order of sampling.
        success: whether the task was solved. turns: turns used.
        error: the cause if the execution failed (then it carries no training signal).
        seconds: wall time of the execution.
    """

    task: str
    task_digest: str
    sample: int
    split: str
    step: int
    invocations: list[Invocation] = field(default_factory=list)
    success: bool = False
    turns: int = 0
    error: str | None = None
    seconds: float = 0.0
    info: dict[str, Any] = field(default_factory=dict)
