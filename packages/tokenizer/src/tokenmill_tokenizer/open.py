"""Opening a tokenizer: one of our manifests, or anybody's `tokenizer.json`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokenizers import Tokenizer

from tokenmill_core import storage
from tokenmill_core.errors import InputError
from tokenmill_core.inputs import expand_inputs, hash_group
from tokenmill_core.manifest import TOKENIZER_NAME, TokenizerManifest
from tokenmill_core.manifest_io import is_manifest, load_manifest, verify_files
from tokenmill_core.readers import Format
from tokenmill_core.stage import Inputs

MOST_SHOWN = 8
"""How many special tokens a message lists."""
USUAL_END_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")
"""What ends a document in a `tokenizer.json` that does not come with a manifest, the first that it has."""


@dataclass(frozen=True)
class OpenedTokenizer:
    """A tokenizer and what a stage must know of it."""

    url: str
    """Where its `tokenizer.json` lies."""
    inputs: Inputs
    """The tokenizer as an input of a stage."""
    digest: str
    """Its digest as an input."""
    sha256: str
    """sha256 of its `tokenizer.json`."""
    vocab_size: int
    """Every id is below it."""
    padded_vocab_size: int
    """Rows a model's embedding should have."""
    end_of_document: str | None
    end_of_document_id: int | None
    beginning_of_document: str | None
    """The token that its manifest opens documents with, or none."""
    vocabulary: Mapping[str, int]
    """Id of each token, added ones included."""


def open_tokenizer(path: str, end_of_document: str | None = None) -> OpenedTokenizer:
    """The tokenizer at `path`: a tokenizer dataset, or a `tokenizer.json` file in the Hugging Face format.

    `end_of_document` names the token that closes a document; by default the manifest's, or a usual one that is there.
    Errors: `InputError` where there is no tokenizer or it lacks that token.
    """
    if os.path.basename(path) == TOKENIZER_NAME and is_manifest(storage.parent(path)):
        path = storage.parent(path)
    if not is_manifest(path):
        return _open_file(path, end_of_document)
    loaded = load_manifest(path, TokenizerManifest)
    verify_files(loaded)
    url = loaded.file_url(TOKENIZER_NAME)
    manifest = loaded.manifest
    opened = _describe(url, Inputs(manifests=(loaded,)), end_of_document or manifest.end_of_document)
    return replace(
        opened,
        padded_vocab_size=manifest.padded_vocab_size,
        beginning_of_document=manifest.beginning_of_document,
    )


def _open_file(path: str, end_of_document: str | None) -> OpenedTokenizer:
    fs, inner = storage.filesystem(path)
    url = storage.join(path, TOKENIZER_NAME) if fs.isdir(inner) else path
    # Under its file name whole, so that it is not taken for a group of raw text called `tokenizer`.
    groups = tuple(
        replace(hash_group(group), name=group.files[0].name) for group in expand_inputs([url], format=Format.TEXT)
    )
    vocabulary = load(url).get_vocab(with_added_tokens=True)
    usual = next((token for token in USUAL_END_TOKENS if token in vocabulary), None)
    return _describe(url, Inputs(raw=groups), end_of_document or usual)


def _describe(url: str, inputs: Inputs, end_of_document: str | None) -> OpenedTokenizer:
    tokenizer = load(url)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    end_id = None if end_of_document is None else _end_id(url, tokenizer, end_of_document, vocabulary)
    # Ids can have gaps, so the highest one counts, not their number.
    size = max(vocabulary.values(), default=-1) + 1
    return OpenedTokenizer(
        url=url,
        inputs=inputs,
        digest=inputs.refs(".")[0].digest,
        sha256=storage.hash_file(url)[1],
        vocab_size=size,
        padded_vocab_size=size,
        end_of_document=end_of_document,
        end_of_document_id=end_id,
        beginning_of_document=None,
        vocabulary=vocabulary,
    )


def _end_id(url: str, tokenizer: Any, token: str, vocabulary: Mapping[str, int]) -> int:
    if token not in vocabulary:
        raise InputError(f"{url}: no token {token!r} to end a document with; {special_tokens_of(tokenizer)}")
    tokenizer.encode_special_tokens = True
    if tokenizer.encode(token, add_special_tokens=False).ids == [vocabulary[token]]:
        raise InputError(
            f"{url}: {token!r} is an ordinary word to this tokenizer, so an end of document could not be told from "
            f"text; {special_tokens_of(tokenizer)}"
        )
    return vocabulary[token]


def special_tokens_of(tokenizer: Any) -> str:
    """The end of a message about a token that is none: which ones there are."""
    names = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
    if not names:
        return "it has no special tokens: train or import one that has"
    shown = ", ".join(map(repr, names[:MOST_SHOWN])) + (" and more" if len(names) > MOST_SHOWN else "")
    return f"name one of its special tokens: {shown}"


def load(url: str) -> Any:
    """The `tokenizers.Tokenizer` at `url`."""
    try:
        return Tokenizer.from_buffer(storage.read_bytes(url))
    except Exception as error:  # the library raises bare Exception
        raise InputError(
            f"{os.fspath(url)}: not a tokenizer.json in the Hugging Face format: {error}; tiktoken ranks and "
            "SentencePiece models become one by prep import-tokenizer"
        ) from error
