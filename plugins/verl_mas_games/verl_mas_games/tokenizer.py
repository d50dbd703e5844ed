"""The character tokenizer of the embedded model: one token per cell symbol, move and marker."""

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-untyped]
from transformers import PreTrainedTokenizerFast

from verl_mas_games.sokoban.game import MOVES, SYMBOLS

SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>", "<unk>")
#: characters of the compact prompts and answers; any other becomes <unk>
CHARACTERS = "\n" + SYMBOLS + "".join(MOVES) + "TP>"
#: the contents of the messages and nothing else; `add_generation_prompt` changes nothing
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
MAX_LENGTH = 256


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A fast tokenizer with a token per character and a chat template that only concatenates contents."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_LENGTH,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
