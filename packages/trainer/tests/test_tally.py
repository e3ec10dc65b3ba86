"""Loss, tokens and bytes of each source against a computation of their own; memory."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tokenmill_shards.open_samples import load_samples_manifest
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_shards.reading.samples import Samples
from tokenmill_trainer import Engine, RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches, counts_of
from tokenmill_trainer.batches.tokenizer import read_byte_lengths
from tokenmill_trainer.evaluation.validation import validate
from tokenmill_trainer.report import Progress, StepReport, Tally
from tokenmill_trainer.watching.metrics import StepMeter
from tokenmill_trainer.watching.timing import Phase

SOURCES = ("code", "prose", "never", "rare")


def reports(engine: Engine) -> Iterator[StepReport]:
    for batch in engine.batches():
        engine.backward(engine(batch))
        report = engine.step()
        if report is not None:
            yield report


def expected(engine: Engine, samples: Samples) -> dict[str, tuple[float, int]]:
    """Loss and counted tokens of each source that has any, sample by sample."""
    losses: dict[str, list[float]] = {}
    assert samples.positions is not None
    assert samples.sources is not None
    assert samples.counted is not None
    for row in range(len(samples.tokens)):
        tokens = torch.from_numpy(samples.tokens[row])
        positions = torch.from_numpy(samples.positions[row : row + 1])
        with torch.no_grad():
            logits = engine.model(tokens[None, :-1], positions_BL=positions)[0].double()
        by_token = F.cross_entropy(logits, tokens[1:], reduction="none")
        of = np.broadcast_to(samples.sources[row], len(samples.tokens[row]) - 1)
        for place in np.flatnonzero(samples.counted[row]).tolist():
            losses.setdefault(SOURCES[of[place]], []).append(by_token[place].item())
    return {name: (math.fsum(values) / len(values), len(values)) for name, values in losses.items()}


@pytest.mark.parametrize(("micro_batch_size", "chunk_tokens"), [(8, 0), (2, 0), (4, 50), (1, 7)])
def test_losses_and_tokens_of_sources_are_those_of_a_separate_computation(
    make_config: Callable[..., RunConfig], of_sources: Any, micro_batch_size: int, chunk_tokens: int
) -> None:
    config = make_config(
        loss={"chunk_tokens": chunk_tokens, "z_loss": 1e-2}, training={"micro_batch_size": micro_batch_size}
    )
    with initialize(config, GlobalBatches(of_sources, 8), source_names=SOURCES) as engine:
        wanted = expected(engine, of_sources.samples(np.arange(8)))
        assert wanted.keys() == {"code", "prose", "rare"}
        first, *others = reports(engine)
    assert first.tally.tokens_by_source == {name: count for name, (_, count) in wanted.items()}
    assert first.tally.loss_by_source == pytest.approx({name: loss for name, (loss, _) in wanted.items()}, rel=1e-6)
    for report in (first, *others):
        tokens = report.tally.tokens_by_source
        assert sum(tokens.values()) == report.tokens
        whole = sum(loss * tokens[name] for name, loss in report.tally.loss_by_source.items())
        assert whole / report.tokens == pytest.approx(report.loss, rel=1e-6)


@pytest.mark.parametrize("of_sources", ["mixed"], indirect=True)
def test_two_ranks_tell_what_one_process_tells(
    make_config: Callable[..., RunConfig],
    of_sources: Any,
    tmp_path: Path,
    mixture: Path,
    on_two_ranks: Callable[[str, RunConfig, Path], None],
) -> None:
    """Nine held-out samples of a source are five micro-batches: three on one rank and two on the other."""
    config = make_config(
        data={"mixture": str(mixture)},
        training={"micro_batch_size": 2, "zero_stage": 3, "steps": 1},
        validation={"samples": 9},
    )
    on_two_ranks("tally_worker.py", config, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    with initialize(config, GlobalBatches(of_sources, 8), source_names=SOURCES) as engine:
        (report,) = reports(engine)
        tally = report.tally
        validated = validate(
            engine.model,
            engine.world,
            MixtureReader.open(config.data.mixture, config.data.sequence_length),
            config.validation,
            micro_batch_size=2,
            consumed_samples=0,
            byte_lengths=read_byte_lengths(load_samples_manifest(config.data.mixture)),
        )
    told = {"loss_by_source": tally.loss_by_source, "tokens_by_source": tally.tokens_by_source, **validated}
    assert first.keys() == told.keys()
    for name, wanted in told.items():
        assert first[name] == pytest.approx(wanted, rel=1e-5), name
    assert set(told["val_bits_per_byte_by_source"]) == {"core", "trainer"}


def test_bytes_and_tokens_are_counted_where_labels_are_read() -> None:
    tokens = np.array([[0, 1, 2, 3], [4, 0, 1, 1]])
    counted = np.array([[True, True, False], [False, False, True]])
    lengths = np.array([5, 1, 2, 7, 9])
    whole = counts_of(Samples(tokens, sources=np.array([2, 0], np.int32)), lengths)
    assert (whole.tokens_by_source.tolist(), whole.num_bytes) == ([3, 0, 3], 1 + 2 + 7 + 5 + 1 + 1)
    masked = counts_of(Samples(tokens, counted, sources=np.array([2, 0], np.int32)), lengths)
    assert (masked.tokens_by_source.tolist(), masked.num_bytes) == ([1, 0, 2], 1 + 2 + 1)
    by_label = np.array([[0, 1, 1], [3, 3, 1]], np.int32)
    assert counts_of(Samples(tokens, counted, sources=by_label), None).tokens_by_source.tolist() == [1, 2]
    assert counts_of(Samples(tokens), None).tokens_by_source.size == 0


def test_memory_is_the_peak_of_the_process(make_config: Callable[..., RunConfig], source: GlobalBatches) -> None:
    with initialize(make_config(), source) as engine:
        steps = reports(engine)
        before = next(steps).tally
        held = torch.ones(64 << 20, dtype=torch.uint8)
        after = next(steps).tally
        del held
    assert before.memory_reserved_bytes is None
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    assert before.memory_bytes <= after.memory_bytes <= peak
    assert after.memory_bytes > 64 << 20


def test_a_loss_that_is_no_number_is_null_in_its_row() -> None:
    tally = Tally({"code": math.nan, "prose": 2.0}, {"code": 4, "prose": 6}, num_bytes=40)
    report = StepReport(Progress(1, 8, 10), 0, loss=1.0, grad_norm=1.0, lr=1e-3, tokens=10, tally=tally)
    row = StepMeter(1.0, None, 1).metrics(report, dict.fromkeys(Phase, 0.1))
    assert row["loss_by_source"] == {"code": None, "prose": 2.0}
    assert row["bits_per_byte"] == pytest.approx(10 / math.log(2) / 40)
