"""Which tokenizers gigatoken encodes as `tokenizers` does, and how it is handed them.

gigatoken passes over parts of a `tokenizer.json` that it does not know and finds every added token in a text, special
or not. So only what is known to come out the same is let through, less the special tokens where those are plain text.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from tokenmill_tokenizer.decode import SPACE

PREPEND = {"type": "Prepend", "prepend": SPACE}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
SENTENCEPIECE_NORMALIZERS: tuple[Any, ...] = (
    {"type": "Sequence", "normalizers": [PREPEND, REPLACE]},
    {"type": "Sequence", "normalizers": [REPLACE]},
    REPLACE,
)

JSON = dict[str, Any]


class UnsupportedError(ValueError):
    """gigatoken cannot be trusted with a tokenizer; says which part of its file is why."""


def plain_tokenizer(content: bytes, tokenizer: Tokenizer, allow_special: bool) -> bytes:
    """The `tokenizer.json` in `content` for gigatoken, without special tokens unless they are allowed in texts.

    `tokenizer` is what `tokenizers` makes of it.

    Errors: `UnsupportedError`.
    """
    parsed: JSON = orjson.loads(content)
    added: list[JSON] = parsed.get("added_tokens") or []
    kept = [token for token in added if allow_special or not token["special"]]
    skipped = [token for token in added if token["special"] and not allow_special]
    for problem in _problems(parsed, tokenizer, kept, skipped):
        raise UnsupportedError(problem)
    return orjson.dumps(parsed | {"added_tokens": kept, "truncation": None, "padding": None})


def _problems(parsed: JSON, tokenizer: Tokenizer, kept: Sequence[JSON], skipped: Sequence[JSON]) -> Iterator[str]:
    yield from _problems_of_model(parsed["model"])
    yield from _problems_of_steps(parsed)
    yield from _problems_of_added(parsed, tokenizer, kept)
    yield from _problems_of_search(kept, skipped)


def _problems_of_model(model: JSON) -> Iterator[str]:
    if model.get("type", "BPE") != "BPE":
        yield f"model: {model['type']} is not BPE"
        return
    for field in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(field):
            yield f"model.{field}: {model[field]!r}"
    needed = (f"<0x{byte:02X}>" for byte in range(256)) if model.get("byte_fallback") else ByteLevel.alphabet()
    missing = sorted(token for token in needed if token not in model["vocab"])
    if missing:
        yield f"model.vocab: no token for each byte, {missing[0]!r} being the first that lacks"


def _problems_of_steps(parsed: JSON) -> Iterator[str]:
    """What comes before merging."""
    normalizer, cut = parsed.get("normalizer"), parsed.get("pre_tokenizer")
    if parsed["model"].get("byte_fallback"):
        if not _is_sentencepiece(normalizer, cut):
            yield (
                "how it spells spaces is none of the known ways "
                f"(normalizer {_kind(normalizer)}, pre_tokenizer {_kind(cut)})"
            )
        return
    # NFC too: the two follow Unicode of different years, and differ in characters that came between.
    if not _is_nothing(normalizer):
        yield f"it changes texts first (normalizer {_kind(normalizer)})"
    if not _is_byte_level(cut):
        yield f"pre_tokenizer {_kind(cut)} is no split by a regular expression and then into bytes"


def _is_sentencepiece(normalizer: JSON | None, cut: JSON | None) -> bool:
    if cut is None:
        return normalizer in SENTENCEPIECE_NORMALIZERS
    whole = cut["type"] == "Metaspace" and cut["replacement"] == SPACE and cut.get("split") is False
    return _is_nothing(normalizer) and whole and "prepend_scheme" in cut


def _is_nothing(normalizer: JSON | None) -> bool:
    return normalizer is None or (normalizer["type"] == "Sequence" and all(map(_is_nothing, normalizer["normalizers"])))


def _is_byte_level(cut: JSON | None) -> bool:
    if cut is None:
        return False
    if cut["type"] != "Sequence":
        return _maps_bytes(cut, use_regex=True)
    *splits, last = cut["pretokenizers"] or [{"type": ""}]
    return bool(splits) and all(map(_isolates, splits)) and _maps_bytes(last, use_regex=False)


def _maps_bytes(step: JSON, use_regex: bool) -> bool:
    if step["type"] != "ByteLevel" or step.get("add_prefix_space", True):
        return False
    return bool(step.get("use_regex", True)) is use_regex


def _isolates(step: JSON) -> bool:
    return (
        step["type"] == "Split"
        and "Regex" in step["pattern"]
        and (step["behavior"], step["invert"]) == ("Isolated", False)
    )


def _problems_of_added(parsed: JSON, tokenizer: Tokenizer, kept: Sequence[JSON]) -> Iterator[str]:
    """Added tokens that gigatoken will look for in texts."""
    if kept and parsed["model"].get("byte_fallback"):
        yield f"added_tokens: {kept[0]['content']!r} is looked for in texts, together with byte_fallback"
    for token in kept:
        name = f"added_tokens: {token['content']!r}"
        if any(token[flag] for flag in ("lstrip", "rstrip", "single_word")):
            yield f"{name} has lstrip, rstrip or single_word"
        # It numbers them anew where ids leave a gap, or the vocabulary has that token.
        id = tokenizer.token_to_id(token["content"])
        if id != token["id"]:
            yield f"{name} has the id {token['id']}, and {id} with tokenizers"


def _problems_of_search(kept: Sequence[JSON], skipped: Sequence[JSON]) -> Iterator[str]:
    """Where `tokenizers` finds another added token than the first in a text, the longest of those that begin there.

    It looks for those that are not `normalized` before the others, and passes over a special one that is to be plain
    text only once found, with all that it covers.
    """
    raw, late = (_contents(kept, normalized) for normalized in (False, True))
    skipped_raw, skipped_late = (_contents(skipped, normalized) for normalized in (False, True))
    for first, second in ((skipped_raw, raw), (skipped_late, late), (late, raw)):
        if _covers_head(first, second):
            yield "added_tokens: in a text one of them can cover where another begins"


def _contents(tokens: Sequence[JSON], normalized: bool) -> list[str]:
    return [token["content"] for token in tokens if token["normalized"] is normalized]


def _covers_head(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether one of `first` can stand in a text so that it covers the first character of one of `second`."""
    heads = {text[:end] for text in second for end in range(1, len(text) + 1)}
    joined = "\0".join(first)
    return any(text[start:] in heads for text in first for start in range(1, len(text))) or any(
        text in joined for text in second
    )


def _kind(step: JSON | None) -> str:
    """A step by the names of its parts."""
    if step is None:
        return "none"
    parts = step.get("normalizers") or step.get("pretokenizers")
    return " + ".join(map(_kind, parts)) if parts else str(step["type"])
