"""From role to policy to that policy's LLM servers: text to the workflow, tokens to the policy's partition."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import transfer_queue
from verl.workers.rollout.llm_server import LLMServerClient

from verl_mas.routing.rows import TokenRow, fields, tag
from verl_mas.workflow.model import Completion, Request, Sampling


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What serves one policy: verl's client to its servers, its tokenizer, and the lengths it was built for.

    `prompt_length` and `response_length` are in tokens; `chat` says whether prompts go through the chat template.
    """

    client: LLMServerClient
    tokenizer: Any
    prompt_length: int
    response_length: int
    chat: bool = True


class PromptTooLong(ValueError):
    """A prompt does not fit the policy's `data.max_prompt_length`; truncating it would change what the role sees."""


@dataclass(slots=True)
class Router:
    """Implements `verl_mas.workflow.Model` over verl's LLM servers.

    Attributes:
        endpoints: by policy. policies: the role map (role -> policy). step: training step of the weights that act.
    """

    endpoints: Mapping[str, Endpoint]
    policies: Mapping[str, str]
    step: int = 0
    _rows: dict[str, tuple[str, TokenRow]] = field(default_factory=dict)
    _prompts: dict[tuple[str, str], tuple[list[int], str]] = field(default_factory=dict)

    def policy_of(self, role: str) -> str:
        return self.policies[role]

    def _encode(self, policy: str, prompt: str) -> tuple[list[int], str]:
        """Token ids of the prompt and their hash. The candidates of a group share one encoding."""
        known = self._prompts.get((policy, prompt))
        if known is not None:
            return known
        endpoint = self.endpoints[policy]
        if endpoint.chat:
            message = [{"role": "user", "content": prompt}]
            ids = endpoint.tokenizer.apply_chat_template(
                message, add_generation_prompt=True, tokenize=True, return_dict=False
            )
        else:
            ids = endpoint.tokenizer.encode(prompt)
        if len(ids) > endpoint.prompt_length:
            raise PromptTooLong(
                f"a prompt of {len(ids)} tokens for policy {policy!r} exceeds its limit of {endpoint.prompt_length}; "
                f"raise policies.{policy}.data.max_prompt_length or let the environment observe less"
            )
        digest = hashlib.sha256(repr(ids).encode()).hexdigest()[:16]
        self._prompts[policy, prompt] = list(ids), digest
        return self._prompts[policy, prompt]

    @staticmethod
    def _parameters(sampling: Sampling, response_length: int) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "repetition_penalty": 1.0,
            "logprobs": True,
            "max_tokens": min(sampling.max_tokens or response_length, response_length),
        }
        if sampling.seed is not None:
            parameters["seed"] = sampling.seed
        return parameters

    async def complete(self, request: Request) -> Completion:
        """Sample one response and keep its tokens until `publish` or `discard`."""
        policy = self.policies[request.role]
        endpoint = self.endpoints[policy]
        ids, digest = self._encode(policy, request.prompt)
        parameters = self._parameters(request.sampling, endpoint.response_length)
        output = await endpoint.client.generate(request.row, prompt_ids=ids, sampling_params=parameters)
        response = list(output.token_ids)
        if not response or output.log_probs is None:
            raise RuntimeError(f"the servers of policy {policy!r} returned no tokens ({output.stop_reason})")
        self._rows[request.row] = policy, TokenRow(ids, response, output.log_probs, self.step)
        return Completion(
            policy=policy,
            text=endpoint.tokenizer.decode(response, skip_special_tokens=True),
            prompt_digest=digest,
            num_prompt_tokens=len(ids),
            num_response_tokens=len(response),
            stop_reason=_stop_reason(output.stop_reason, response, parameters["max_tokens"], endpoint.tokenizer),
        )

    async def publish(self, rows: Sequence[str]) -> None:
        """Write the rows to their policies' partitions, one batch per policy."""
        batches: dict[str, dict[str, TokenRow]] = {}
        for key in rows:
            policy, row = self._rows.pop(key)
            batches.setdefault(policy, {})[key] = row
        for policy, batch in batches.items():
            kept = list(batch.values())
            tags = [tag(len(row.prompt), len(row.response), row.step) for row in kept]
            await transfer_queue.async_kv_batch_put(
                keys=list(batch), partition_id=policy, fields=fields(kept), tags=tags
            )

    def discard(self, rows: Sequence[str]) -> None:
        """Forget rows that will not be trained on."""
        for key in rows:
            self._rows.pop(key, None)

    def new_step(self, step: int) -> None:
        """Start sampling with the weights of `step`; drops cached encodings and any row left over."""
        self.step = step
        self._prompts.clear()
        self._rows.clear()


def _stop_reason(reported: str | None, response: Sequence[int], max_tokens: int, tokenizer: Any) -> str:
    """What verl's server reports, except that it calls a response "completed" that ran into the limit."""
    if len(response) >= max_tokens and response[-1] not in tokenizer.all_special_ids:
        return "length"
    return reported or ""
