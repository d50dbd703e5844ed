"""The model that the package ships: its tokenizer, chat template and size; and the script that makes such a model."""

import json
import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from verl_mas_games.embedded_model import WarmUpOptions, build, default_model_path, encode
from verl_mas_games.evaluation import play, speaker
from verl_mas_games.sokoban.environment import Sokoban
from verl_mas_games.sokoban.game import parse_state, roll_out
from verl_mas_games.sokoban.generator import content_digest, split_of
from verl_mas_games.sokoban.prompts import COMPACT
from verl_mas_games.sokoban.solver import solve
from verl_mas_games.tokenizer import CHARACTERS, SPECIAL_TOKENS
from verl_mas_games.warm_up_data import TraceOptions, cut, examples

PROMPT = "----\n-@$.\n--+*\n#---\nPURDL>"
FEW = TraceOptions(levels=30)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The model is so small that threads cost more than they give, on a busy machine much more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(default_model_path())


def chat(tokenizer: PreTrainedTokenizerBase, text: str, **options) -> list[int]:
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], tokenize=True, return_dict=False, **options
    )


def test_a_prompt_is_one_token_per_character(tokenizer: PreTrainedTokenizerBase) -> None:
    ids = tokenizer(PROMPT)["input_ids"]
    assert len(ids) == len(PROMPT)
    assert tokenizer.decode(ids) == PROMPT
    assert tokenizer.unk_token_id not in ids


def test_the_chat_template_gives_the_prompt_and_nothing_else(tokenizer: PreTrainedTokenizerBase) -> None:
    ids = tokenizer(PROMPT)["input_ids"]
    assert chat(tokenizer, PROMPT) == ids
    assert chat(tokenizer, PROMPT, add_generation_prompt=True) == ids
    assert chat(tokenizer, "") == []


def test_every_token_has_a_meaning_and_there_are_few(tokenizer: PreTrainedTokenizerBase) -> None:
    assert len(tokenizer) == len(SPECIAL_TOKENS) + len(CHARACTERS) < 64
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [*SPECIAL_TOKENS, *CHARACTERS]
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)


@given(st.text(alphabet=CHARACTERS, max_size=60))
def test_text_of_known_characters_survives_the_round_trip(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_other_characters_become_unknown_tokens_one_each(tokenizer: PreTrainedTokenizerBase) -> None:
    assert tokenizer("Uxé")["input_ids"] == [tokenizer.convert_tokens_to_ids("U"), 3, 3]


def test_the_end_token_is_left_out_of_decoded_answers(tokenizer: PreTrainedTokenizerBase) -> None:
    ids = [*tokenizer("URDL")["input_ids"], tokenizer.eos_token_id]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "URDL"


def test_the_shipped_model_is_small_and_of_the_stated_shape() -> None:
    config = AutoConfig.from_pretrained(default_model_path())
    assert config.model_type == "qwen3"
    assert (config.num_hidden_layers, config.hidden_size, config.head_dim) == (4, 128, 32)
    assert config.max_position_embeddings == 256
    assert config.eos_token_id == 2
    assert sum(file.stat().st_size for file in default_model_path().iterdir()) < 5_000_000


def test_the_shipped_model_was_made_with_the_scripts_default_options() -> None:
    recorded = json.loads((default_model_path() / "warm_up.json").read_text())
    assert recorded.pop("seed") == 0
    assert recorded.pop("torch")
    assert recorded == json.loads(json.dumps(asdict(WarmUpOptions())))


def test_the_shipped_model_answers_with_moves_and_solves_some_levels(tokenizer: PreTrainedTokenizerBase) -> None:
    model = AutoModelForCausalLM.from_pretrained(default_model_path()).eval()
    assert 0.5e6 < sum(weight.numel() for weight in model.parameters()) < 1.5e6
    speak = speaker(model, tokenizer, max_tokens=11, temperature=0.0)
    final = play(Sokoban(style="compact", tool="actions", max_actions=10), {"tool": speak, "planner": speak}, 60, 4)
    assert all(one.history for one in final)
    # .45 of 300 levels when it was made. 60 levels: a standard deviation of .064, so this is four of them either way.
    assert 0.19 < sum(one.success for one in final) / len(final) < 0.70


def test_warm_up_examples_are_prompts_and_answers_of_training_levels_alone() -> None:
    pairs = examples(FEW, seed=0)
    assert len(pairs) > 100
    for prompt, answer in pairs:
        inner, rest = prompt.rsplit("\n", 1)
        state = parse_state("\n".join(["######", *(f"#{row}#" for row in inner.split("\n")), "######"]))
        assert split_of(content_digest(state)) == "train"
        assert rest[0] in "TP"
        assert set(answer) <= set("UDLR")
        assert len(answer) <= FEW.max_moves


def test_warm_up_examples_without_noise_are_shortest_solutions() -> None:
    pairs = examples(TraceOptions(levels=20, hesitation=0.0, noise=0.0, proposal_noise=0.0), seed=0)
    for prompt, answer in pairs:
        inner = prompt.rsplit("\n", 1)[0].split("\n")
        state = parse_state("\n".join(["######", *(f"#{row}#" for row in inner), "######"]))
        shortest = solve(state)
        assert shortest is not None
        assert roll_out(state, answer).after.solved
        assert len(answer) == len(shortest)


def test_warm_up_examples_depend_on_the_seed_alone() -> None:
    assert examples(FEW, seed=0) == examples(FEW, seed=0)
    assert examples(FEW, seed=0) != examples(FEW, seed=1)


def test_only_the_answer_and_its_end_are_learned(tokenizer: PreTrainedTokenizerBase) -> None:
    ids, mask, labels = encode([("@T>", "UD"), ("@PR>", "L")], tokenizer)
    u, d, left, end = (*tokenizer("UDL")["input_ids"], tokenizer.eos_token_id)
    assert labels.tolist() == [[-100, -100, -100, u, d, end], [-100, -100, -100, -100, left, end]]
    assert mask.tolist() == [[1] * 6, [1] * 6]
    assert ids[0].tolist() == [*tokenizer("@T>UD")["input_ids"], end]


def test_the_script_writes_the_same_model_for_the_same_seed(tmp_path: Path) -> None:
    options = WarmUpOptions(steps=2, batch_size=8, traces=FEW)
    for name in ("one", "two"):
        build(tmp_path / name, seed=3, options=options)
    one, two = (AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("one", "two"))
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "one")
    grid = COMPACT["tool"].format(grid="----\n-@$.\n----\n----")
    assert tokenizer.decode(chat(tokenizer, grid)) == grid


@given(answer=st.text(alphabet="UDLR", min_size=1, max_size=10), hesitation=st.floats(0, 1), seed=st.integers(0, 99))
def test_a_cut_answer_is_a_beginning_of_at_least_one_move(answer, hesitation, seed):
    kept = cut(tuple(answer), hesitation, random.Random(seed))
    assert 1 <= len(kept) <= len(answer)
    assert tuple(answer[: len(kept)]) == kept


def test_without_hesitation_answers_are_whole_and_with_certain_hesitation_one_move():
    assert cut(("U", "D", "L"), 0.0, random.Random(0)) == ("U", "D", "L")
    assert cut(("U", "D", "L"), 1.0, random.Random(0)) == ("U",)
