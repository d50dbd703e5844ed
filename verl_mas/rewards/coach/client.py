"""One question to an OpenAI-compatible endpoint: with a deadline, a rate and retries, and nothing made up."""

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
import tenacity
from openai.types.chat import ChatCompletion

from verl_mas.rewards.coach.errors import CoachUnavailable, NoReply
from verl_mas.rewards.coach.limits import Budget, RateLimit
from verl_mas.rewards.coach.settings import CoachSettings

#: statuses after which another attempt makes sense (besides 5xx)
_PASSING = (408, 409, 429)
#: statuses that every further request would get too
_REFUSED = (401, 403, 404)
_LONGEST_CAUSE = 300


class BadBody(Exception):
    """The body of a response is empty, cut off, or no chat completion."""


@dataclass(slots=True)
class Usage:
    """What answers have cost: requests made, tokens in and out, and answers that were already known."""

    calls: int = 0
    tokens: int = 0
    known: int = 0

    def add(self, other: "Usage") -> None:
        """Add what others have cost."""
        self.calls += other.calls
        self.tokens += other.tokens
        self.known += other.known


def describe(error: BaseException) -> str:
    """The kind of an error and what it says, and the same of what caused it in the first place, in one short line."""
    root = error
    while (cause := root.__cause__ or root.__context__) is not None:
        root = cause
    text = " because of ".join(
        f"{type(one).__name__}: {' '.join(str(one).split()) or 'no message'}" for one in dict.fromkeys([error, root])
    )
    return text if len(text) <= _LONGEST_CAUSE else f"{text[:_LONGEST_CAUSE]}..."


def is_transport_error(error: BaseException) -> bool:
    """Whether another attempt may get through: no connection, time-out, 408, 409, 429, 5xx, or a broken body."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code >= 500 or error.status_code in _PASSING
    return isinstance(error, openai.APIConnectionError | openai.APIResponseValidationError | BadBody | TimeoutError)


class CoachClient:
    """One coach, for one event loop.

    Args:
        settings: of the coach. key: the endpoint's key. budget: of the run. workers: processes that share its rate and
            concurrency. retries, backoff_s, max_backoff_s: after transport errors.
    """

    def __init__(
        self,
        settings: CoachSettings,
        key: str,
        budget: Budget,
        *,
        workers: int,
        retries: int,
        backoff_s: float,
        max_backoff_s: float,
    ) -> None:
        self._settings = settings
        self._budget = budget
        rate, slots = settings.requests_per_minute, max(1, settings.max_concurrency // workers)
        self._rate = RateLimit(None if rate is None else rate / workers)
        self._slots = asyncio.Semaphore(slots)
        # aiohttp below: with hundreds of connections the client's default costs several times the processor time
        self._openai = openai.AsyncOpenAI(
            api_key=key,
            base_url=settings.base_url,
            timeout=settings.timeout_s,
            max_retries=0,
            http_client=openai.DefaultAioHttpClient(
                timeout=settings.timeout_s,
                limits=httpx2.Limits(max_connections=slots, max_keepalive_connections=slots),
            ),
        )
        self._retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(is_transport_error),
            stop=tenacity.stop_after_attempt(1 + retries),
            wait=_Backoff(backoff_s, max_backoff_s),
            reraise=True,
        )

    async def ask(self, prompt: str, schema: Mapping[str, Any] | None, usage: Usage) -> str:
        """The text of the reply, which is complete and not empty.

        Args:
            schema: what a reply in JSON must match; None asks for text.

        Raises:
            NoReply: no usable reply after the retries. CoachUnavailable: the endpoint refuses the key, the model or the
            address. BudgetExceeded: see Budget.
        """
        request = self._request(prompt, schema)
        async with self._slots:
            try:
                reply: _Reply = await self._retrying.copy()(self._send, request, usage)
            except openai.APIStatusError as error:
                if error.status_code in _REFUSED:
                    raise CoachUnavailable(f"{self._settings.described} refuses requests: {describe(error)}") from error
                raise NoReply(describe(error)) from error
            except (openai.APIError, BadBody, TimeoutError) as error:
                raise NoReply(describe(error)) from error
        if reply.finish_reason == "length":
            raise NoReply("the reply was cut off at max_tokens")
        if not reply.text.strip():
            raise NoReply(f"the reply is empty (finish_reason {reply.finish_reason})")
        return reply.text

    async def close(self) -> None:
        """Close the connections."""
        await self._openai.close()

    def _request(self, prompt: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        settings = self._settings
        request: dict[str, Any] = {"model": settings.model, "messages": [{"role": "user", "content": prompt}]}
        if settings.temperature is not None:
            request["temperature"] = settings.temperature
        if settings.max_tokens is not None:
            request["max_tokens"] = settings.max_tokens
        if schema is not None:
            request["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "verdict", "schema": dict(schema), "strict": True},
            }
        return request | dict(settings.extra_body)

    async def _send(self, request: dict[str, Any], usage: Usage) -> "_Reply":
        """One request. The client's own time-out is per read, so the whole request has one too."""
        await self._rate.wait()
        await self._budget.before_call()
        usage.calls += 1
        async with asyncio.timeout(self._settings.timeout_s):
            try:
                # chat.completions.create would first walk through the messages with their types, at twice the cost
                completion = await self._openai.post("/chat/completions", cast_to=ChatCompletion, body=request)
            except json.JSONDecodeError as error:
                raise BadBody(f"the response is no complete JSON ({error})") from error
        reply = _read(completion)
        usage.tokens += reply.tokens
        await self._budget.after_call(reply.tokens)
        return reply


@dataclass(frozen=True, slots=True)
class _Reply:
    text: str
    finish_reason: str | None
    tokens: int


def _read(completion: object) -> _Reply:
    """What counts of a completion. The client builds its objects from whatever the body holds, so nothing is certain.

    Raises:
        BadBody: it is no chat completion.
    """
    choices = getattr(completion, "choices", None)
    message = getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
    content = getattr(message, "content", None)
    if not isinstance(completion, ChatCompletion) or message is None or not isinstance(content, str | None):
        raise BadBody("the response is no chat completion")
    tokens = getattr(completion.usage, "total_tokens", 0)
    return _Reply(content or "", completion.choices[0].finish_reason, tokens if isinstance(tokens, int) else 0)


class _Backoff:
    """Seconds before the next attempt: exponential, half of it by chance, and no less than the endpoint asks for."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s

    def __call__(self, state: tenacity.RetryCallState) -> float:
        exponential = min(self._most_s, self._first_s * 2.0 ** min(state.attempt_number - 1, 60))
        seconds = exponential * random.uniform(0.5, 1.0)
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, openai.APIStatusError):
            asked = error.response.headers.get("retry-after", "")
            if asked.isdigit():
                seconds = max(seconds, min(float(asked), self._most_s))
        return seconds
