"""What a manifest may say, and what its digest depends on."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tokenmill_core.manifest import (
    Counts,
    DocumentsManifest,
    FileEntry,
    InputRef,
    Kind,
    LedgerRow,
    StageRef,
    TokensManifest,
    canonical_json,
    recordable,
    sha256_of_json,
)
from tokenmill_core.manifest_kinds import MANIFEST_ADAPTER, Manifest
from tokenmill_core.mixture_manifest import MixtureManifest, MixtureSource, MixtureStage

HASH = "ab" * 32


def ref(**changes):
    return InputRef(**{"kind": Kind.RAW, "name": "en", "version": "", "digest": HASH, "path": "../en"} | changes)


def documents(**changes):
    fields = {
        "name": "clean",
        "stage": StageRef(name="clean", version=1),
        "inputs": (ref(),),
        "config": {"min_words": 3, "reader": {"text_field": "text"}},
        "files": (FileEntry(path="part-0.parquet", bytes=10, sha256=HASH, documents=2),),
        "counts": Counts(input_documents=3, input_bytes=9, documents=2, bytes=7),
        "ledger": (LedgerRow(reason="short", documents=1, bytes=2),),
        "notes": {"blank_lines": 1},
        "tools": {"python": "3.11"},
    }
    return DocumentsManifest(**fields | changes)


def tokens(**changes):
    fields = {
        "name": "t",
        "stage": StageRef(name="tokenize", version=1),
        "config": {},
        "dtype": "uint16",
        "vocab_size": 9,
        "tokenizer_sha256": HASH,
        "end_of_document_id": None,
        "shards": (),
    }
    return TokensManifest(**fields | changes)


def test_a_manifest_cannot_be_changed():
    manifest = documents()
    with pytest.raises(ValidationError, match="frozen"):
        manifest.name = "other"
    with pytest.raises(ValidationError, match="frozen"):
        manifest.files[0].bytes = 5


def test_unknown_keys_are_refused_at_every_depth():
    for broken in (
        {"surprise": 1},
        {"counts": {"surprise": 1}},
        {"files": [{"path": "a", "bytes": 1, "sha256": HASH, "surprise": 1}]},
        {"stage": {"name": "clean", "version": 1, "surprise": 1}},
    ):
        with pytest.raises(ValidationError, match="surprise"):
            documents(**broken)


@pytest.mark.parametrize(
    "same",
    [
        {"tools": {"python": "3.14", "numpy": "2"}},
        {"digest": "00" * 32},
        {"inputs": (ref(path="s3://elsewhere/en"),)},
        {"config": {"reader": {"text_field": "text"}, "min_words": 3}},
    ],
)
def test_the_digest_leaves_out_tools_places_and_the_order_of_keys(same):
    assert documents(**same).compute_digest() == documents().compute_digest()


@pytest.mark.parametrize(
    "other",
    [
        {"name": "clean2"},
        {"version": "2"},
        {"stage": StageRef(name="clean", version=2)},
        {"inputs": ()},
        {"inputs": (ref(digest="cd" * 32),)},
        {"inputs": (ref(name="de"),)},
        {"config": {"min_words": 4, "reader": {"text_field": "text"}}},
        {"config": {"min_words": 3.0, "reader": {"text_field": "text"}}},
        {"files": ()},
        {"files": (FileEntry(path="part-0.parquet", bytes=10, sha256="cd" * 32, documents=2),)},
        {"counts": Counts(input_documents=3, input_bytes=9, documents=2, bytes=7, tokens=1)},
        {"ledger": (LedgerRow(reason="long", documents=1, bytes=2),)},
        {"notes": {}},
    ],
)
def test_the_digest_covers_all_else(other):
    assert documents(**other).compute_digest() != documents().compute_digest()


@pytest.mark.parametrize(
    ("counts", "unit"),
    [
        ({"input_documents": 4, "input_bytes": 9, "documents": 2, "bytes": 7}, "4 documents came in, 2 .* 1 dropped"),
        ({"input_documents": 3, "input_bytes": 10, "documents": 2, "bytes": 7}, "10 bytes came in, 7 .* 2 dropped"),
    ],
)
def test_a_ledger_that_does_not_balance_is_refused(counts, unit):
    with pytest.raises(ValidationError, match=unit):
        documents(counts=counts)


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "a/../../x", "a/..", "/etc/passwd", "..", "", ".", "s3://bucket/x", "file:x"),
        *("C:/x", "C:x", "a\\..\\x", "\\\\host\\x", "a\0b"),
    ],
)
def test_paths_that_leave_the_folder_are_refused(path):
    with pytest.raises(ValidationError, match="leaves the manifest's folder"):
        FileEntry(path=path, bytes=1, sha256=HASH)


@pytest.mark.parametrize("path", ["a", "a/b.c", "..a", "ü [x] 1", "a/b:c"])
def test_paths_inside_are_taken(path):
    assert FileEntry(path=path, bytes=1, sha256=HASH).path == path


def test_a_file_listed_twice_is_refused():
    with pytest.raises(ValidationError, match=r"'part-0\.parquet' is listed twice"):
        documents(files=documents().files * 2)


def test_a_hash_is_a_hash_and_a_count_is_not_negative():
    for broken in ({"sha256": "AB" * 32}, {"sha256": "ab"}, {"bytes": -1}):
        with pytest.raises(ValidationError):
            FileEntry(**{"path": "a", "bytes": 1, "sha256": HASH} | broken)


def test_every_kind_but_raw_has_a_manifest():
    kinds = {model.model_fields["kind"].default for model in get_args(Manifest)}
    assert kinds == set(Kind) - {Kind.RAW}


def test_infinities_are_recorded_as_text_that_a_float_setting_reads_back():
    manifest = documents(config={"a": float("inf"), "b": [float("-inf"), {"c": float("nan")}], "d": 1.5})
    assert manifest.config == {"a": "inf", "b": ["-inf", {"c": "nan"}], "d": 1.5}
    assert MANIFEST_ADAPTER.validate_json(manifest.sealed().model_dump_json()).digest == manifest.compute_digest()
    assert float(recordable(float("inf"))) == float("inf")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_any_config_survives_the_disk_with_its_digest(config):
    sealed = documents(config=config).sealed()
    read = MANIFEST_ADAPTER.validate_python(json.loads(sealed.model_dump_json(indent=2)))
    assert read == sealed
    assert read.compute_digest() == read.digest == sealed.digest


def test_canonical_json_is_one_text_for_one_value():
    assert canonical_json({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'.encode()
    assert sha256_of_json({"a": 1, "b": 2}) == sha256_of_json({"b": 2, "a": 1})


def mixture(**changes):
    source = MixtureSource(name="a", input=0, documents=1, tokens=9, shard_tokens=(4, 5))
    fields = {
        "name": "m",
        "stage": StageRef(name="mix", version=1),
        "config": {},
        "inputs": (ref(kind=Kind.TOKENS),),
        "sources": (source,),
        "stages": (MixtureStage(name="s", first_token=0, weights=(3,)),),
        "denominator": 3,
        "seed": 0,
        "dtype": "uint16",
        "vocab_size": 9,
        "padded_vocab_size": 9,
        "tokenizer_sha256": HASH,
        "end_of_document_id": None,
    }
    return MixtureManifest(**fields | changes)


def test_a_mixture_whose_sources_do_not_hang_together_is_refused():
    source, stage = mixture().sources[0], mixture().stages[0]
    for broken, message in (
        ({"sources": ()}, "there must be one"),
        ({"sources": (source, source)}, "a name of its own"),
        ({"sources": (source.model_copy(update={"input": 9}),)}, "beyond the 1 inputs"),
        ({"sources": (source.model_copy(update={"fim_rate": 0.5}),)}, "a source has a fim_rate"),
        ({"denominator": 4}, "one a source and sum to 4"),
        ({"stages": ()}, "the first must begin at token 0"),
        ({"stages": (stage.model_copy(update={"first_token": 5}),)}, "the first must begin at token 0"),
        ({"stages": (stage, stage)}, "each later one after it"),
        ({"stages": (stage.model_copy(update={"weights": (1, 2)}),)}, "one a source and sum to 3"),
    ):
        with pytest.raises(ValidationError, match=message):
            mixture(**broken)


def test_a_source_whose_shards_do_not_sum_up_is_refused():
    fields = {"name": "a", "input": 0, "documents": 1, "tokens": 9, "shard_tokens": (4, 5)}
    source = MixtureSource(**fields, held_out_tokens=(1, 2))
    assert (source.num_held_out_tokens, source.training_tokens) == (3, 6)
    for broken, message in (
        ({"tokens": 8}, "do not sum to its 8 tokens"),
        ({"held_out_tokens": (1,)}, "one number a shard"),
        ({"held_out_tokens": (5, 0)}, "more tokens than it has"),
    ):
        with pytest.raises(ValidationError, match=message):
            MixtureSource(**fields | broken)
