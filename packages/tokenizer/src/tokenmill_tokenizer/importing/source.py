"""What is imported: the files, and what kind of tokenizer they hold, told by content."""

import codecs
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from tokenmill_core import storage
from tokenmill_core.errors import InputError
from tokenmill_core.inputs import RawFile, RawGroup, expand_inputs, hash_group
from tokenmill_core.manifest import TOKENIZER_NAME
from tokenmill_core.manifest_io import is_manifest
from tokenmill_core.readers import Format

SETTINGS_NAMES = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
"""Files of transformers that may lie beside a `tokenizer.json`, the first having the first word."""


class Kind(StrEnum):
    """What a file holds."""

    HUGGINGFACE = "huggingface"
    """A `tokenizer.json` of the `tokenizers` library."""
    TIKTOKEN = "tiktoken"
    """Lines of base64 and rank."""
    SENTENCEPIECE = "sentencepiece"
    """A model in protocol buffers."""


_RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?(\n|$)")
_NOT_UTF8 = {
    codecs.BOM_UTF8: "begins with a byte order mark",
    codecs.BOM_UTF16_LE: "is text in UTF-16",  # or UTF-32, whose mark begins alike
    codecs.BOM_UTF16_BE: "is text in UTF-16",
    b"{\0": "is text in UTF-16",
    b"\0{": "is text in UTF-16",
}
_LOOKS_LIKE = {
    b"#version": "the merges of GPT-2's two files; name the tokenizer.json instead",
    b"version https://git-lfs": "a pointer of Git LFS; fetch the file itself with git lfs pull",
    b"<": "a web page; download the file itself",
    b"PK": "a zip archive; unpack it and name the tokenizer in it",
    b"\x1f\x8b": "compressed with gzip; unpack it first",
}


def find_source(arguments: Sequence[str]) -> RawGroup:
    """The one INPUT, hashed: a file, or a folder with a `tokenizer.json` and the settings of transformers beside it."""
    if len(arguments) != 1:
        raise InputError(f"{len(arguments)} inputs given: name one tokenizer to import")
    path = arguments[0]
    if is_manifest(path):
        raise InputError(f"{path}: this is a dataset already, or a file of one; give it to prep tokenize as it is")
    fs, inner = storage.filesystem(path)
    if not fs.isdir(inner):
        (group,) = expand_inputs([path], format=Format.TEXT)
        return hash_group(group)
    urls = [storage.join(path, name) for name in (TOKENIZER_NAME, *SETTINGS_NAMES)]
    if not storage.exists(urls[0]):
        names = sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in fs.ls(inner, detail=False))
        raise InputError(f"{path}: no {TOKENIZER_NAME} in this folder; name the file to import: {', '.join(names[:8])}")
    files = [RawFile(url, url.rsplit("/", 1)[-1], storage.size(url) or 0) for url in urls if storage.exists(url)]
    name = storage.storable(inner.rstrip("/").rsplit("/", 1)[-1]) or "root"
    return hash_group(RawGroup(name, path, tuple(sorted(files, key=lambda file: file.name))))


def main_file(group: RawGroup) -> RawFile:
    """The tokenizer itself among the files of a source."""
    return next((file for file in group.files if file.name == TOKENIZER_NAME), group.files[0])


def named(group: RawGroup) -> RawGroup:
    """`group` called after its file without the suffix: `cl100k_base.tiktoken` ─▶ `cl100k_base`."""
    stem = group.name.removesuffix(".tiktoken").removesuffix(".model").removesuffix(".json")
    return replace(group, name=stem or group.name)


def kind_of(content: bytes, url: str) -> Kind:
    """What `content` is. Errors: `InputError` that says what it looks like instead."""
    for sign, what in _NOT_UTF8.items():
        if content.startswith(sign):
            raise InputError(f"{url}: {what}; save it as UTF-8 without byte order mark")
    if content.lstrip()[:1] == b"{":
        return _kind_of_json(content, url)
    if _RANK_LINE.match(content):
        return Kind.TIKTOKEN
    # A model begins with its first piece: field 1, length-delimited.
    if content[:1] == b"\n" and b"\0" not in content[:2]:
        return Kind.SENTENCEPIECE
    start = content.lstrip()
    looks = next((what for sign, what in _LOOKS_LIKE.items() if start.startswith(sign)), None)
    raise InputError(
        f"{url}: neither a tokenizer.json, nor tiktoken ranks, nor a SentencePiece model; "
        + (f"it looks like {looks}" if looks else f"it is {len(content)} bytes that begin {content[:16]!r}")
    )


def _kind_of_json(content: bytes, url: str) -> Kind:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{url}: begins like JSON and is none ({error}); download it again") from error
    if isinstance(document.get("model"), dict):
        return Kind.HUGGINGFACE
    if isinstance(document.get("vocab"), list):
        looks = "Mistral's tekken format, which cannot be imported; use the tokenizer.json of the same model"
    elif document and all(isinstance(value, int) for value in document.values()):
        looks = "the vocabulary of GPT-2's two files; name the tokenizer.json instead"
    elif "tokenizer_class" in document or "added_tokens_decoder" in document:
        looks = "transformers' settings of a tokenizer; name the tokenizer.json beside them, or their folder"
    else:
        looks = f"JSON with the keys {', '.join(list(document)[:5])}"
    raise InputError(f"{url}: not a tokenizer.json in the Hugging Face format; it looks like {looks}")
