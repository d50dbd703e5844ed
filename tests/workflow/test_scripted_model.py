"""The scripted model keeps the accounts that other tests rely on."""

import pytest

from verl_mas.config.suggest import UnknownNameError
from verl_mas.workflow import Request, Sampling, ScriptedModel


def request(row="t.0.tool.0.0", role="tool", prompt="é?"):
    return Request(row=row, role=role, prompt=prompt, sampling=Sampling())


async def test_answers_come_from_texts_functions_and_coroutines():
    async def later(request):
        return request.prompt.upper()

    model = ScriptedModel({"tool": "fixed", "planner": lambda r: r.row, "judge": later})
    assert (await model.complete(request())).text == "fixed"
    assert (await model.complete(request("p", "planner"))).text == "p"
    assert (await model.complete(request("j", "judge", "abc"))).text == "ABC"


async def test_completions_name_the_policy_and_count_bytes_as_tokens():
    model = ScriptedModel({"tool": "ok!"}, policies={"tool": "shared"})
    completion = await model.complete(request())
    assert completion.policy == model.policy_of("tool") == "shared"
    assert (completion.num_prompt_tokens, completion.num_response_tokens) == (3, 3)  # é is two bytes in UTF-8
    assert model.text_bytes == 6


async def test_equal_prompts_have_equal_digests_and_others_do_not():
    model = ScriptedModel({"tool": "ok"})
    digests = [(await model.complete(request(str(n), prompt=prompt))).prompt_digest for n, prompt in enumerate("aab")]
    assert digests[0] == digests[1] != digests[2]


async def test_rows_are_pending_until_published_or_discarded():
    model = ScriptedModel({"tool": "ok"})
    for row in ("x", "y", "z"):
        await model.complete(request(row))
    await model.publish(["x"])
    model.discard(["y", "never answered"])
    assert model.published == ["x"]
    assert list(model.pending) == ["z"]
    assert model.discarded == ["y", "never answered"]


async def test_publishing_a_row_twice_or_sampling_a_pending_one_again_is_an_error():
    model = ScriptedModel({"tool": "ok"})
    await model.complete(request("x"))
    with pytest.raises(RuntimeError, match="row x is sampled a second time"):
        await model.complete(request("x"))
    await model.publish(["x"])
    with pytest.raises(RuntimeError, match="row x is published, but not pending"):
        await model.publish(["x"])


async def test_a_role_without_a_script_is_named_with_the_nearest():
    model = ScriptedModel({"planner": "ok"})
    with pytest.raises(UnknownNameError, match="did you mean 'planner'"):
        await model.complete(request(role="planer"))
    with pytest.raises(UnknownNameError, match="did you mean 'planner'"):
        model.policy_of("planer")
