"""The token rows of a policy's TransferQueue partition, in the fields that verl's trainer and workers read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict


@dataclass(frozen=True, slots=True)
class TokenRow:
    """What one invocation sampled: token in, token out; nothing is tokenised again for training.

    Attributes:
        prompt: token ids. response: sampled token ids (including the end token).
        log_probs: log-probability of each response token under the weights that sampled it.
        step: training step of those weights.
    """

    prompt: Sequence[int]
    response: Sequence[int]
    log_probs: Sequence[float]
    step: int


def nested(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows of unequal length as one jagged tensor of shape (len(rows), *)."""
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


def jagged(padded: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """A tensor of shape (len(lengths), longest), padded on the right, as rows of their own lengths."""
    return nested([row[:length] for row, length in zip(padded, lengths, strict=True)])


def fields(rows: Sequence[TokenRow]) -> TensorDict:
    """The rows as verl's fields; each has batch size len(rows) and is jagged along the tokens."""
    prompts = [torch.tensor(row.prompt, dtype=torch.int64) for row in rows]
    responses = [torch.tensor(row.response, dtype=torch.int64) for row in rows]
    inputs = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
    mask = nested([torch.ones_like(response) for response in responses])
    return TensorDict(
        {
            "prompts": nested(prompts),
            "responses": nested(responses),
            "input_ids": nested(inputs),
            "position_ids": nested([torch.arange(len(ids)) for ids in inputs]),
            "response_mask": mask,
            "loss_mask": mask.clone(),
            "rollout_log_probs": nested([torch.tensor(row.log_probs, dtype=torch.float32) for row in rows]),
            "num_turns": torch.full((len(rows),), 2),
        },
        batch_size=[len(rows)],
    )


def tag(prompt_length: int, response_length: int, step: int) -> dict[str, Any]:
    """verl's tag of one row: lengths for balancing, and the step of the weights that sampled it."""
    return {
        "status": "success",
        "prompt_len": prompt_length,
        "response_len": response_length,
        "seq_len": prompt_length + response_length,
        "global_steps": step,
        "min_global_steps": step,
        "max_global_steps": step,
    }


def credit_fields(lengths: Sequence[int], rewards: Sequence[float], advantages: Sequence[float]) -> TensorDict:
    """Scalar credits as token fields: the reward on the last token, the advantage on every response token.

    Args:
        lengths: response lengths, in tokens. rewards, advantages: one number per row.
    """
    scores, spread = [], []
    for length, reward, advantage in zip(lengths, rewards, advantages, strict=True):
        score = torch.zeros(length)
        score[-1] = reward
        scores.append(score)
        spread.append(torch.full((length,), float(advantage)))
    advantage_field = nested(spread)
    return TensorDict(
        {"rm_scores": nested(scores), "advantages": advantage_field, "returns": advantage_field.clone()},
        batch_size=[len(lengths)],
    )
