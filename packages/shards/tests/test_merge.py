"""Merging tokens datasets: documents in the order named, and only of one vocabulary."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tokenmill_core import storage
from tokenmill_core.build import build_stage
from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.lineage import trace_lineage
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, publish, verify_files
from tokenmill_shards import Shard, ShardStore, TokenStream
from tokenmill_shards.writing.merge import STAGE, MergeConfig

Tokenize = Callable[..., LoadedManifest[TokensManifest]]


@pytest.fixture
def merge(tmp_path: Path) -> Callable[..., LoadedManifest[TokensManifest]]:
    def run(*parts: LoadedManifest[Any], out: str = "merged", workers: int = 1) -> LoadedManifest[TokensManifest]:
        stage = STAGE.build(MergeConfig(), [part.folder for part in parts], None)
        return build_stage(stage, str(tmp_path / out), LocalExecutor(workers)).loaded

    return run


def texts_of(tokens: LoadedManifest[TokensManifest], codec: Any) -> list[str]:
    shards = [Shard(Path(tokens.folder) / name) for name in tokens.manifest.shards]
    return [codec.decode(s.document(n).tolist()[:-1]) for s in shards for n in range(s.num_documents)]


def read_all(tokens: LoadedManifest[TokensManifest]) -> list[int]:
    """The ids of the whole dataset, as its stream gives them."""
    stream = TokenStream.whole(ShardStore.open(tokens.url))
    ids = np.empty(stream.num_tokens, np.int64)
    stream.read_into(ids, 0)
    return ids.tolist()


def test_three_documents_none_and_two_are_five_in_order(
    tokenize: Tokenize, merge: Callable[..., Any], codec: Any
) -> None:
    a, empty, b = tokenize("a", ["one", "two", "three"]), tokenize("empty", []), tokenize("b", ["four", "five"])
    merged = merge(a, empty, b)
    assert texts_of(merged, codec) == ["one", "two", "three", "four", "five"]
    counts = merged.manifest.counts
    assert (counts.documents, counts.input_documents) == (5, 5)
    assert counts.tokens == a.manifest.counts.tokens + b.manifest.counts.tokens == len(read_all(merged))
    assert counts.bytes == len("onetwothreefourfive")
    verify_files(merged)
    places = [pq.read_table(Path(merged.folder) / f"{n}.documents.parquet") for n in merged.manifest.shards]
    assert [row["id"] for table in places for row in table.to_pylist()] == ["a-0", "a-1", "a-2", "b-0", "b-1"]
    assert texts_of(merge(b, empty, a, out="other"), codec) == ["four", "five", "one", "two", "three"]


def test_a_merged_set_is_read_like_its_parts_and_leads_to_them(tokenize: Tokenize, merge: Callable[..., Any]) -> None:
    a, b = tokenize("a", ["word " * 50]), tokenize("b", ["other " * 50])
    merged = merge(a, b, workers=2)
    assert read_all(merged) == read_all(a) + read_all(b)
    tree = trace_lineage(merged)
    assert [(child.name, child.problem) for child in tree.inputs] == [("a", ""), ("b", "")]
    assert storage.hash_file(merged.file_url("tokenizer.json"))[1] == a.manifest.tokenizer_sha256


def test_nothing_but_empty_sets_is_an_empty_set(tokenize: Tokenize, merge: Callable[..., Any]) -> None:
    merged = merge(tokenize("x", []), tokenize("y", []))
    assert (merged.manifest.shards, merged.manifest.counts.documents) == ((), 0)


def test_other_tokenizers_and_other_ends_are_refused_by_folder(
    tokenize: Tokenize, merge: Callable[..., Any], tmp_path: Path, wide_tokenizer: Callable[[int], Path]
) -> None:
    a = tokenize("a", ["one"])
    wide = tokenize("wide", ["w69998 w1"], tokenizer=str(wide_tokenizer(70_000)))
    assert (a.manifest.dtype, wide.manifest.dtype) == ("uint16", "int32")
    with pytest.raises(InputError, match=r"source '.*wide-tokens' has tokenizer .* but '.*a-tokens' has"):
        merge(a, wide)
    unclosed = tokenize("unclosed", ["one"], append_end_of_document=False)
    with pytest.raises(InputError, match=r"'.*unclosed-tokens' has end_of_document_id None"):
        merge(a, unclosed)
    assert not (tmp_path / "merged" / "manifest.json").exists()


def test_another_token_type_alone_is_refused(tokenize: Tokenize, merge: Callable[..., Any], tmp_path: Path) -> None:
    a, b = tokenize("a", ["one"]), tokenize("b", ["two"])
    wider = publish(b.manifest.model_copy(update={"dtype": "int32"}), b.folder)
    with pytest.raises(InputError, match=r"'.*b-tokens' has dtype int32, but '.*a-tokens' has uint16"):
        merge(a, wider)


def test_a_damaged_part_is_refused_and_nothing_is_published(
    tokenize: Tokenize, merge: Callable[..., Any], tmp_path: Path
) -> None:
    a, b = tokenize("a", ["one"]), tokenize("b", ["two"])
    path = Path(b.folder) / "shard-00000.bin"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(VerificationError, match=r"b-tokens/shard-00000\.bin: sha256"):
        merge(a, b)
    assert not (tmp_path / "merged" / "manifest.json").exists()


def test_nothing_to_merge_is_refused() -> None:
    with pytest.raises(InputError, match="no INPUT given"):
        STAGE.build(MergeConfig(), [], None)


def test_loss_masks_engines_and_carried_columns_are_merged_too(tokenize: Tokenize, merge: Callable[..., Any]) -> None:
    settings: dict[str, Any] = {"loss_mask": "m", "reader": {"carry": ("source",)}}
    settings |= {"prepend_beginning_of_document": True, "beginning_of_document": "<|endoftext|>"}
    rows = [{"text": "word " * 9, "m": [[0, 9]], "source": "s"}]
    a = tokenize("a", rows * 3, shard_bytes=50, **settings)
    b = tokenize("b", rows, engine="tokenizers", **settings)
    merged = merge(a, b).manifest
    assert (merged.loss_mask, merged.beginning_of_document_id) == (True, 0)
    parts = [(part, shard) for part in (a, b) for shard in part.manifest.shards]
    assert len(parts) == len(merged.shards) > 2
    for name, (part, shard) in zip(merged.shards, parts, strict=True):
        for suffix in (".bin", ".idx", ".documents.parquet", ".loss_mask.bin"):
            own, copy = (Path(folder) / f"{n}{suffix}" for folder, n in ((part.folder, shard), ("", name)))
            assert own.read_bytes() == (Path(part.folder).parent / "merged" / copy).read_bytes()
        assert merged.engines[name] == part.manifest.engines[shard]


def test_what_has_a_mask_or_a_beginning_is_not_merged_with_what_has_none(
    tokenize: Tokenize, merge: Callable[..., Any]
) -> None:
    plain = tokenize("plain", ["one"])
    masked = tokenize("masked", [{"text": "one", "m": True}], loss_mask="m")
    with pytest.raises(InputError, match=r"'.*masked-tokens' has loss_mask True, but '.*plain-tokens' has False"):
        merge(plain, masked)
    settings = {"prepend_beginning_of_document": True, "beginning_of_document": "<|endoftext|>"}
    with pytest.raises(InputError, match=r"'.*opened-tokens' has beginning_of_document_id 0, but"):
        merge(plain, tokenize("opened", ["one"], **settings))
