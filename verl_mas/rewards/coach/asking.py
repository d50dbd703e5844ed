"""One coach and what it has already said: a question in, a number out, or the reason why there is none."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from verl_mas.rewards.coach.cache import Once, VerdictCache, content_key
from verl_mas.rewards.coach.client import CoachClient, Usage
from verl_mas.rewards.coach.ensemble import Verdict
from verl_mas.rewards.coach.errors import NoReply
from verl_mas.rewards.coach.questions import Question
from verl_mas.rewards.coach.settings import CoachSettings

Result = TypeVar("Result")

REMINDER = "\n\nKeep to the output format exactly: a reply from which no verdict can be read is of no use."


class Asker:
    """Asks one coach.

    Args:
        attempts: how often, until the reply has a verdict.
    """

    def __init__(self, settings: CoachSettings, client: CoachClient, cache: VerdictCache, attempts: int) -> None:
        self.settings = settings
        self.client = client
        self._cache = cache
        self._attempts = attempts
        self._once = Once()

    async def ask(self, question: Question, usage: Usage) -> Verdict:
        """The verdict: a known one without a call. Raises CoachUnavailable and BudgetExceeded, see CoachClient.ask."""
        one = self.settings
        key = content_key(
            question.prompt.identity,
            question.schema,
            [one.label, one.model, one.temperature, one.max_tokens, dict(one.extra_body)],
        )
        verdict, shared = await self._once(key, lambda: self._known_or_asked(key, question, usage))
        usage.known += shared
        return verdict

    async def _known_or_asked(self, key: str, question: Question, usage: Usage) -> Verdict:
        known = await self._cache.get(key)
        if known is not None and (value := question.read(known["reply"])) is not None:
            usage.known += 1
            return Verdict(value, known["reply"])
        cause, text = "", question.prompt.text
        for _ in range(self._attempts):
            try:
                reply = await self.client.ask(text, question.schema, usage)
            except NoReply as error:
                return Verdict(None, cause=str(error))
            value = question.read(reply)
            if value is not None:
                await self._cache.put(key, {"reply": reply})
                return Verdict(value, reply)
            cause = f"the reply has no well-formed verdict: {_excerpt(reply)!r}"
            text = question.prompt.text + REMINDER
        return Verdict(None, cause=cause)


async def together(coroutines: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """All results, in order. The first error cancels the others, waits for their end, and is raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _excerpt(reply: str) -> str:
    end = " ".join(reply.split())
    return end if len(end) <= 120 else f"...{end[-120:]}"
