"""What the workflow asks of a model: text in, text out. Token ids stay behind this protocol."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a role samples. `seed` is per request and set only in deterministic runs."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One candidate to sample. `row` is the key under which the policy's partition will hold its tokens."""

    row: str
    role: str
    prompt: str
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to a Request.

    `prompt_digest` is a hash of the prompt's token ids. `stop_reason` is "length" for a response that was cut.
    """

    policy: str
    text: str
    prompt_digest: str
    num_prompt_tokens: int
    num_response_tokens: int
    stop_reason: str


class Model(Protocol):
    """Serves every role. The router implements it over verl's LLM servers; tests use a scripted one."""

    def policy_of(self, role: str) -> str:
        """The policy that serves the role."""

    async def complete(self, request: Request) -> Completion:
        """Sample one response. Raises on a dead server; never returns a made-up answer."""

    async def publish(self, rows: list[str]) -> None:
        """Write the token rows of these keys to their policies' partitions (one batch per policy)."""

    def discard(self, rows: list[str]) -> None:
        """Forget the rows of a failed or validation trajectory."""
