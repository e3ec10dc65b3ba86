"""Which documents a tokenizer is trained on: by their texts alone, within each source's budget."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pytest

from tokenmill_core.build import build_stage
from tokenmill_core.compiled.text_buffers import column_buffers
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import TokenizerManifest
from tokenmill_tokenizer.train import STAGE
from tokenmill_tokenizer.train_config import TrainTokenizerConfig
from tokenmill_tokenizer.training.sampling import NUM_BUCKETS, buckets_of, choose_buckets
from tokenmill_tokenizer.training.sources import find_sources, share_out

NO_WEIGHTS = {"a": None, "b": None}


def test_buckets_depend_on_text_and_seed_alone() -> None:
    texts = [f"text {n}" for n in range(4000)]
    forwards = buckets_of(column_buffers(pa.array(texts, pa.large_string())), 0)
    backwards = buckets_of(column_buffers(pa.array([*texts[::-1], "more"], pa.large_string())), 0)
    assert forwards.tolist() == backwards[:-1].tolist()[::-1]
    assert (forwards != buckets_of(column_buffers(pa.array(texts, pa.large_string())), 1)).mean() > 0.99
    # Spread evenly: of 4,000 in two halves, 5 standard deviations are 158.
    assert abs(int((forwards < NUM_BUCKETS // 2).sum()) - 2000) < 160


def test_buckets_are_taken_as_long_as_they_fit() -> None:
    sizes = np.array([5, 0, 7, 4])
    taken = {budget: choose_buckets(sizes, budget).tolist() for budget in (0, 4, 5, 11, 12, 16)}
    assert taken == {
        0: [False, True, False, False],
        4: [False, True, False, True],
        5: [True, True, False, False],
        11: [True, True, False, True],
        12: [True, True, True, False],
        16: [True, True, True, True],
    }


@pytest.mark.parametrize(
    ("weights", "sample_bytes", "expected"),
    [
        (NO_WEIGHTS, None, {"a": 300, "b": 100}),
        (NO_WEIGHTS, 200, {"a": 150, "b": 50}),
        (NO_WEIGHTS, 4000, {"a": 3000, "b": 1000}),
        ({"a": Decimal("0.5"), "b": Decimal("0.5")}, None, {"a": 100, "b": 100}),
        ({"a": Decimal("0.9"), "b": Decimal("0.1")}, 100, {"a": 90, "b": 10}),
        ({"a": Decimal(1), "b": Decimal(3)}, 400, {"a": 100, "b": 300}),
    ],
)
def test_shares(weights: dict[str, Decimal | None], sample_bytes: int | None, expected: dict[str, int]) -> None:
    assert share_out({"a": 300, "b": 100}, weights, sample_bytes) == expected


def test_a_source_without_text_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="source 'b' has no documents"):
        share_out({"a": 300, "b": 0}, NO_WEIGHTS, 10)


def write(folder: Path, name: str, texts: list[str]) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts))
    return path


def train(inputs: list[str], out: Path, workers: int = 1, **settings: object) -> TokenizerManifest:
    config = TrainTokenizerConfig.model_validate({"vocab_size": 320, **settings})
    built = build_stage(STAGE.build(config, inputs, None), str(out), LocalExecutor(workers))
    manifest = built.loaded.manifest
    assert isinstance(manifest, TokenizerManifest)
    return manifest


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    web = write(tmp_path, "web", [f"the web page number {n} says little of note" for n in range(900)])
    code = write(tmp_path, "code", [f"def f{n}(x):\n    return x + {n}\n" for n in range(300)])
    return [f"web={web}", f"code={code}"]


def test_a_weighted_sample_is_balanced_and_the_same_in_any_order(sources: list[str], tmp_path: Path) -> None:
    weighted = [f"{source}:{weight}" for source, weight in zip(sources, (1, 3), strict=True)]
    manifest = train(weighted, tmp_path / "a", sample_bytes=8000, seed=5)
    rows = {row.source: row for row in manifest.compression}
    assert 0.97 * 6000 < rows["code"].bytes <= 6000
    assert 0.97 * 2000 < rows["web"].bytes <= 2000
    assert manifest.counts.bytes == sum(row.bytes for row in manifest.compression)
    assert manifest.counts.input_bytes - manifest.counts.bytes == manifest.ledger[0].bytes
    assert manifest.ledger[0].reason == "not_sampled"
    assert manifest.config["weights"] == {"web": 1.0, "code": 3.0}
    again = train(weighted[::-1], tmp_path / "b", workers=2, sample_bytes=8000, seed=5)
    assert again.digest == manifest.digest
    assert train(weighted, tmp_path / "c", sample_bytes=8000, seed=6).counts != manifest.counts


def test_the_order_of_lines_does_not_change_a_sample(sources: list[str], tmp_path: Path) -> None:
    train(sources, tmp_path / "a", sample_bytes=9000)
    for source in sources:
        path = Path(source.partition("=")[2])
        path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))
    train(sources, tmp_path / "b", sample_bytes=9000)
    assert (tmp_path / "a/tokenizer.json").read_bytes() == (tmp_path / "b/tokenizer.json").read_bytes()


def test_compression_counts_the_tokens_that_encoding_gives(sources: list[str], tmp_path: Path) -> None:
    from tokenmill_tokenizer import Encoder

    manifest = train(sources, tmp_path / "a")
    encoder = Encoder(str(tmp_path / "a/tokenizer.json"))
    for row, source in zip(manifest.compression, ("code", "web"), strict=True):
        path = tmp_path / f"{source}.jsonl"
        texts = [orjson.loads(line)["text"] for line in path.read_bytes().splitlines()]
        assert row.source == source
        assert row.documents == len(texts)
        assert row.tokens == len(encoder.encode(pa.array(texts, pa.large_string()))[0])


def test_a_share_that_no_document_fits_into_is_refused(sources: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"source 'code': none of its documents fits .* 5 bytes; raise --sample-bytes"):
        train(sources, tmp_path / "a", sample_bytes=30)


@pytest.mark.parametrize(
    ("suffixes", "error", "message"),
    [
        ((":1", ""), ConfigError, "'code' has no weight, but others have"),
        ((":0", ":0"), ConfigError, "all weights are 0"),
        ((":x", ":1"), ConfigError, "source 'web': weight 'x' is not a number"),
        (("-gone", ""), InputError, "gone"),
    ],
)
def test_sources_that_cannot_be_are_refused(
    sources: list[str], suffixes: tuple[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        find_sources([source + suffix for source, suffix in zip(sources, suffixes, strict=True)], None)


def test_one_name_or_one_file_twice_is_refused(sources: list[str], tmp_path: Path) -> None:
    path = sources[0].partition("=")[2]
    with pytest.raises(ConfigError, match="source 'web' is named twice"):
        find_sources([sources[0], sources[0]], None)
    with pytest.raises(InputError, match="sources 'copy' and 'web' read the same data"):
        train([sources[0], f"copy={path}"], tmp_path / "a")


def test_a_source_smaller_than_its_share_is_named(
    sources: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weighted = [f"{source}:0.5" for source in sources]
    size = (tmp_path / "code.jsonl").stat().st_size
    manifest = train(weighted, tmp_path / "a", sample_bytes=4 * size)
    code = {row.source: row for row in manifest.compression}["code"]
    assert f"source 'code' gives {code.bytes:,} of the {2 * size:,} bytes of its share" in caplog.text


def test_many_copies_of_one_document_do_not_end_a_sample(tmp_path: Path) -> None:
    path = write(
        tmp_path, "copies", [*["one and the same document"] * 900, *(f"document number {n}" for n in range(300))]
    )
    manifest = train([str(path)], tmp_path / "out", sample_bytes=5000)
    assert 4900 < manifest.counts.bytes <= 5000
