"""From a document to every sample that holds a part of it."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_shards import MixtureReader
from tokenmill_shards.audit.parts import Identity, parts_of
from tokenmill_shards.audit.search import Query, find_documents, num_samples, samples_with, trace_document
from tokenmill_shards.audit.trace import Tracer
from tokenmill_shards.open_samples import open_samples
from tokenmill_shards.packing.reader import PackedReader

SAMPLES = 700
"""More than four epochs of each source of `two_sources`."""


def by_reading(reader: MixtureReader | PackedReader, below: int) -> dict[Identity, list[int]]:
    """The samples of every document, found by looking at all samples."""
    found: dict[Identity, list[int]] = defaultdict(list)
    for index in range(below):
        for part in parts_of(reader, index):
            found[part.identity].append(index)
    return found


@pytest.mark.parametrize("below", [0, 1, 100, SAMPLES])
def test_every_sample_of_every_document_is_found(two_sources: MixtureReader, below: int) -> None:
    expected = by_reading(two_sources, below)
    seen = 0
    for stream in two_sources.training:
        for shard in range(stream.shard_offsets.size - 1):
            for number in range(stream.store.index(shard).num_documents):
                row = 10 + number
                query = Query(stream.name, f"{stream.name}/shard-{shard:05d}.jsonl:{row}")
                (document,) = find_documents([one.store for one in two_sources.training], query)
                assert (document.shard, document.number) == (shard, number)
                samples = samples_with(two_sources, document, below).samples
                assert samples == expected[stream.name, shard, number]
                seen += bool(samples)
    assert seen == len([identity for identity in expected if expected[identity]])


def test_a_document_without_a_sample_says_why(two_sources: MixtureReader) -> None:
    tracer, reasons = Tracer(two_sources, with_text=False), []
    expected = by_reading(two_sources, SAMPLES)
    for stream, held_out in zip(two_sources.training, two_sources.held_out, strict=True):
        for shard in range(stream.shard_offsets.size - 1):
            for number in held_out.documents(shard).numbers.tolist():
                query = Query(stream.name, f"{stream.name}/shard-{shard:05d}.jsonl:{10 + number}")
                rows, lines = trace_document(tracer, query, SAMPLES)
                assert rows == []
                assert (stream.name, shard, number) not in expected
                reasons += lines
    assert len(reasons) > 2
    assert all(reason.endswith(": held out: no sample") for reason in reasons)
    empty = trace_document(tracer, Query("code", "code/shard-00000.jsonl:12"), SAMPLES)
    assert empty == ([], ["code: code/shard-00000.jsonl, row 12: it has no tokens: no sample"])
    _, later = trace_document(tracer, Query("code", "code/shard-00000.jsonl:10"), 1)
    assert later == ["code: code/shard-00000.jsonl, row 10: in none of the first 1 samples"]


def test_an_id_that_stands_twice_means_both(two_sources: MixtureReader) -> None:
    """The fixture calls the first document of each shard `code-0`."""
    rows, _ = trace_document(Tracer(two_sources, with_text=False), Query("code", "code-0"), SAMPLES)
    expected = by_reading(two_sources, SAMPLES)
    wanted = sorted(expected["code", 0, 0] + expected["code", 1, 0])
    assert [row["sample"] for row in rows] == wanted
    assert {row["id"] for row in rows} == {"code-0"}


@pytest.mark.parametrize("method", ["concat", "best-fit"])
def test_a_document_that_no_packed_sequence_can_hold_says_why(
    two_sources: MixtureReader, prep: Callable[..., Any], tmp_path: Path, method: str
) -> None:
    arguments = ("--sequence-length", 16, "--tokens", 160, "--method", method, "--workers", 1)
    mixture = tmp_path / "mixture" / "manifest.json"
    assert prep("pack", mixture, *arguments, "--out", tmp_path / "packed").code == 0
    packed, unpacked = Tracer(open_samples(str(tmp_path / "packed"), None)), Tracer(two_sources)
    never = 0
    for stream in two_sources.training:
        for shard in range(stream.shard_offsets.size - 1):
            for number in range(stream.store.index(shard).num_documents):
                query = Query(stream.name, f"{stream.name}/shard-{shard:05d}.jsonl:{10 + number}")
                said = trace_document(packed, query, 10)[1]
                if any(line.endswith(": no sample") for line in said):
                    assert said == trace_document(unpacked, query, SAMPLES)[1]
                    never += 1
                else:
                    assert all(line.endswith("in none of the first 10 sequences") for line in said)
                    assert number in stream.documents(shard).numbers
    held_out = [
        s.documents(shard).numbers.size for s in two_sources.held_out for shard in range(s.shard_offsets.size - 1)
    ]
    assert never > sum(held_out) > 2


@pytest.mark.parametrize("method", ["concat", "best-fit"])
def test_a_document_is_found_in_packed_sequences(
    tokenize: Any, make_mixture: Any, prep: Callable[..., Any], tmp_path: Path, method: str
) -> None:
    texts = [f"The quick brown fox number {i} jumps. " * (1 + i % 7) for i in range(60)]
    mixture = make_mixture({"prose": (tokenize("prose", texts), 1)}, validation_share=0.1)
    arguments = ("--sequence-length", 24, "--tokens", 4000, "--method", method, "--workers", 1)
    assert prep("pack", mixture.url, *arguments, "--out", tmp_path / "packed").code == 0
    reader = open_samples(str(tmp_path / "packed"), 24)
    assert isinstance(reader, PackedReader)
    expected, found = by_reading(reader, reader.num_samples), 0
    for number in range(60):
        rows, reasons = trace_document(Tracer(reader), Query("prose", f"prose-{number}"), num_samples(reader, None))
        assert [row["sample"] for row in rows] == expected["prose", 0, number]
        assert bool(rows) != bool(reasons)
        found += bool(rows)
    assert found > 20


def test_the_command_lists_samples_as_json_and_ends_with_1_where_there_is_no_such_document(
    two_sources: MixtureReader, prep: Callable[..., Any], tmp_path: Path
) -> None:
    command = ("trace", tmp_path / "mixture" / "manifest.json", "--sequence-length", 16, "--document")
    expected = by_reading(two_sources, 500)["prose", 0, 0]
    for document in ("prose:prose/shard-00000.jsonl:10", "prose:prose-0"):
        done = prep(*command, document, "--tokens", 500 * 16, "--json")
        samples = [row["sample"] for row in json.loads(done.out) if row["shard"] == "shard-00000"]
        assert samples == expected
    for document, message in (
        ("prose:nothing", "source prose has no document with id 'nothing'; give it as the data has it\n"),
        ("prose:prose/shard-00000.jsonl:99", "and none in row 99 of file 'prose/shard-00000.jsonl'; name the file"),
        ("prose:shard-00000.jsonl:10", "named with its input before it: prose:prose/shard-00000.jsonl:10\n"),
        ("poetry:a", "there is no source 'poetry'; there are code, prose"),
    ):
        done = prep(*command, document)
        assert done.code == 1
        assert message in done.err


def test_one_pass_over_the_data_is_looked_through_if_nothing_is_said(two_sources: MixtureReader) -> None:
    tokens = sum(stream.num_tokens for stream in two_sources.training)
    assert num_samples(two_sources, None) == -(-tokens // 16)
    assert num_samples(two_sources, 33) == 3


@pytest.mark.parametrize("text", ["web", "web:", ":12"])
def test_what_names_no_document_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected SOURCE:FILE:ROW or SOURCE:ID"):
        Query.parse(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("web:raw/a.jsonl:12", ("raw/a.jsonl", 12)),
        ("web:doc-4", None),
        ("web:urn:x", None),
        ("web::12", None),
        (f"web:doc:{'9' * 20}", None),
    ],
)
def test_a_query_is_read_both_ways(text: str, place: tuple[str, int] | None) -> None:
    query = Query.parse(text)
    assert query.source == "web"
    assert query.file_and_row == place


def test_more_epochs_than_can_be_looked_through_are_refused(two_sources: MixtureReader) -> None:
    query = Query("prose", "prose/shard-00000.jsonl:10")
    with pytest.raises(InputError, match="ask for fewer tokens"):
        trace_document(Tracer(two_sources, with_text=False), query, 10**15)


def test_no_source_is_an_error(two_sources: MixtureReader) -> None:
    with pytest.raises(InputError, match="there is no source 'other'"):
        trace_document(Tracer(two_sources), Query("other", "x"), 10)
