"""What `prep verify` finds in packed sequences whose checksums are right: in themselves, and beside their mixture."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tokenmill_core import storage
from tokenmill_core.build import build_stage
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest_io import LoadedManifest, publish
from tokenmill_core.mixture_manifest import FimTokens, PackedManifest
from tokenmill_core.verify import Checked, find_problems
from tokenmill_shards.packing.pack import STAGE as PACK
from tokenmill_shards.packing.pack import Method, PackConfig

Change = Callable[[Path], None]
Column = NDArray[Any]
LENGTH = 16
METHODS = ["concat", "best-fit"]


@pytest.fixture
def packed(
    tokenize: Callable[..., Any], make_mixture: Callable[..., Any], tmp_path: Path
) -> Callable[..., LoadedManifest[PackedManifest]]:
    """packed(method): some shards of two sources, one with loss masks and one filled in the middle."""

    def run(method: str) -> LoadedManifest[PackedManifest]:
        short = tokenize("short", [f"note {i}" for i in range(40)])
        texts = ["A tale that goes on and on. " * (i % 5) + f"End {i}." for i in range(40)]
        rows = [{"text": text, "m": [[0, 4]]} for text in texts]
        parts = {"short": (short, 1), "long": (tokenize("long", rows, loss_mask="m"), 3)}
        fim = FimTokens(prefix=1, middle=2, suffix=3)
        mixture = make_mixture(parts, validation_share=0.2, fim=fim, sources={"short": {"fim_rate": 0.7}})
        config = PackConfig(sequence_length=LENGTH, tokens=200 * LENGTH, method=Method(method), shard_bytes=2_500)
        return build_stage(PACK.build(config, [mixture.url], None), str(tmp_path / "packed"), LocalExecutor(1)).loaded

    return run


def vouched(packed: LoadedManifest[PackedManifest], **fields: Any) -> LoadedManifest[PackedManifest]:
    """The dataset as it lies there now, with a manifest that vouches for the files that are left."""
    files = []
    for old in packed.manifest.files:
        if storage.exists(packed.file_url(old.path)):
            num_bytes, sha256 = storage.hash_file(packed.file_url(old.path))
            files.append(old.model_copy(update={"bytes": num_bytes, "sha256": sha256}))
    changes = {"files": tuple(files)} | fields
    return publish(packed.manifest.model_copy(update=changes), packed.folder)


def set_column(name: str, edit: Callable[[Column], Column]) -> Change:
    """`edit` the column of the pieces that are no padding."""

    def change(folder: Path) -> None:
        path = folder / "shard-00000.pieces.parquet"
        table = pq.read_table(path)
        place, held = table.schema.get_field_index(name), table.column("source").is_valid().to_numpy()
        column = table.column(name).fill_null(-1).to_numpy().copy()
        column[held] = edit(column[held])
        array = pa.array(column, pa.int32(), mask=~held if name == "source" else None)
        pq.write_table(table.set_column(place, table.schema.field(name), array), path)

    return change


def spoil_pieces(folder: Path) -> None:
    (folder / "shard-00000.pieces.parquet").write_bytes(b"garbage")


def forget_pieces(folder: Path) -> None:
    (folder / "shard-00000.pieces.parquet").unlink()


def flip_masks(folder: Path) -> None:
    """Of labels that are no padding."""
    mask = np.memmap(folder / "shard-00000.loss_mask.bin", np.uint8, "r+")
    mask[1] = 1 - mask[1]
    mask.flush()


def set_token(folder: Path) -> None:
    tokens = np.memmap(folder / "shard-00000.bin", np.uint16, "r+")
    tokens[3] = (tokens[3] + 1) % 300
    tokens.flush()


DAMAGE: dict[str, tuple[Change, str]] = {
    "no table": (spoil_pieces, "shard-00000.pieces.parquet: its pieces cannot be read"),
    "not listed": (forget_pieces, "names the shard shard-00000, but lists no file shard-00000.pieces.parquet"),
    "source below": (set_column("source", lambda x: x - 5), "has source -[45], of 2 sources"),
    "source above": (set_column("source", lambda x: x + 77), "has source 7[78], of 2 sources"),
    "document below": (set_column("document", lambda x: -x - 5), "has document -.*, which cannot be"),
    "first token below": (set_column("first_token", lambda x: x - 99), "has first_token -.*, which cannot be"),
    "epoch": (set_column("epoch", lambda x: x + 7), "epoch 7 of source number 0, but the epoch before it is -1"),
    "document": (
        set_column("document", lambda x: x + 1_000),
        "of document 1.* of source '.*', where training has none",
    ),
    "shard": (set_column("shard", lambda x: x + 9), r"in shard 9 of source '(short|long)', where training has none"),
    "past its end": (set_column("first_token", lambda x: x + 5_000 * (x > 0)), "tokens 5,0.*, where training has none"),
    "token": (set_token, "shard-00000: sequence 0 has other tokens than its pieces have in the sources, 1 places"),
    "mask": (flip_masks, "shard-00000: sequence 0 has other loss masks than its pieces have in the sources, 1 places"),
}


@pytest.mark.parametrize("method", METHODS)
def test_what_packing_wrote_has_no_problem(packed: Callable[..., Any], method: str) -> None:
    loaded, checked = packed(method), Checked()
    assert len(loaded.manifest.shards) > 1
    assert find_problems(loaded, checked=checked) == []
    assert (checked.tokens, checked.notes) == (loaded.manifest.counts.tokens, [])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("what", DAMAGE)
def test_content_that_its_checksum_vouches_for_is_named(packed: Callable[..., Any], method: str, what: str) -> None:
    loaded, (change, message) = packed(method), DAMAGE[what]
    change(Path(loaded.folder))
    (problem,) = find_problems(vouched(loaded))
    assert re.search(message, problem), problem


@pytest.mark.parametrize("method", METHODS)
def test_a_damaged_shard_does_not_hide_the_next(packed: Callable[..., Any], method: str) -> None:
    loaded = packed(method)
    spoil_pieces(Path(loaded.folder))
    (Path(loaded.folder) / "shard-00001.pieces.parquet").write_bytes(b"garbage")
    assert len(find_problems(vouched(loaded))) == 2


def test_windows_of_other_samples_are_named(packed: Callable[..., Any]) -> None:
    """Two sequences change places with all that belongs to them: each is still what its pieces say."""
    loaded = packed("concat")
    path = Path(loaded.folder) / "shard-00000.pieces.parquet"
    table = pq.read_table(path)
    sequence = (np.cumsum(table.column("num_tokens").to_numpy()) - 1) // (LENGTH + 1)
    whole = np.flatnonzero(table.column("num_tokens").to_numpy() == LENGTH + 1)  # of one piece, so the index stays
    rows, one, other = np.arange(table.num_rows), whole[0], whole[1]
    assert table.slice(one, 1) != table.slice(other, 1)
    rows[[one, other]] = other, one
    pq.write_table(table.take(rows), path)
    for suffix, dtype in ((".bin", np.uint16), (".loss_mask.bin", np.uint8)):
        stored = np.fromfile(loaded.file_url(f"shard-00000{suffix}"), dtype).reshape(-1, LENGTH + 1)
        stored[sequence[[one, other]]] = stored[sequence[[other, one]]]
        stored.tofile(loaded.file_url(f"shard-00000{suffix}"))
    (problem,) = find_problems(vouched(loaded))
    assert f"sequence {sequence[one]} is not sample {sequence[one]}; pack again" in problem


def reverse(loaded: LoadedManifest[PackedManifest], *names: str) -> dict[str, Any]:
    return {name: getattr(loaded.manifest, name)[::-1] for name in names}


FORGED: dict[str, tuple[Callable[[LoadedManifest[PackedManifest]], dict[str, Any]], str]] = {
    "counts": (lambda p: {"counts": p.manifest.counts.model_copy(update={"tokens": 5})}, "counts.tokens is 5, but its"),
    "sequences": (
        lambda p: {"notes": p.manifest.notes | {"sequences": 5}},
        "notes.sequences is 5, but its shards have",
    ),
    "notes": (lambda p: {"notes": p.manifest.notes | {"pieces": 5}}, "notes.pieces is 5, but its pieces give"),
    "shards": (lambda p: reverse(p, "shards", "shard_samples", "shard_source_tokens"), "not stand in the order"),
    "list of shards": (lambda p: {"shard_samples": p.manifest.shard_samples[1:]}, "each needs one a shard"),
    "list of sources": (lambda p: {"epoch_tokens": (5,)}, "epoch_tokens has 1 entries, but 2 sources"),
    "method": (lambda p: {"config": p.manifest.config | {"method": "x"}}, "config: method: Input should be"),
    "length": (
        lambda p: {"config": p.manifest.config | {"sequence_length": 9, "method": "best-fit"}},
        "sequence_length 16, but its config asks for 9",
    ),
    "no masks": (lambda p: {"loss_mask": False}, "it lists the file shard-00000.loss_mask.bin, but names no shard"),
    "inputs": (lambda p: {"inputs": ()}, "inputs are none, but it needs one mixture"),
    "sources": (lambda p: reverse(p, "sources"), r"sources is \('long', 'short'\), but the mixture gives"),
    "epoch_tokens": (lambda p: {"epoch_tokens": (5, 6)}, r"epoch_tokens is \(5, 6\), but the mixture gives"),
    "vocab_size": (lambda p: {"vocab_size": 60_001}, "vocab_size is 60001, but the mixture gives 60000"),
    "tokenizer": (
        lambda p: {"tokenizer_sha256": "1" * 64},
        "tokenizer_sha256 is 111111111111…, but its tokenizer.json",
    ),
    "padding": (lambda p: {"padding_id": 5}, "padding_id is 5, but the mixture gives 0"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_manifest_that_does_not_fit_is_named(packed: Callable[..., Any], what: str) -> None:
    loaded, (fields, message) = packed("concat"), FORGED[what]
    found = find_problems(vouched(loaded, **fields(loaded)))
    assert any(re.search(message, problem) for problem in found), found


def test_without_the_mixture_the_rest_is_checked_and_it_is_said(packed: Callable[..., Any], tmp_path: Path) -> None:
    loaded, checked = packed("best-fit"), Checked()
    shutil.rmtree(tmp_path / "long-tokens")
    assert find_problems(loaded, checked=checked) == []
    (note,) = checked.notes
    assert "not compared with what it was packed from: " in note
    spoil_pieces(Path(loaded.folder))
    (problem,) = find_problems(vouched(loaded))
    assert "its pieces cannot be read" in problem
