"""The router: text to the workflow, tokens to the partition of the policy that serves the role."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import transfer_queue

from verl_mas.routing.router import Endpoint, PromptTooLong, Router
from verl_mas.workflow.model import Request, Sampling


class Letters:
    """A tokenizer of one token per character; "." ends a text."""

    all_special_ids = (ord("."),)

    def apply_chat_template(self, messages, add_generation_prompt, tokenize, return_dict):
        return [ord(letter) for letter in messages[0]["content"]]

    def decode(self, ids, skip_special_tokens):
        return "".join(map(chr, ids))


@dataclass
class Client:
    """Answers with the prompt reversed; log-probabilities count down."""

    requests: list = field(default_factory=list)
    empty: bool = False

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        self.requests.append((request_id, sampling_params))
        tokens = [] if self.empty else prompt_ids[::-1]
        return SimpleNamespace(token_ids=tokens, log_probs=[-float(i) for i in range(len(tokens))], stop_reason="stop")


@pytest.fixture
def puts(monkeypatch):
    calls = []

    async def put(keys, partition_id, fields, tags):
        calls.append((partition_id, keys, fields, tags))

    monkeypatch.setattr(transfer_queue, "async_kv_batch_put", put)
    return calls


@pytest.fixture
def clients():
    return {"small": Client(), "large": Client()}


@pytest.fixture
def router(clients):
    endpoints = {policy: Endpoint(client, Letters(), 8, 6) for policy, client in clients.items()}
    return Router(endpoints, {"tool": "small", "planner": "large", "critic": "large"}, step=3)


def request(row, role="tool", prompt="abc", **sampling):
    return Request(row, role, prompt, Sampling(**sampling))


async def test_a_role_is_served_by_its_policy(router, clients):
    completion = await router.complete(request("r", "planner"))
    assert (completion.policy, completion.text) == ("large", "cba")
    assert (completion.num_prompt_tokens, completion.num_response_tokens) == (3, 3)
    assert [row for row, _ in clients["large"].requests] == ["r"]
    assert clients["small"].requests == []


@pytest.mark.parametrize(
    ("prompt", "reason"), [("abc", "stop"), ("abcdef", "length"), (".bcdef", "stop"), ("abcdefg", "length")]
)
async def test_a_response_that_fills_its_limit_without_an_end_was_cut(router, prompt, reason):
    """The client answers with the prompt reversed, and 6 tokens are the limit."""
    assert (await router.complete(request("r", prompt=prompt))).stop_reason == reason


async def test_rows_hold_the_sampled_tokens_in_one_batch_per_policy(router, puts):
    for row, role in [("t", "tool"), ("p", "planner"), ("c", "critic")]:
        await router.complete(request(row, role, prompt=row * 2))
    await router.publish(["t", "p", "c"])
    assert [(policy, keys) for policy, keys, _, _ in puts] == [("small", ["t"]), ("large", ["p", "c"])]
    _, _, rows, tags = puts[1]
    assert [ids.tolist() for ids in rows["responses"].unbind()] == [[112, 112], [99, 99]]
    assert [values.tolist() for values in rows["rollout_log_probs"].unbind()] == [[0.0, -1.0], [0.0, -1.0]]
    assert tags[0]["min_global_steps"] == 3


async def test_discarded_rows_are_not_published(router, puts):
    await router.complete(request("kept"))
    await router.complete(request("dropped"))
    router.discard(["dropped", "never asked for"])
    await router.publish(["kept"])
    assert [keys for _, keys, _, _ in puts] == [["kept"]]
    with pytest.raises(KeyError):
        await router.publish(["dropped"])


async def test_equal_prompts_have_equal_digests_and_different_ones_do_not(router):
    first, second, other = [await router.complete(request(row, prompt=text)) for row, text in ("1a", "2a", "3b")]
    assert first.prompt_digest == second.prompt_digest != other.prompt_digest


async def test_sampling_is_passed_on_and_bounded_by_the_policy(router, clients):
    await router.complete(request("r", temperature=0.5, top_p=0.9, top_k=3, max_tokens=99, seed=7))
    ((_, parameters),) = clients["small"].requests
    assert parameters == {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "repetition_penalty": 1.0,
        "logprobs": True,
        "max_tokens": 6,
        "seed": 7,
    }


async def test_a_prompt_is_never_truncated(router):
    with pytest.raises(PromptTooLong, match=r"9 tokens .* limit of 8; raise policies.small.data.max_prompt_length"):
        await router.complete(request("r", prompt="a" * 9))


async def test_an_empty_answer_is_an_error(router, clients):
    clients["small"].empty = True
    with pytest.raises(RuntimeError, match="policy 'small' returned no tokens"):
        await router.complete(request("r"))


async def test_a_new_step_starts_without_rows(router, puts):
    await router.complete(request("r"))
    router.new_step(4)
    with pytest.raises(KeyError):
        await router.publish(["r"])
    await router.complete(request("s"))
    await router.publish(["s"])
    assert puts[0][3][0]["min_global_steps"] == 4
