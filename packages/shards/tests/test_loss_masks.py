"""Loss masks: a token counts exactly where a byte of it lies in a span, whatever the characters."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from tokenmill_core.errors import InputError
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.verify import find_problems
from tokenmill_shards import Shard
from tokenmill_shards.writing.tokenize import TokenizeConfig
from tokenmill_tokenizer.decode import token_bytes

Tokenize = Callable[..., LoadedManifest[TokensManifest]]
Counted = list[tuple[list[int], list[int]]]
CHARACTERS = "ab the fox.é日👨\u200d\U0001f469\n"
FRUGAL = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def counted(tokens: LoadedManifest[TokensManifest]) -> Counted:
    """(ids, mask) of each document."""
    found = []
    for name in tokens.manifest.shards:
        shard = Shard(Path(tokens.folder) / name)
        mask = np.fromfile(Path(tokens.folder) / f"{name}.loss_mask.bin", np.uint8)
        assert mask.size == shard.num_tokens
        ends = shard.document_offsets[1:-1]
        pairs = zip(np.split(shard.tokens, ends), np.split(mask, ends), strict=True)
        found += [(ids.tolist(), own.tolist()) for ids, own in pairs]
    return found


def by_hand(text: str, spans: list[list[int]], tokens: list[bytes]) -> list[int]:
    """The mask of `tokens` of `text`, byte by byte."""
    counts = [
        any(start <= place < end for start, end in spans)
        for place, character in enumerate(text)
        for _ in character.encode()
    ]
    sizes = np.cumsum([0, *map(len, tokens)])
    assert sizes[-1] == len(counts)
    return [int(any(counts[a:b])) for a, b in pairwise(sizes)]


@pytest.fixture(scope="module")
def table(tokenizer: Path) -> list[bytes]:
    return token_bytes(Tokenizer.from_file(str(tokenizer / "tokenizer.json")))


@st.composite
def marked_texts(draw: st.DrawFn) -> tuple[str, list[list[int]]]:
    text = draw(st.text(CHARACTERS, min_size=1, max_size=40).filter(lambda text: not text.isspace()))
    places = st.integers(0, len(text))
    spans = draw(st.lists(st.tuples(places, places).map(sorted), max_size=4))
    return text, [list(span) for span in spans]


@FRUGAL
@given(documents=st.lists(marked_texts(), min_size=1, max_size=8))
def test_a_token_counts_where_any_of_its_bytes_does(
    tokenize: Tokenize, table: list[bytes], documents: list[tuple[str, list[list[int]]]]
) -> None:
    """Spans in any order, overlapping, empty or none; boundaries are ids of their own."""
    rows = [{"text": text, "answers": spans} for text, spans in documents]
    tokens = tokenize("masked", rows, loss_mask="answers", shard_bytes=60)
    for (text, spans), (ids, mask) in zip(documents, counted(tokens), strict=True):
        expected = by_hand(text, spans, [table[id] for id in ids[:-1]])
        assert mask == [*expected, expected[-1]]


def test_half_a_character_in_a_token_is_enough(tokenize: Tokenize, table: list[bytes]) -> None:
    tokens = tokenize("emoji", [{"text": "a👩b", "m": [[1, 2]]}], loss_mask="m")
    ((ids, mask),) = counted(tokens)
    assert len(ids) > 4, "the tokenizer cuts the emoji"
    assert [table[id] for id, counts in zip(ids, mask, strict=True) if counts] == [bytes([b]) for b in "👩".encode()]


def test_true_and_false_stand_for_all_and_nothing_and_only_the_beginning_never_counts(tokenize: Tokenize) -> None:
    rows = [{"text": "all of it", "m": True}, {"text": "none", "m": False}, {"text": "none", "m": []}]
    settings = {"prepend_beginning_of_document": True, "beginning_of_document": "<|endoftext|>"}
    tokens = tokenize("whole", rows, loss_mask="m", **settings)
    everything, *nothing = counted(tokens)
    assert everything[1] == [0] + [1] * (len(everything[0]) - 1)
    assert all(not any(mask) for _, mask in nothing)
    assert tokens.manifest.loss_mask
    assert tokens.manifest.beginning_of_document_id == 0


def test_masks_are_read_from_columns_of_any_table(tokenize: Tokenize, tmp_path: Path) -> None:
    texts = ["one two", "three"]
    columns = {
        "lists": pa.array([[[0, 3]], []], pa.list_(pa.list_(pa.int64()))),
        "booleans": pa.array([True, False]),
        "texts": pa.array(["[[0, 3]]", " false "]),
    }
    pq.write_table(pa.table({"text": texts, **columns}), tmp_path / "t.parquet")
    masks = {
        name: counted(tokenize("t", inputs=[tmp_path / "t.parquet"], out=name, loss_mask=name)) for name in columns
    }
    assert masks["lists"] == masks["texts"]
    assert masks["lists"][0][1][0] == 1
    assert masks["lists"][0][1][-1] == 0
    assert set(masks["booleans"][0][1]) == {1}


BAD: dict[str, list[Any]] = {
    "missing_loss_mask": [None],
    "invalid_loss_mask": ["[[0,", 3, 1.5, {}, [0, 3], [[0]], [[0, 1, 2]], [[0, "1"]], [[True, 1]], [[0, 1.0]], "yes"],
    "loss_mask_out_of_range": [[[-1, 2]], [[0, 5]], [[3, 2]], [[5, 5]], [[0, 1 << 62]]],
}


@pytest.mark.parametrize(("reason", "value"), [(reason, value) for reason, values in BAD.items() for value in values])
def test_a_mask_that_says_nothing_costs_its_document_alone(tokenize: Tokenize, reason: str, value: Any) -> None:
    """The text has four characters in six bytes."""
    rows = [{"text": "good", "m": [[0, 4]]}, {"text": "béèd", "m": value}, {"text": "fine", "m": [[4, 4]]}]
    tokens = tokenize("bad", rows, loss_mask="m")
    assert [(row.reason, row.documents, row.bytes) for row in tokens.manifest.ledger] == [(reason, 1, 6)]
    assert tokens.manifest.counts.input_documents == tokens.manifest.counts.documents + 1
    assert [any(mask) for _, mask in counted(tokens)] == [True, False]
    (reject,) = [json.loads(line) for line in Path(tokens.file_url("rejects.jsonl")).read_text().splitlines()]
    assert (reject["file"], reject["row"], reject["reason"], reject["bytes"]) == ("bad/bad.jsonl", 2, reason, 6)
    with pytest.raises(InputError, match=rf"bad/bad\.jsonl:2: {reason}, at .*leave out --strict"):
        tokenize("bad", rows, loss_mask="m", reader={"strict": True}, out="strict")


def test_a_column_that_no_document_has_is_refused(tokenize: Tokenize, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--loss-mask answer: no document has a value there"):
        tokenize("a", [{"text": "one", "answers": True}], loss_mask="answer")
    assert not (tmp_path / "a-tokens" / "manifest.json").exists()
    assert tokenize("empty", [], loss_mask="answer").manifest.shards == ()


@pytest.mark.parametrize("name", ["text", "id", "row", ""])
def test_a_column_with_another_purpose_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot hold loss masks"):
        TokenizeConfig(tokenizer="t", loss_mask=name)


def test_the_column_is_kept_only_when_it_is_carried(tokenize: Tokenize) -> None:
    rows = [{"text": "one", "m": [[0, 1]], "source": "x"}]
    for carry, kept in ((("source",), ["source"]), (("m", "source"), ["m", "source"])):
        tokens = tokenize("a", rows, loss_mask="m", reader={"carry": carry}, out="-".join(carry))
        columns = pq.read_schema(tokens.file_url("shard-00000.documents.parquet")).names
        assert columns == ["file", "row", "id", "hash", *kept]


def byte_level(**parts: Any) -> Tokenizer:
    made = Tokenizer(models.BPE({letter: n for n, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["</s>"])
    for name, part in parts.items():
        setattr(made, name, part)
    return made


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"pre_tokenizer": pre_tokenizers.Whitespace()}, "is no byte-level BPE"),
        ({"normalizer": normalizers.NFC()}, r"changes the text first \(normalizer NFC\)"),
        ({"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)}, "puts a space before the text"),
    ],
)
def test_a_tokenizer_that_changes_texts_is_refused_at_the_start(
    tokenize: Tokenize, tmp_path: Path, parts: dict[str, Any], problem: str
) -> None:
    byte_level(**parts).save(str(tmp_path / "other.json"))
    rows = [{"text": "one", "m": True}]
    with pytest.raises(InputError, match=rf"other\.json: this tokenizer {problem}.*leave out --loss-mask"):
        tokenize("a", rows, loss_mask="m", tokenizer=str(tmp_path / "other.json"))
    assert not (tmp_path / "a-tokens").exists()


def test_special_tokens_in_texts_count_by_their_text(tokenize: Tokenize, tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "bytes.json"))
    rows = [{"text": "a</s>b", "m": [[5, 6]]}, {"text": "a</s>b", "m": [[4, 5]]}]
    arguments = {"loss_mask": "m", "tokenizer": str(tmp_path / "bytes.json"), "append_end_of_document": False}
    allowed = tokenize("a", rows, allow_special=True, **arguments)
    assert [mask for _, mask in counted(allowed)] == [[0, 0, 1], [0, 1, 0]]
    plain = tokenize("a", rows, out="plain", **arguments)
    assert [mask for _, mask in counted(plain)] == [[0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 0]]


def test_an_added_token_that_takes_spaces_along_is_found_out(tokenize: Tokenize, tmp_path: Path) -> None:
    made = byte_level()
    made.add_tokens([AddedToken("X", lstrip=True)])
    made.save(str(tmp_path / "strips.json"))
    with pytest.raises(InputError, match=r"the tokens of 'a X' are not the bytes of that text"):
        tokenize("a", [{"text": "a X", "m": True}], loss_mask="m", tokenizer=str(tmp_path / "strips.json"))


def test_damage_to_a_mask_is_found(tokenize: Tokenize) -> None:
    tokens = tokenize("a", [{"text": "one two", "m": True}], loss_mask="m")
    path = Path(tokens.file_url("shard-00000.loss_mask.bin"))
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    assert any("shard-00000.loss_mask.bin" in problem for problem in find_problems(tokens))


def test_no_mask_is_written_unless_asked_for(tokenize: Tokenize) -> None:
    without = tokenize("a", [{"text": "one", "m": True}])
    assert not without.manifest.loss_mask
    assert not any("loss_mask" in entry.path for entry in without.manifest.files)
