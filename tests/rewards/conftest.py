"""A coach on loopback that speaks the chat-completions protocol, and small trajectories for it to score."""

import asyncio
import contextlib
import functools
import inspect
import json
import ssl
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any, Self

import pytest
from aiohttp import web

from verl_mas.rewards.coach import coach_reward_manager
from verl_mas.trajectory import Invocation, Trajectory

DRIP = "a body that never ends"


class CoachServer:
    """Answers every question with `answer(body)`: a reply's text or a whole response, or an awaitable of one.

    Attributes:
        asked: the bodies of all requests, in order. tokens: that every reply claims to have cost. url: for base_url.
        most: requests that were under way at once.
    """

    def __init__(self, answer: Callable[[dict[str, Any]], Any], tokens: int = 10) -> None:
        self.answer = answer
        self.tokens = tokens
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.url = ""
        self.most = 0
        self._now = 0
        self._over = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.keys.append(request.headers.get("Authorization"))
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            answer = self.answer(body)
            if inspect.isawaitable(answer):
                answer = await self._unless_over(answer)
        finally:
            self._now -= 1
        if answer == DRIP:
            return await self._drip(request)
        if isinstance(answer, tuple):  # (declared length, body): the connection ends before the body does
            headers = {"Content-Type": "application/json", "Content-Length": str(answer[0])}
            response = web.StreamResponse(headers=headers)
            await response.prepare(request)
            await response.write(answer[1])
            assert request.transport is not None
            request.transport.close()
            return response
        return answer if isinstance(answer, web.StreamResponse) else self.reply(answer)

    async def _unless_over(self, answer: Awaitable[Any]) -> Any:
        """What is awaited, or an error if the server ends before."""
        tasks = [asyncio.ensure_future(answer), asyncio.ensure_future(self._over.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        return tasks[0].result() if tasks[0].done() else web.Response(status=500)

    async def _drip(self, request: web.Request) -> web.StreamResponse:
        """A body that goes on and on: a byte whenever 10 ms have passed."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while not self._over.is_set():
                await response.write(b" ")
                await asyncio.wait([asyncio.ensure_future(self._over.wait())], timeout=0.01)
        return response

    def reply(self, text: str | None, finish_reason: str = "stop") -> web.Response:
        """A chat completion."""
        return web.json_response(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": "scripted",
                "choices": [
                    {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
                ],
                "usage": {"prompt_tokens": 0, "completion_tokens": self.tokens, "total_tokens": self.tokens},
            }
        )


def prompt_of(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"]


def field_of(body: dict[str, Any], name: str) -> str | None:
    """What stands between the fences of a field of the prompt; None if it is not shown."""
    _, begin, rest = prompt_of(body).partition(f"<<<BEGIN {name} ")
    if not begin:
        return None
    tag, _, rest = rest.partition(">>>\n")
    return rest.partition(f"\n<<<END {name} {tag}>>>")[0]


def said(role: str, turn: int = 0, response: str = "an answer", **changes: Any) -> Invocation:
    candidate = changes.pop("candidate", 0)
    values: dict[str, Any] = {
        "row": f"t.0.{role}.{turn}.{candidate}",
        "task": "t",
        "sample": 0,
        "role": role,
        "policy": role,
        "turn": turn,
        "candidate": candidate,
        "prompt": f"you are the {role}, turn {turn}",
        "response": response,
        "prompt_digest": "",
        "num_prompt_tokens": 1,
        "num_response_tokens": 1,
        "reward": 0.5,
        "breakdown": {"team": 0.5},
    }
    return Invocation(**(values | changes))


def trajectory(*invocations: Invocation, split: str = "train", success: bool = False) -> Trajectory:
    return Trajectory("t", "d", 0, split, 0, list(invocations), success=success)


def manager(server: CoachServer, **options: Any) -> Any:
    """A manager with one coach at the server, no key, no waiting between attempts, and nothing kept on disk."""
    defaults: dict[str, Any] = {
        "model": "scripted",
        "base_url": server.url,
        "api_key_env": None,
        "cache": False,
        "backoff_s": 0.0,
        "retries": 1,
    }
    return coach_reward_manager(**(defaults | options))


@pytest.fixture(scope="session", autouse=True)
def certificates_are_read_once() -> Iterator[None]:
    """Every client makes a TLS context, although a coach on loopback speaks plain HTTP."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="session")
def coach() -> SimpleNamespace:
    """The classes and helpers of this file."""
    return SimpleNamespace(
        DRIP=DRIP,
        Server=CoachServer,
        field_of=field_of,
        json=json,
        manager=manager,
        prompt_of=prompt_of,
        said=said,
        trajectory=trajectory,
        web=web,
    )
