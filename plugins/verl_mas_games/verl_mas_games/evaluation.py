"""Plays held-out levels with a model in plain transformers, both roles in turn: how good a warm-up was, without verl.

python -m verl_mas_games.evaluation --model DIR --levels 300
"""

import argparse
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from verl_mas_games.embedded_model import default_model_path
from verl_mas_games.sokoban.environment import Sokoban, SokobanEnvironment
from verl_mas_games.sokoban.workflow import SokobanWorkflow

logger = logging.getLogger(__name__)

#: answers a batch of prompts
Speaker = Callable[[Sequence[str]], Sequence[str]]


def speaker(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_tokens: int, temperature: float) -> Speaker:
    """A batched sampler (greedy at temperature 0). Draws from torch's global generator."""

    def speak(prompts: Sequence[str]) -> Sequence[str]:
        chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
        batch = tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_dict=True, return_tensors="pt"
        )
        choice = (
            {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature > 0 else {"do_sample": False}
        )
        with torch.inference_mode():
            output = model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                max_new_tokens=max_tokens,
                **choice,
            )
        return tokenizer.batch_decode(output[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)

    return speak


def play(family: Sokoban, speakers: dict[str, Speaker], levels: int, max_turns: int) -> list[SokobanEnvironment]:
    """Play the first validation levels together, turn by turn, one answer for each role. Returns the final states."""
    environments = [family.environment(family.task("val", index)) for index in range(levels)]
    for _ in range(max_turns):
        for role in SokobanWorkflow.roles:
            live = [environment for environment in environments if not environment.done]
            if not live:
                return environments
            answers = speakers[role]([family.prompts[role].format_map(one.observe(role)) for one in live])
            for environment, answer in zip(live, answers, strict=True):
                environment.step(role, answer)
    return environments


def main() -> None:
    """The command line: logs the share of levels solved, greedily and sampled at temperature 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=default_model_path())
    parser.add_argument("--levels", type=int, default=300)
    parser.add_argument("--max-turns", type=int, default=4)
    parser.add_argument("--max-actions", type=int, default=10)
    parser.add_argument("--min-length", type=int, default=3)
    parser.add_argument("--max-length", type=int, default=9)
    parser.add_argument("--walls", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model).eval()
    family = Sokoban(
        style="compact",
        tool="actions",
        walls=arguments.walls,
        min_length=arguments.min_length,
        max_length=arguments.max_length,
        max_actions=arguments.max_actions,
        seed=arguments.seed,
    )
    for name, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        torch.manual_seed(arguments.seed)
        speak = speaker(model, tokenizer, arguments.max_actions + 1, temperature)
        final = play(family, dict.fromkeys(SokobanWorkflow.roles, speak), arguments.levels, arguments.max_turns)
        solved, lost = sum(one.success for one in final), sum(one.state.deadlocked for one in final)
        logger.info(json.dumps({"play": name, "success": solved / len(final), "deadlocked": lost / len(final)}))


if __name__ == "__main__":
    main()
