"""The data of the loading benchmarks: one tokens dataset of random tokens, and a mixture of it alone."""

from pathlib import Path

import numpy as np

from tokenmill_core.manifest import StageRef, TokensManifest
from tokenmill_core.manifest_io import input_ref, publish
from tokenmill_core.mixture_manifest import MixtureManifest, MixtureSource, MixtureStage
from tokenmill_shards import ShardWriter

VOCAB_SIZE, DOCUMENT_TOKENS, BATCH_TOKENS = 50_000, 1000, 1_000_000
STAGE = StageRef(name="bench", version=1)
TOKENIZER_SHA256 = "0" * 64


def make_mixture(folder: Path, num_tokens: int) -> str:
    """Write both into `folder`; the URL of the mixture. The shard is `folder / "shard-00000"`."""
    rng, lengths = np.random.default_rng(0), np.full(BATCH_TOKENS // DOCUMENT_TOKENS, DOCUMENT_TOKENS)
    with ShardWriter(folder / "shard-00000", np.uint16, VOCAB_SIZE) as writer:
        for _ in range(num_tokens // BATCH_TOKENS):
            writer.append(rng.integers(0, VOCAB_SIZE, BATCH_TOKENS), lengths)
    tokens = publish(
        TokensManifest(
            name="random",
            stage=STAGE,
            config={},
            files=tuple(writer.files),
            dtype="uint16",
            vocab_size=VOCAB_SIZE,
            padded_vocab_size=VOCAB_SIZE,
            tokenizer_sha256=TOKENIZER_SHA256,
            end_of_document_id=None,
            shards=("shard-00000",),
        ),
        str(folder),
    )
    mixture = MixtureManifest(
        name="random",
        stage=STAGE,
        config={},
        inputs=(input_ref(tokens, str(folder)),),
        sources=(
            MixtureSource(
                name="random",
                input=0,
                documents=writer.num_documents,
                tokens=writer.num_tokens,
                shard_tokens=(writer.num_tokens,),
            ),
        ),
        stages=(MixtureStage(name="all", first_token=0, weights=(1,)),),
        denominator=1,
        seed=0,
        dtype="uint16",
        vocab_size=VOCAB_SIZE,
        padded_vocab_size=VOCAB_SIZE,
        tokenizer_sha256=TOKENIZER_SHA256,
        end_of_document_id=None,
    )
    return publish(mixture, str(folder), "mixture.json").url
