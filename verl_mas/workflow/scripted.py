"""A model without a model: answers are written in advance. For testing workflows, environments and schemes."""

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping

from verl_mas.config.suggest import unknown_name_error
from verl_mas.workflow.model import Completion, Request

Answer = str | Callable[[Request], str | Awaitable[str]]


class ScriptedModel:
    """Serves every role from a script, and keeps account of rows as a router would.

    Args:
        answers: by role, a fixed text or a function of the request (which may be a coroutine function, to control the
            order of completion, and may raise, to play a dead server). Its `row` tells candidates apart.
        policies: the policy of each role; by default a policy of the role's own name.
        latency_s: seconds until each answer.

    Attributes:
        requests: every request, in order of arrival.
        pending: answered rows that are neither published nor discarded.
        published: rows, in order. publish_calls: how many calls published them. discarded: rows that were forgotten.
        text_bytes: UTF-8 bytes of all prompts and answers.
    """

    def __init__(
        self, answers: Mapping[str, Answer], *, policies: Mapping[str, str] | None = None, latency_s: float = 0.0
    ) -> None:
        self._answers = dict(answers)
        self._policies = dict(policies) if policies is not None else {role: role for role in answers}
        self._latency_s = latency_s
        self.requests: list[Request] = []
        self.pending: dict[str, Completion] = {}
        self.published: list[str] = []
        self.publish_calls = 0
        self.discarded: list[str] = []
        self.text_bytes = 0

    def policy_of(self, role: str) -> str:
        """See Model. Raises UnknownNameError for a role that the script does not serve."""
        if role not in self._policies:
            raise unknown_name_error("role", role, self._policies)
        return self._policies[role]

    async def complete(self, request: Request) -> Completion:
        """See Model. A byte counts as a token.

        Raises:
            UnknownNameError: a role without an answer. RuntimeError: the row is pending. What the answer raises.
        """
        if request.role not in self._answers:
            raise unknown_name_error("role", request.role, self._answers)
        if request.row in self.pending:
            raise RuntimeError(f"row {request.row} is sampled a second time")
        self.requests.append(request)
        await asyncio.sleep(self._latency_s)
        answer = self._answers[request.role]
        text = answer if isinstance(answer, str) else answer(request)
        if inspect.isawaitable(text):
            text = await text
        prompt, response = request.prompt.encode(), text.encode()
        completion = Completion(
            policy=self.policy_of(request.role),
            text=text,
            prompt_digest=hashlib.sha256(prompt).hexdigest()[:16],
            num_prompt_tokens=len(prompt),
            num_response_tokens=len(response),
            stop_reason="stop",
        )
        self.text_bytes += len(prompt) + len(response)
        self.pending[request.row] = completion
        return completion

    async def publish(self, rows: list[str]) -> None:
        """See Model. Raises RuntimeError for a row that is not pending (never sampled, or already published)."""
        for row in rows:
            if row not in self.pending:
                raise RuntimeError(f"row {row} is published, but not pending")
            del self.pending[row]
        self.published += rows
        self.publish_calls += 1

    def discard(self, rows: list[str]) -> None:
        """See Model. Rows that were asked for but never answered are in order."""
        for row in rows:
            self.pending.pop(row, None)
        self.discarded += rows
