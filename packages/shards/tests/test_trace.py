"""From a sample to the documents, the raw rows and the text that it is made of."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.http import HTTPFileSystem

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
from servers import WebServer

from tokenmill_core.mixture_manifest import FimTokens
from tokenmill_shards import MixtureReader
from tokenmill_shards.audit.parts import parts_of, tokens_of
from tokenmill_shards.audit.raw_paths import RawPaths, raw_paths
from tokenmill_shards.audit.trace import Tracer
from tokenmill_shards.open_samples import open_samples

LENGTH = 24
TEXTS = {
    "prose": [f"The quick brown fox number {i} jumps over the lazy dog. " * (1 + i % 5) for i in range(30)],
    "verse": [f"nobody's river {i} sleeps" for i in range(40)],
}


@pytest.fixture
def mixture(tokenize: Any, make_mixture: Any) -> Any:
    """Two sources of real text, some documents held out."""
    parts = {name: (tokenize(name, texts), weight) for (name, texts), weight in zip(TEXTS.items(), (3, 1), strict=True)}
    return make_mixture(parts, seed=3, validation_share=0.2)


def test_the_text_of_every_part_is_what_the_sample_was_trained_on(mixture: Any, codec: Any) -> None:
    reader = MixtureReader.open(mixture.url, LENGTH)
    for index in range(0, 150, 7):
        rows = Tracer(reader).samples([index])
        tokens = reader.samples(np.array([index])).tokens[0]
        assert [row["first_token"] for row in rows] == [0, *(row["last_token"] + 1 for row in rows[:-1])]
        assert rows[-1]["last_token"] == LENGTH
        assert [row["text"] for row in rows] == [
            codec.decode(tokens[row["first_token"] : row["last_token"] + 1]) for row in rows
        ]
        for row in rows:
            text = TEXTS[row["source"]][row["row"] - 1] + "<|endoftext|>"
            assert row["text"].strip("\ufffd") in text
            assert row["id"] == f"{row['source']}-{row['row'] - 1}"
        assert sum(row["counted"] for row in rows) == LENGTH


def test_the_raw_file_is_found_through_the_lineage_or_named(mixture: Any, tmp_path: Path) -> None:
    tracer = Tracer(MixtureReader.open(mixture.url, LENGTH))
    rows = tracer.samples(range(20))
    for row in rows:
        assert row["file"] == f"{row['source']}/{row['source']}.jsonl"
        assert row["path"] == str(tmp_path / f"{row['source']}.jsonl")
        line = Path(row["path"]).read_text().splitlines()[row["row"] - 1]
        assert json.loads(line)["id"] == row["id"]
    (tmp_path / "prose.jsonl").rename(tmp_path / "gone.jsonl")
    paths = {row["source"]: row["path"] for row in tracer.samples(range(20))}
    assert paths == {"prose": None, "verse": str(tmp_path / "verse.jsonl")}


@pytest.fixture
def served(tokenize: Any, prep: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a mixture on a web server that has the datasets, but not the raw files two folders above them."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    tokenize("prose", TEXTS["prose"], out="site/prose")
    done = prep("mix", f"prose={tmp_path}/site/prose", "--out", tmp_path / "site" / "mixture.json")
    assert done.code == 0, done.err
    with WebServer(tmp_path / "site") as server:
        yield f"{server.url}/mixture.json"
    HTTPFileSystem.clear_instance_cache()


@pytest.mark.parametrize("raw_is_another", [False, True])
def test_a_raw_file_that_lies_outside_the_server_has_no_path(
    served: str, prep: Callable[..., Any], tmp_path: Path, raw_is_another: bool
) -> None:
    if raw_is_another:
        (tmp_path / "site" / "prose.jsonl").write_text("of somebody else")
    arguments = ("--sample", 4, "--sequence-length", LENGTH)
    there = prep("trace", served, *arguments, "--json")
    assert there.code == 0, there.err
    here = json.loads(prep("trace", tmp_path / "site" / "mixture.json", *arguments, "--json").out)
    assert {row["path"] for row in here} == {str(tmp_path / "prose.jsonl")}
    assert json.loads(there.out) == [row | {"path": None} for row in here]


def test_a_server_that_does_not_say_whether_it_has_a_file_is_no_error(
    mixture: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = WebServer(tmp_path)
    down.down()
    monkeypatch.setattr("tokenmill_shards.audit.raw_paths.raw_url", lambda root, row: f"{down.url}/{row['path']}")
    reader = MixtureReader.open(mixture.url, LENGTH)
    assert {row["path"] for row in Tracer(reader).samples([4])} == {None}


def test_no_path_is_looked_for_where_none_is_shown(
    mixture: Any, prep: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    find = RawPaths.find
    monkeypatch.setattr(RawPaths, "find", lambda self, store, file: looked.append(file) or find(self, store, file))
    command = ("trace", mixture.url, "--sample", 4, "--sequence-length", LENGTH)
    assert prep(*command).code == prep(*command, "--text").code == 0
    assert looked == []
    assert all(row["path"] for row in json.loads(prep(*command, "--json").out))
    assert looked


def test_a_name_that_means_two_files_is_no_path(tokenize: Any, tmp_path: Path, prep: Callable[..., Any]) -> None:
    """Datasets made apart may each have a `part/a.jsonl`: once they are merged, nobody knows which is meant."""
    for folder, text in (("one", "first"), ("two", "second")):
        (tmp_path / folder / "part").mkdir(parents=True)
        (tmp_path / folder / "part" / "a.jsonl").write_text(json.dumps({"text": text}) + "\n")
    (tmp_path / "two" / "part" / "b.jsonl").write_text(json.dumps({"text": "third"}) + "\n")
    for folder in ("one", "two"):
        tokenize(folder, inputs=[tmp_path / folder / "part"])
    done = prep("merge", tmp_path / "one-tokens", tmp_path / "two-tokens", "--out", tmp_path / "merged")
    assert done.code == 0, done.err
    from tokenmill_core.manifest_io import load_manifest

    paths = raw_paths(load_manifest(str(tmp_path / "merged")))
    assert paths == {"part/a.jsonl": None, "part/b.jsonl": str(tmp_path / "two" / "part" / "b.jsonl")}


def test_a_rearranged_part_says_so_and_shows_the_documents_own_text(tokenize: Any, make_mixture: Any) -> None:
    mixture = make_mixture(
        {name: (tokenize(name, texts), 1) for name, texts in TEXTS.items()},
        sources={"prose": {"fim_rate": 0.5}},
        fim=FimTokens(prefix=400, middle=401, suffix=402),
    )
    reader = MixtureReader.open(mixture.url, LENGTH)
    rows = Tracer(reader).samples(range(100))
    rearranged = {source: [row for row in rows if row["source"] == source and row["rearranged"]] for source in TEXTS}
    assert rearranged["verse"] == []
    assert 10 < len(rearranged["prose"]) < len([row for row in rows if row["source"] == "prose"])
    for row in rows:
        trained = reader.samples(np.array([row["sample"]])).tokens[0][row["first_token"] : row["last_token"] + 1]
        assert row["rearranged"] == bool(np.isin(trained, [400, 401, 402]).any())
        assert row["text"].strip("\ufffd") in TEXTS[row["source"]][row["row"] - 1] + "<|endoftext|>"


@pytest.mark.parametrize("documents", [False, True])
def test_counted_is_the_number_of_labels_that_count(make_tokens: Any, make_mixture: Any, documents: bool) -> None:
    mixture = make_mixture({"a": (make_tokens("a", [[10, 3, 1, 40], [25, 30]]), 1)})
    reader = MixtureReader.open(mixture.url, 16, documents=documents)
    for index in range(12):
        rows = Tracer(reader, with_text=False).samples([index])
        counted = reader.samples(np.array([index])).counted
        assert sum(row["counted"] for row in rows) == (16 if counted is None else counted.sum())
        begun = [row for row in rows if row["first_token"]]
        lengths = [row["last_token"] - row["first_token"] + 1 for row in begun]
        assert [row["counted"] for row in begun] == [length - documents for length in lengths]
        assert "text" not in rows[0]


@pytest.mark.parametrize("method", ["concat", "best-fit"])
def test_a_packed_sample_is_traced_with_the_same_columns(
    mixture: Any, prep: Callable[..., Any], tmp_path: Path, codec: Any, method: str
) -> None:
    arguments = ("--sequence-length", LENGTH, "--tokens", 2000, "--method", method, "--workers", 1)
    done = prep("pack", mixture.url, *arguments, "--out", tmp_path / "packed")
    assert done.code == 0, done.err
    reader = open_samples(str(tmp_path / "packed"), None)
    assert reader.num_samples is not None
    rows = Tracer(reader).samples(range(reader.num_samples))
    unpacked = Tracer(MixtureReader.open(mixture.url, LENGTH)).samples(range(reader.num_samples))
    assert rows[0].keys() == unpacked[0].keys()
    if method == "concat":
        assert rows == unpacked
    samples = reader.samples(np.arange(reader.num_samples))
    for row in rows:
        tokens = samples.tokens[row["sample"], row["first_token"] : row["last_token"] + 1]
        assert row["text"] == codec.decode(tokens)
    counted = LENGTH * reader.num_samples if samples.counted is None else int(samples.counted.sum())
    assert sum(row["counted"] for row in rows) == counted


def test_packed_samples_are_named_as_far_as_they_know_where_the_mixture_is_gone(
    mixture: Any, prep: Callable[..., Any], tmp_path: Path
) -> None:
    arguments = ("--sequence-length", LENGTH, "--tokens", 2000, "--workers", 1)
    assert prep("pack", mixture.url, *arguments, "--out", tmp_path / "packed").code == 0
    Path(mixture.url).rename(tmp_path / "elsewhere.json")
    row = Tracer(open_samples(str(tmp_path / "packed"), None)).samples([3])[0]
    assert (row["source"] in TEXTS, row["file"], row["path"], row["text"]) == (True, None, None, None)


def test_parts_are_the_documents_of_the_shards(two_sources: MixtureReader) -> None:
    """Token i of a source has the id i, so that the parts can be told from the ids alone."""
    for index in range(0, 200, 3):
        tokens = two_sources.samples(np.array([index])).tokens[0]
        parts = parts_of(two_sources, index)
        assert np.concatenate([tokens_of(part, part.store) for part in parts if part.store]).tolist() == tokens.tolist()
        assert {part.source for part in parts} == {parts[0].source}


def test_the_command_shows_a_table_json_or_the_whole_text(mixture: Any, prep: Callable[..., Any]) -> None:
    command = ("trace", mixture.url, "--sample", 4, "--sequence-length", LENGTH)
    rows = json.loads(prep(*command, "--json").out)
    assert [row["sample"] for row in rows] == [4] * len(rows)
    table, whole, without = prep(*command).out, prep(*command, "--text").out, prep(*command, "--no-text").out
    for row in rows:
        assert all(row["id"] in text for text in (table, whole, without))
        assert row["text"] in whole
        assert row["text"].split()[0] in table
        assert row["text"].split()[0] not in without
    assert "text" not in json.loads(prep(*command, "--json", "--no-text").out)[0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--sequence-length", 24), 2, "say what to trace: --sample INDEX, or --document"),
        (("--sample", 1, "--document", "prose:1", "--sequence-length", 24), 2, "say what to trace"),
        (("--sample", 1), 1, "a mixture has samples of any sequence length; say which"),
        (("--sample", 1, "--sequence-length", 10**7), 1, "use a shorter sequence length"),
    ],
)
def test_the_command_says_what_it_needs(
    mixture: Any, prep: Callable[..., Any], arguments: tuple[object, ...], code: int, message: str
) -> None:
    done = prep("trace", mixture.url, *arguments)
    assert done.code == code
    assert message in done.err
