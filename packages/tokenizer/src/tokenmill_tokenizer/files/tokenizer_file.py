"""A tokenizer as it is published: a `tokenizer.json`, and which of its tokens have a part to play."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_VOCAB_SIZE = 1 << 24
"""Ids are below this: much of what comes later has memory for each id up to the highest."""


@dataclass(frozen=True)
class TokenizerFile:
    """What training and every import come to."""

    tokenizer_json: bytes
    end_of_document: str | None = None
    beginning_of_document: str | None = None
    padding: str | None = None
    chat_template: Any = None
    """In the form that transformers' settings have it, or none."""


def component(part: Any) -> Any:
    """A normaliser, pre-tokenizer or decoder of `tokenizers` as a tokenizer.json has it."""
    return None if part is None else json.loads(part.__getstate__())


def added_token(content: str, index: int, *, special: bool) -> dict[str, Any]:
    """An entry of `added_tokens`. Special ones are met in the raw text, others in the normalised one."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": not special, "special": special}
    return {"id": index, "content": content, **flags}


def bpe_document(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    added_tokens: Sequence[dict[str, Any]],
    *,
    normalizer: Any = None,
    pre_tokenizer: Any = None,
    decoder: Any = None,
    **model: Any,
) -> bytes:
    """The `tokenizer.json` of a BPE model. `model` has what it needs beside vocabulary and merges.

    Written here and not by `tokenizers`, which complains on standard output of ids that no token has.
    """
    settings = {
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    }
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added_tokens, key=lambda token: int(token["id"])),
        "normalizer": component(normalizer),
        "pre_tokenizer": component(pre_tokenizer),
        "post_processor": None,
        "decoder": component(decoder),
        "model": {
            "type": "BPE",
            **settings,
            **model,
            "vocab": dict(sorted(vocabulary.items(), key=lambda item: item[1])),
            "merges": [list(pair) for pair in merges],
        },
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
