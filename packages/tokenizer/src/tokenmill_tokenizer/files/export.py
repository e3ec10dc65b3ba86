"""Files for other libraries beside a `tokenizer.json`: tiktoken's ranks and settings, transformers' settings.

Pure functions of the `tokenizer.json`, which alone says what the tokenizer is.
"""

import base64
import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from tokenmill_core.errors import InputError
from tokenmill_tokenizer.files.byte_characters import to_bytes
from tokenmill_tokenizer.files.portable_regex import check_portable
from tokenmill_tokenizer.files.recovered_merges import recover_merges
from tokenmill_tokenizer.splits import Split, SplitRule

TIKTOKEN_NAME = "tokenizer.tiktoken"
TIKTOKEN_SETTINGS_NAME = "tokenizer.tiktoken.json"

_MOST_DIGITS = range(1, 10)
_COVERING = {SplitRule(split=split, digit_group=digits).regex for split in Split for digits in (None, *_MOST_DIGITS)}
"""Patterns that leave nothing of a text between their matches."""


@dataclass(frozen=True)
class _Parts:
    """A byte-level BPE tokenizer in tiktoken's terms."""

    model: dict[str, Any]
    ranks: dict[bytes, int]
    special_tokens: dict[str, int]
    pattern: str


def tiktoken_ranks(tokenizer_json: bytes) -> bytes:
    """The tokens in tiktoken's format: a line of base64 and id for each that is not special, in the order of ids.

    Errors: `InputError` where tiktoken would give other ids: no byte-level BPE, a normaliser, a space put in front,
    several cuts, added tokens that are not special, or merges in another order than the ids of what they make.
    """
    parts = _read(tokenizer_json)
    _check_merges(parts)
    ordered = sorted(parts.ranks.items(), key=lambda item: item[1])
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ordered)


def tiktoken_settings(tokenizer_json: bytes) -> bytes:
    """What `tiktoken.Encoding` takes beside a name and the ranks, as JSON.

    `pat_str`, `special_tokens`, and where no id is left out `explicit_n_vocab`.
    Errors: `InputError` as `tiktoken_ranks`, but for the order of merges.
    """
    parts = _read(tokenizer_json)
    settings: dict[str, Any] = {"pat_str": parts.pattern, "special_tokens": parts.special_tokens}
    ids = {*parts.ranks.values(), *parts.special_tokens.values()}
    if len(ids) == max(ids) + 1:
        settings["explicit_n_vocab"] = len(ids)
    return _json(settings)


def tokenizer_config(
    special_tokens: Iterable[str],
    *,
    end_of_document: str | None,
    beginning_of_document: str | None = None,
    padding: str | None = None,
    chat_template: Any = None,
    model_max_length: int | None = None,
) -> bytes:
    """The `tokenizer_config.json` with which transformers loads the `tokenizer.json` beside it as it is.

    `special_tokens` are all of them; a role is a token or none. `model_max_length` is in tokens, none for no limit.
    """
    roles = {"bos_token": beginning_of_document, "eos_token": end_of_document, "pad_token": padding}
    config: dict[str, Any] = {token: value for token, value in roles.items() if value is not None}
    others = [token for token in special_tokens if token not in config.values()]
    if others:
        config["additional_special_tokens"] = others
    if chat_template is not None:
        config["chat_template"] = chat_template
    if model_max_length is not None:
        config["model_max_length"] = model_max_length
    # The class for a tokenizer.json that says everything; clean-up would take spaces out of decoded text.
    return _json({"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **config})


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _refuse(reason: str) -> NoReturn:
    raise InputError(f"tiktoken cannot express this tokenizer: {reason}")


def _read(tokenizer_json: bytes) -> _Parts:
    document = json.loads(tokenizer_json)
    model = document["model"]
    # Files of old say nothing of their only kind of model.
    if model.get("type", "BPE") != "BPE":
        _refuse(f"its model is {model['type']}, not BPE")
    normalizers = _steps(document.get("normalizer"), "normalizers")
    if normalizers:
        _refuse(f"it normalises texts ({', '.join(step['type'] for step in normalizers)})")
    for setting in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(setting):
            _refuse(f"its model has {setting} {model[setting]!r}")
    pattern = _pattern(document.get("pre_tokenizer"))
    special_tokens = _special_tokens(document.get("added_tokens", []))
    return _Parts(model, _ranks(model["vocab"], special_tokens), special_tokens, pattern)


def _steps(component: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """What a part of a tokenizer does, one after the other; a Sequence has its parts under `name`."""
    if component is None:
        return []
    return list(component[name]) if component["type"] == "Sequence" else [component]


def _pattern(pre_tokenizer: dict[str, Any] | None) -> str:
    steps = _steps(pre_tokenizer, "pretokenizers")
    if not steps or steps[-1]["type"] != "ByteLevel":
        _refuse("it does not work on bytes (no ByteLevel pre-tokenizer at the end)")
    *cuts, byte_level = steps
    if byte_level["add_prefix_space"]:
        _refuse("it puts a space in front of texts (add_prefix_space)")
    if byte_level.get("use_regex", True):
        cuts.append({"type": "Split", "pattern": {"Regex": SplitRule(split=Split.GPT2).regex}, "behavior": "Isolated"})
    if not cuts:
        return r"[\s\S]+"
    if len(cuts) > 1:
        _refuse(f"it cuts texts {len(cuts)} times ({', '.join(cut['type'] for cut in cuts)})")
    cut = cuts[0]
    if cut["type"] != "Split" or "Regex" not in cut["pattern"] or cut["behavior"] != "Isolated" or cut.get("invert"):
        _refuse(
            f"its pre-tokenizer is no Split by a regex that isolates matches: {json.dumps(cut, ensure_ascii=False)}"
        )
    return _covering(cut["pattern"]["Regex"])


def _covering(pattern: str) -> str:
    """`pattern`, and as a last choice what lies between its matches: a piece to `tokenizers`, but lost by tiktoken."""
    check_portable(pattern)
    return pattern if pattern in _COVERING else rf"{pattern}|(?:(?!{pattern})[\s\S])+"


def _special_tokens(added_tokens: list[dict[str, Any]]) -> dict[str, int]:
    for token in added_tokens:
        if not token["special"]:
            _refuse(f"{token['content']!r} is an added token that is not special")
        for flag in ("single_word", "lstrip", "rstrip"):
            if token[flag]:
                _refuse(f"special token {token['content']!r} has {flag}")
    found = {token["content"]: token["id"] for token in sorted(added_tokens, key=lambda token: token["id"])}
    names = sorted(found)
    for name, following in itertools.pairwise(names):
        if following.startswith(name):
            _refuse(f"special token {following!r} begins with another, {name!r}")
    return found


def _ranks(vocabulary: dict[str, int], special_tokens: dict[str, int]) -> dict[bytes, int]:
    ranks = {}
    for token, index in vocabulary.items():
        if token in special_tokens:
            continue
        content = to_bytes(token)
        if not content:
            _refuse(f"token {token!r} (id {index}) does not stand for bytes")
        ranks[content] = index
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        _refuse(f"{len(missing)} bytes have no token, such as 0x{missing[0]:02X}")
    return ranks


def _check_merges(parts: _Parts) -> None:
    """The merges are those that tiktoken comes to by the ids alone, and in that order."""
    recovered = recover_merges(parts.ranks, _single_bytes)
    listed = [_pair(merge) for merge in parts.model["merges"]]
    if listed != list(recovered.values()):
        odd = next((pair for pair in listed if recovered.get(b"".join(pair)) != pair), None)
        _refuse(
            "its merges are not in the order of their tokens' ids"
            if odd is None
            else f"by ids alone {odd[0]!r} and {odd[1]!r} would not be merged"
        )
    unreached = len(parts.ranks) - 256 - len(recovered)
    if unreached and not parts.model.get("ignore_merges"):
        _refuse(f"{unreached} of its tokens are never merged to, which tiktoken would give nevertheless")


def _pair(merge: str | list[str]) -> tuple[bytes, bytes]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return to_bytes(left) or b"", to_bytes(right) or b""


def _single_bytes(token: bytes) -> list[bytes]:
    return [token[place : place + 1] for place in range(len(token))]
