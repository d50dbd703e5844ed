"""Builds the embedded model: a small Qwen3 that knows the compact Sokoban prompts and plays them badly on purpose.

    python -m verl_mas_games.embedded_model --seed 0 --out DIR

One base model serves both roles. It is warmed up by supervised steps on noisy solver traces (warm_up_data.py) and
stopped early: what it still lacks is for reinforcement learning to find. The model in models/sokoban is this script's
output for seed 0 and default options; other processors or torch versions give weights that differ in the last digits.
"""

import argparse
import json
import logging
import math
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from verl_mas_games.tokenizer import MAX_LENGTH, build_tokenizer
from verl_mas_games.warm_up_data import TraceOptions, examples

logger = logging.getLogger(__name__)

_IGNORED = -100


@dataclass(frozen=True, slots=True)
class WarmUpOptions:
    """Supervised steps: AdamW with a linear rise and a cosine fall of the learning rate."""

    steps: int = 1200
    batch_size: int = 128
    learning_rate: float = 2e-3
    rise_steps: int = 20
    weight_decay: float = 0.01
    traces: TraceOptions = field(default_factory=TraceOptions)


def default_model_path() -> Path:
    """The folder of the model that the package ships."""
    return Path(__file__).parent / "models" / "sokoban"


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Random weights: 4 layers, hidden size 128, 4 heads of 32, 0.8 million parameters. Seeds torch's generator."""
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=MAX_LENGTH,
            rope_theta=10_000.0,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            dtype=torch.float32,
        )
    )


def encode(
    pairs: list[tuple[str, str]], tokenizer: PreTrainedTokenizerFast
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids, attention mask and labels, each [len(pairs), longest]; padded on the right.

    Labels are the answer and the end token; prompt and padding do not count.
    """
    rows: list[tuple[list[int], list[int]]] = []
    for prompt, answer in pairs:
        prompt_ids = tokenizer(prompt)["input_ids"]
        answer_ids = [*tokenizer(answer)["input_ids"], tokenizer.eos_token_id]
        rows.append((prompt_ids + answer_ids, [_IGNORED] * len(prompt_ids) + answer_ids))
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), longest), tokenizer.pad_token_id)
    labels = torch.full((len(rows), longest), _IGNORED)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for row, (row_ids, row_labels) in enumerate(rows):
        ids[row, : len(row_ids)] = torch.tensor(row_ids)
        labels[row, : len(row_labels)] = torch.tensor(row_labels)
        mask[row, : len(row_ids)] = 1
    return ids, mask, labels


def warm_up(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, options: WarmUpOptions, seed: int
) -> Qwen3ForCausalLM:
    """Supervised steps in place. Deterministic for one seed, thread count and torch version."""
    ids, mask, labels = encode(examples(options.traces, seed), tokenizer)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay, betas=(0.9, 0.95)
    )
    order = random.Random(f"order/{seed}")
    model.train()
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = options.learning_rate * _rate(step, options)
        batch = torch.tensor(order.sample(range(len(ids)), options.batch_size))
        length = int(mask[batch].sum(1).max())
        loss = model(
            input_ids=ids[batch, :length], attention_mask=mask[batch, :length], labels=labels[batch, :length]
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0 or step == options.steps - 1:
            logger.info("step %d loss %.4f", step, loss.item())
    return model.eval()


def build(out: Path, seed: int, options: WarmUpOptions) -> None:
    """Make tokenizer and model and write them, with the options, to a folder that transformers and vLLM can load."""
    tokenizer = build_tokenizer()
    model = warm_up(new_model(tokenizer, seed), tokenizer, options, seed)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.bos_token_id = tokenizer.bos_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    recipe = {"seed": seed, "torch": torch.__version__, **asdict(options)}
    (out / "warm_up.json").write_text(json.dumps(recipe, indent=2) + "\n")


def _rate(step: int, options: WarmUpOptions) -> float:
    if step < options.rise_steps:
        return (step + 1) / options.rise_steps
    done = (step - options.rise_steps) / max(1, options.steps - options.rise_steps)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * done))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--steps", type=int, default=WarmUpOptions().steps)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(arguments.threads)
    build(arguments.out, arguments.seed, WarmUpOptions(steps=arguments.steps))


if __name__ == "__main__":
    main()
