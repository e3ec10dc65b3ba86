"""Loss masks of a dataset, from a column of the raw file to the loss and gradient of a step."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_trainer import RunConfig, initialize

LENGTH = 64
COUNTED = (3, 61, 0, 30, 64, 1, 0, 17)
"""Labels that count in each window, so that micro-batches are as unlike as they can be."""


@pytest.fixture(scope="module")
def masked_mixture(tmp_path_factory: pytest.TempPathFactory, prep: Callable[..., None]) -> Path:
    """One document of eight windows; in a tokenizer of bytes alone, a character is a token."""
    folder = tmp_path_factory.mktemp("masked")
    letters = np.random.default_rng(0).integers(ord("a"), ord("z") + 1, LENGTH * len(COUNTED) + 1)
    spans = [[window * LENGTH + 1, window * LENGTH + 1 + counted] for window, counted in enumerate(COUNTED)]
    text = "".join(map(chr, letters))
    (folder / "text.jsonl").write_text(json.dumps({"id": "0", "text": text, "mask": spans}) + "\n")

    prep("train-tokenizer", "text.jsonl", "--vocab-size", "257", "--out", "tokenizer", cwd=folder)
    prep("tokenize", "text.jsonl", "--tokenizer", "tokenizer", "--loss-mask", "mask", "--out", "tokens", cwd=folder)
    prep("mix", "text=tokens", "--out", "mixture.json", cwd=folder)
    return folder / "mixture.json"


@pytest.mark.parametrize("documents", ["join", "separate"])
def test_a_step_is_the_mean_over_the_counted_tokens_whatever_the_micro_batch(
    masked_mixture: Path, make_config: Callable[..., RunConfig], documents: str
) -> None:
    samples = MixtureReader.open(str(masked_mixture), LENGTH).samples(np.arange(8))
    assert samples.counted is not None
    assert sorted(samples.counted.sum(1).tolist()) == sorted(COUNTED)
    results = []
    for micro in (8, 4, 1):
        config = make_config(
            model={"vocab_size": 257},
            data={"mixture": str(masked_mixture), "sequence_length": LENGTH, "documents": documents},
            training={"micro_batch_size": micro, "steps": 1},
        )
        with initialize(config) as engine:
            tokens, counted = torch.from_numpy(samples.tokens), torch.from_numpy(samples.counted)
            with torch.no_grad():
                logits = engine.model(tokens[:, :-1])
            expected = torch.nn.functional.cross_entropy(logits[counted], tokens[:, 1:][counted])
            for batch in engine.batches():
                engine.backward(engine(batch))
                report = engine.step()
        assert report is not None
        assert report.tokens == sum(COUNTED)
        assert report.loss == pytest.approx(expected.item(), abs=1e-5)
        results.append(report.grad_norm)
    assert results == pytest.approx([results[0]] * 3, rel=1e-5)
