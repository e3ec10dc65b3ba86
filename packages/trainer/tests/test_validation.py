"""Validation sets by source: what is read, what counts, and how the sources are weighed."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tokenmill_core.mixture_manifest import MixtureStage
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_tokenizer.decode import Decoder
from tokenmill_trainer import Engine, RunConfig, initialize
from tokenmill_trainer.evaluation.validation import ValidationConfig, rank_batches, stage_weights, validate
from tokenmill_trainer.loss import IGNORED

LENGTH, SOURCES = 32, ("core", "trainer")
ALL = 10_000
MANY = 300


@pytest.fixture(params=["join", "separate"])
def engine(request: pytest.FixtureRequest, mixture: Path, make_config: Callable[..., RunConfig]) -> Iterator[Engine]:
    data = {"mixture": str(mixture), "sequence_length": LENGTH, "documents": request.param}
    with initialize(make_config(model={"vocab_size": 400}, data=data)) as engine:
        yield engine


@pytest.fixture
def reader(mixture: Path) -> MixtureReader:
    return MixtureReader.open(str(mixture), LENGTH)


def run(engine: Engine, reader: MixtureReader, samples: int, micro_batch_size: int = 4, consumed: int = 0) -> dict:
    return validate(
        engine.model,
        engine.world,
        reader,
        ValidationConfig(samples=samples),
        micro_batch_size=micro_batch_size,
        consumed_samples=consumed,
        byte_lengths=engine.byte_lengths,
    )


def held_out_tokens(reader: MixtureReader, source: int) -> torch.Tensor:
    stream = reader.held_out[source]
    tokens = np.empty(stream.num_tokens, np.int64)
    stream.read_into(tokens, 0)
    return torch.from_numpy(tokens)


def windows_read(reader: MixtureReader, name: str, max_samples: int) -> list[int]:
    """Where the held-out samples begin that a validation of at most `max_samples` reads: evenly spread over all."""
    total = reader.num_validation(name)
    return [LENGTH * int(place) for place in np.linspace(0, total, min(max_samples, total), endpoint=False).tolist()]


@pytest.mark.parametrize(("max_samples", "micro", "world_size"), [(ALL, 4, 2), (5, 2, 2), (3, 4, 4), (7, 1, 3)])
def test_every_rank_runs_as_many_batches_and_each_label_counts_once(
    reader: MixtureReader, max_samples: int, micro: int, world_size: int
) -> None:
    for number, name in enumerate(SOURCES):
        ranks = [list(rank_batches(reader, name, max_samples, micro, rank, world_size)) for rank in range(world_size)]
        assert len({len(batches) for batches in ranks}) == 1
        batches = [batch for rank in ranks for batch in rank]
        assert {part.shape for inputs, labels, _ in batches for part in (inputs, labels)} == {(micro, LENGTH)}
        counted = torch.cat([labels[labels != IGNORED] for _, labels, _ in batches])
        tokens = held_out_tokens(reader, number)
        expected = [tokens[first + 1 : first + 1 + LENGTH] for first in windows_read(reader, name, max_samples)]
        assert torch.equal(counted, torch.cat(expected))


def test_the_loss_of_a_source_is_the_mean_over_its_held_out_labels(
    reader: MixtureReader, mixture: Path, make_config: Callable[..., RunConfig]
) -> None:
    with initialize(make_config(model={"vocab_size": 400}, data={"mixture": str(mixture)})) as engine:
        losses = run(engine, reader, 40)["val_loss_by_source"]
        assert set(losses) == set(SOURCES)
        for number, name in enumerate(SOURCES):
            tokens, total, num_labels = held_out_tokens(reader, number), 0.0, 0
            for first in windows_read(reader, name, 40):
                part = tokens[first : first + LENGTH + 1]
                num_labels += len(part) - 1
                with torch.no_grad():
                    logits = engine.model(part[None, :-1])[0]
                total += float(torch.nn.functional.cross_entropy(logits, part[1:], reduction="sum"))
            assert losses[name] == pytest.approx(total / num_labels, abs=1e-5)


def test_bits_per_byte_are_those_of_the_text_the_labels_decode_to(
    reader: MixtureReader, mixture: Path, make_config: Callable[..., RunConfig]
) -> None:
    tokenizer = Decoder(str(mixture.parent / "tokenizer" / "tokenizer.json"))
    data = {"mixture": str(mixture), "sequence_length": LENGTH}
    with initialize(make_config(model={"vocab_size": 400}, data=data)) as engine:
        result = run(engine, reader, MANY)
    nats_and_bytes = {}
    for number, name in enumerate(SOURCES):
        tokens = held_out_tokens(reader, number)
        labels = torch.cat([tokens[first + 1 : first + 1 + LENGTH] for first in windows_read(reader, name, MANY)])
        text = labels[labels != reader.manifest.end_of_document_id]
        assert 0 < len(text) < len(labels), "the mark between documents has no bytes"
        loss, num_bytes = result["val_loss_by_source"][name], len(tokenizer.decode_bytes(text.tolist()))
        bits = loss * len(labels) / math.log(2) / num_bytes
        assert result["val_bits_per_byte_by_source"][name] == pytest.approx(bits)
        nats_and_bytes[name] = (loss, num_bytes / len(labels))
    weights = stage_weights(reader, 0)
    nats, length = (sum(weights[name] * pair[part] for name, pair in nats_and_bytes.items()) for part in (0, 1))
    assert result["val_bits_per_byte"] == pytest.approx(nats / math.log(2) / length)


def test_without_the_bytes_of_tokens_there_are_no_bits_per_byte(engine: Engine, reader: MixtureReader) -> None:
    engine.byte_lengths = None
    result = run(engine, reader, 4)
    assert result["val_bits_per_byte"] is None
    assert result["val_bits_per_byte_by_source"] == dict.fromkeys(SOURCES)
    assert result["val_loss"] > 0


def test_validation_does_not_depend_on_the_micro_batch(engine: Engine) -> None:
    assert engine.validation_reader is not None
    results = [run(engine, engine.validation_reader, 7, micro) for micro in (1, 3, 8)]
    assert set(results[0]["val_loss_by_source"]) == set(SOURCES)
    for other in results[1:]:
        assert other["val_loss"] == pytest.approx(results[0]["val_loss"], abs=1e-6)


def test_sources_weigh_what_they_do_in_the_stage_that_training_is_in(engine: Engine) -> None:
    made = engine.validation_reader
    assert made is not None
    denominator = made.manifest.denominator
    stages = (
        MixtureStage(name="first", first_token=0, weights=(denominator, 0)),
        MixtureStage(name="second", first_token=10 * LENGTH, weights=(denominator // 4, denominator // 4 * 3)),
    )
    manifest = made.manifest.model_copy(update={"stages": stages})
    reader = MixtureReader(manifest, [stream.store for stream in made.training], LENGTH)
    assert stage_weights(reader, 9) == {"core": denominator, "trainer": 0}
    assert stage_weights(reader, 10) == {"core": denominator // 4, "trainer": denominator // 4 * 3}
    before, after = (run(engine, reader, 4, consumed=consumed) for consumed in (9, 10))
    losses = before["val_loss_by_source"]
    assert after["val_loss_by_source"] == losses
    assert before["val_loss"] == losses["core"]
    assert after["val_loss"] == pytest.approx(losses["core"] / 4 + losses["trainer"] * 3 / 4)


def test_a_mixture_that_holds_nothing_out_has_no_validation(engine: Engine) -> None:
    made = engine.validation_reader
    assert made is not None
    sources = tuple(source.model_copy(update={"held_out_tokens": ()}) for source in made.manifest.sources)
    manifest = made.manifest.model_copy(update={"sources": sources, "validation_share": 0.0})
    reader = MixtureReader(manifest, [stream.store for stream in made.training], LENGTH)
    assert run(engine, reader, 4) == {
        "val_loss": None,
        "val_loss_by_source": {},
        "val_bits_per_byte": None,
        "val_bits_per_byte_by_source": {},
    }
