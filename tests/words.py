"""A tokenizer of whole words, whose ids can be counted on fingers."""

from __future__ import annotations

from pathlib import Path

WORDS = ["<s>", "</s>", "<unk>", "hello", "world", "user", "assistant", "system", ":"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {{ eos_token }} {% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)


def make_tokenizer(folder: Path, template: str | None = TEMPLATE, *, adds_bos: bool = True) -> Path:
    """A tokenizer of whole words, whose ids are their places in WORDS."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    if adds_bos:
        backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=template
    )
    tokenizer.save_pretrained(folder)
    return folder
