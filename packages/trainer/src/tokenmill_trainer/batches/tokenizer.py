"""The tokenizer that the data's tokens were made with, which lies beside them."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tokenmill_core import storage
from tokenmill_core.errors import VerificationError
from tokenmill_core.manifest import TOKENIZER_CONFIG_NAME, TOKENIZER_NAME
from tokenmill_core.manifest_io import LoadedManifest, load_input
from tokenmill_core.mixture_manifest import PackedManifest
from tokenmill_shards.open_samples import SamplesManifest
from tokenmill_tokenizer.decode import byte_lengths


def read_tokenizer(data: LoadedManifest[SamplesManifest]) -> bytes:
    """The `tokenizer.json` that the data's tokens were made with.

    Errors: `ManifestError` where the tokens are not found, `VerificationError` where the file is another one.
    """
    url = _beside_tokens(data).file_url(TOKENIZER_NAME)
    content = storage.read_bytes(url)
    if hashlib.sha256(content).hexdigest() != data.manifest.tokenizer_sha256:
        raise VerificationError(f"{url}: not the tokenizer that {data.url} was made with; restore it")
    return content


def read_tokenizer_settings(data: LoadedManifest[SamplesManifest]) -> bytes | None:
    """The `tokenizer_config.json` beside that tokenizer, or none."""
    tokens = _beside_tokens(data)
    if all(entry.path != TOKENIZER_CONFIG_NAME for entry in tokens.manifest.files):
        return None
    return storage.read_bytes(tokens.file_url(TOKENIZER_CONFIG_NAME))


def _beside_tokens(data: LoadedManifest[SamplesManifest]) -> LoadedManifest[Any]:
    """The dataset that has the tokenizer among its files: packed sequences themselves, or a source of a mixture."""
    if isinstance(data.manifest, PackedManifest):
        return data
    return load_input(data, data.manifest.sources[0].input)


def read_byte_lengths(data: LoadedManifest[SamplesManifest]) -> NDArray[np.int64] | None:
    """(V,) Bytes of text that each id spells, 0 for special tokens; none where that depends on its neighbours."""
    return byte_lengths(Tokenizer.from_buffer(read_tokenizer(data)), data.manifest.vocab_size)
