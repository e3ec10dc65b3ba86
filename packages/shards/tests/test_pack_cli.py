"""`prep pack` as it is typed, and `prep verify` of what it wrote."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill_core.manifest_io import LoadedManifest, load_manifest
from tokenmill_core.mixture_manifest import MixtureManifest, PackedManifest
from tokenmill_core.verify import Checked
from tokenmill_shards import Shard
from tokenmill_shards.packing.check import check_packed

LENGTH = 32


@pytest.fixture
def mixture(tokenize: Callable[..., Any], make_mixture: Callable[..., Any]) -> LoadedManifest[MixtureManifest]:
    short = tokenize("short", [f"note {i}" for i in range(60)])
    long = tokenize("long", ["A tale that goes on and on. " * (i % 9) + "End." for i in range(60)])
    mixed: LoadedManifest[MixtureManifest] = make_mixture({"short": (short, 1), "long": (long, 3)})
    return mixed


def test_packed_said_and_up_to_date(mixture: LoadedManifest[Any], tmp_path: Path, prep: Callable[..., Any]) -> None:
    command = ("pack", mixture.url, "--sequence-length", LENGTH, "--tokens", "3k", "--method", "best-fit")
    command += ("--shard-size", "2kB", "--workers", 1, "--out", tmp_path / "packed")
    said = prep(*command)
    assert said.code == 0, said.err
    assert "noted" not in said.out
    shown = [tuple(cell.strip() for cell in line.split("│")[1:3]) for line in said.out.splitlines() if "│" in line]
    again = prep(*command, "--json")
    report = json.loads(again.out)
    assert report["up_to_date"] is True
    notes, stored = report["notes"], report["counts"]["tokens"]
    for what, count in (
        ("sequences", notes["sequences"]),
        ("documents drawn", notes["documents"]),
        ("documents cut though they fit", 0),
        ("documents cut because too long", notes["documents_cut_too_long"]),
        ("tokens of padding", notes["padding_tokens"]),
        ("tokens lost", 0),
    ):
        assert (what, f"{count:,}") in shown
    assert ("fill rate", f"{report['fill_rate']:.4%}") in shown
    assert len([what for what, _ in shown]) >= len(notes) + 1
    assert report["fill_rate"] == pytest.approx(1 - notes["padding_tokens"] / stored)
    assert [row["name"] for row in report["table"]] == ["short", "long"]
    assert sum(row["share"] for row in report["table"]) == pytest.approx(1)
    assert len(report["shards"]) > 1
    assert prep("verify", tmp_path / "packed").code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sequence-length", 32), "tokens: this setting is required"),
        (("--tokens", "3k"), "sequence_length: this setting is required"),
        (("--sequence-length", 32, "--tokens", "many"), "expected a number such as 300M, 10B or 1.5T"),
        (("--sequence-length", 100_000, "--tokens", "3k"), "needs at least 100,001"),
        (("--sequence-length", 32, "--tokens", "1e18"), "pack fewer tokens, or larger shards"),
    ],
)
def test_what_cannot_be_packed(
    mixture: LoadedManifest[Any], tmp_path: Path, prep: Callable[..., Any], options: tuple[object, ...], message: str
) -> None:
    outcome = prep("pack", mixture.url, *options, "--out", tmp_path / "packed")
    assert outcome.code in (1, 2)
    assert message in outcome.err
    assert not (tmp_path / "packed").exists()


def _set_token(folder: Path, value: int) -> None:
    tokens = np.memmap(folder / "shard-00000.bin", np.uint16, "r+")
    tokens[LENGTH] = value
    tokens.flush()


def _set_padding(folder: Path, value: int) -> None:
    lengths, ends = Shard(folder / "shard-00000").lengths, np.cumsum(Shard(folder / "shard-00000").lengths)
    padding = pq.read_table(folder / "shard-00000.pieces.parquet").column("source").is_null().to_numpy()
    assert padding.any()
    tokens = np.memmap(folder / "shard-00000.bin", np.uint16, "r+")
    tokens[(ends - lengths)[padding][0]] = value
    tokens.flush()


def _swap_sources(folder: Path, value: int) -> None:
    path = folder / "shard-00000.pieces.parquet"
    table = pq.read_table(path)
    sources = [None if source is None else value - source for source in table.column("source").to_pylist()]
    pq.write_table(table.set_column(0, table.schema.field(0), pa.array(sources, pa.int32())), path)


@pytest.mark.parametrize(
    ("damage", "value", "message"),
    [
        (_set_token, 65_000, "to 65000 of"),
        (_set_padding, 7, "padding that is not the id"),
        (_swap_sources, 1, "its sources give"),
    ],
)
def test_checks_find_what_checksums_do_not(
    mixture: LoadedManifest[Any],
    tmp_path: Path,
    prep: Callable[..., Any],
    damage: Callable[[Path, int], None],
    value: int,
    message: str,
) -> None:
    """The content alone is checked here, as if a faulty writer had hashed what it wrote."""
    command = ("pack", mixture.url, "--sequence-length", LENGTH, "--tokens", "3k", "--method", "best-fit")
    assert prep(*command, "--workers", 1, "--out", tmp_path / "packed").code == 0
    loaded, checked = load_manifest(str(tmp_path / "packed"), PackedManifest), Checked()
    assert list(check_packed(loaded, checked)) == []
    assert checked.tokens == loaded.manifest.counts.tokens
    damage(tmp_path / "packed", value)
    problems = list(check_packed(loaded, Checked()))
    assert len(problems) == 1
    assert message in problems[0]
