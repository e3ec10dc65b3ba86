"""The clean stage as a whole: what stays, what goes and why, and that nothing else decides it."""

import gzip
import itertools
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenmill_core.build import build_stage
from tokenmill_core.errors import InputError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest_io import load_manifest, verify_files
from tokenmill_corpus import STAGE, CleanConfig
from tokenmill_corpus.filters.gopher_repetition import GopherRepetition

Clean = Callable[..., Any]
Write = Callable[..., Path]
NO_REPETITION = {"gopher_repetition": {"enabled": False}}
TEN_WORDS = "the quick brown fox jumps over the lazy dog"


def ten_words(number: int) -> str:
    return f"{TEN_WORDS} {number}"


def test_documents_of_all_formats_come_out_in_order_with_their_places(
    clean: Clean, write_jsonl: Write, tmp_path: Path
) -> None:
    rows = [{"id": f"d{i}", "text": ten_words(i)} for i in range(12)]
    folder = tmp_path / "raw"
    plain = write_jsonl("raw/a.jsonl", rows[0:3])
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(write_jsonl("x.jsonl", rows[3:6]).read_bytes()))
    compressed = zstandard.ZstdCompressor().compress(write_jsonl("y.jsonl", rows[6:9]).read_bytes())
    (folder / "c.jsonl.zst").write_bytes(compressed)
    pq.write_table(pa.Table.from_pylist(rows[9:12]), folder / "d.parquet")
    assert plain.exists()
    result = clean(folder)
    names = ["raw/a.jsonl", "raw/b.jsonl.gz", "raw/c.jsonl.zst", "raw/d.parquet"]
    assert result.rows == [row | {"file": names[place // 3], "row": place % 3 + 1} for place, row in enumerate(rows)]
    assert result.manifest.counts.documents == result.manifest.counts.input_documents == 12
    assert result.ledger == {}
    verify_files(load_manifest(str(result.folder)))


def test_kept_texts_are_unchanged_to_the_byte(clean: Clean, write_jsonl: Write) -> None:
    texts = [
        f"  {TEN_WORDS}\r\n\r\nnext line\t \n\n\n",
        "五段落の文章です。\u3000そのまま残る。",
        "  ภาษาไทย ไม่มี ช่องว่าง\u00a0",
        f"مَرْحَبًا {TEN_WORDS} \u200f",
        f"👨‍👩‍👧‍👦 e\u0301 é ＡＢＣ {TEN_WORDS}\u0085",
        f"{TEN_WORDS} a\rb <|endoftext|>",
    ]
    assert clean(write_jsonl("a.jsonl", texts)).texts == texts


def test_paragraphs_in_scripts_of_all_kinds_are_neither_short_nor_duplicates(clean: Clean, write_jsonl: Write) -> None:
    languages = {
        "ar": "هَذَا نَصٌّ قَصِيرٌ فِيهِ عَلَامَاتٌ كَثِيرَةٌ جِدًّا وَكَلِمَاتٌ أُخْرَى رقم {}",
        "hi": "यह एक छोटा सा पाठ है जिसमें कई अलग अलग शब्द हैं {}",
        "th": "นี่คือข้อความสั้นๆที่ไม่มีช่องว่าง{}",
        "zh": "这是一个没有空格的短段落编号{}",
        "ja": "これは空白のない短い段落です{}",
        "he": "זה טקסט קצר עם הרבה מילים שונות בתוכו ועוד קצת {}",
        "emoji": "one two three four five six seven eight nine 👨‍👩‍👧‍👦 {}",
    }
    texts = ["\n\n".join(line.format(i * 10 + p) for p in range(5)) for line in languages.values() for i in range(5)]
    assert clean(write_jsonl("a.jsonl", texts), filter=NO_REPETITION).texts == texts


def test_a_duplicate_goes_wherever_the_first_one_was(clean: Clean, write_jsonl: Write, many_tasks: None) -> None:
    first = write_jsonl("raw/1.jsonl", [ten_words(1), ten_words(2), ten_words(1)])
    write_jsonl("raw/2.jsonl", [ten_words(2), ten_words(3)])
    write_jsonl("raw/3.jsonl", [ten_words(3)])
    result = clean(first.parent)
    assert [(row["text"], row["file"], row["row"]) for row in result.rows] == [
        (ten_words(1), "raw/1.jsonl", 1),
        (ten_words(2), "raw/1.jsonl", 2),
        (ten_words(3), "raw/2.jsonl", 2),
    ]
    size = len(ten_words(1))
    assert result.ledger == {"exact_duplicate": (3, 3 * size)}
    # A file that gives nothing gives no part.
    assert [entry.path for entry in result.manifest.files if entry.documents] == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]


def test_duplicates_go_from_every_batch_of_a_large_file(clean: Clean, write_jsonl: Write) -> None:
    """More rows than a batch holds, the duplicates in all of them."""
    rows = [{"id": i, "text": f"text {i - i % 3}"} for i in range(140_000)]
    result = clean(write_jsonl("a.jsonl", rows), filter={"length": {"min_words": 1}})
    assert [int(row["id"]) for row in result.rows] == list(range(0, 140_000, 3))
    assert result.ledger["exact_duplicate"][0] == 140_000 - len(result.rows)


def test_without_dedup_duplicates_stay(clean: Clean, write_jsonl: Write) -> None:
    texts = [ten_words(1)] * 3
    result = clean(write_jsonl("a.jsonl", texts), dedup={"exact": "none"})
    assert result.texts == texts
    assert result.ledger == {}


def test_documents_that_a_rule_drops_do_not_make_duplicates_of_others(clean: Clean, write_jsonl: Write) -> None:
    """Only survivors are compared, so the reason is the rule's, each time."""
    result = clean(write_jsonl("a.jsonl", ["short", "short", ten_words(1)]))
    assert result.ledger == {"length.min_words": (2, 10)}


def test_nothing_left_is_a_dataset_of_nothing(clean: Clean, write_jsonl: Write) -> None:
    result = clean(write_jsonl("a.jsonl", ["too short", ""]))
    assert result.rows == []
    assert result.manifest.counts.documents == 0
    assert result.ledger == {"length.min_words": (1, 9), "empty_text": (1, len(b'{"text":""}'))}
    again = clean(result.folder, out="again")
    assert (again.rows, again.manifest.counts.input_documents) == ([], 0)


MIN_WORDS, DUPLICATE_LINES = "length.min_words", "gopher_repetition.max_duplicate_line_ratio"
LINES_ALONE = {"enabled": True} | {
    name: 100.0 for name in GopherRepetition.model_fields if name not in ("enabled", "max_duplicate_line_ratio")
}
TEXT_POOL = [
    "short",
    "",
    " ",
    ten_words(1),
    ten_words(2),
    "語" * 12,
    "same line of words\n" * 4,
    f"{TEN_WORDS} a\n\n" * 3,
]
RAW_ROWS = st.sampled_from(
    [
        b"42",
        b'{"text":',
        b"",
        b"\xff",
        b'{"text":null}',
        b'{"text":7}',
        b'{"body":"x"}',
        b'"x"',
        b'{"text":"a\\u0000b"}',
    ]
)
CORPORA = st.lists(
    st.lists(RAW_ROWS | st.sampled_from(TEXT_POOL).map(lambda text: orjson.dumps({"text": text})), max_size=8),
    min_size=1,
    max_size=3,
)


def expected_of_line(line: bytes, min_words: int) -> str | None:
    """Why a line gives nothing, by the definitions; none where it gives a document."""
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError:
        return "invalid_utf8"
    except ValueError:
        return "invalid_json"
    if not isinstance(value, dict):
        return "not_an_object"
    if "text" not in value:
        return "missing_text"
    text = value["text"]
    if not isinstance(text, str) or not text.strip():
        return {"": "empty_text", None: "null_text"}.get(
            text, "blank_text" if isinstance(text, str) else "non_string_text"
        )
    words = len(text) if text.startswith("語") else len(text.split())
    if words < min_words:
        return MIN_WORDS
    lines = [part for part in text.split("\n") if part]
    return DUPLICATE_LINES if (len(lines) - len(set(lines))) / len(lines) > 0.3 else None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(corpus=CORPORA, min_words=st.sampled_from([0, 1, 2, 10, 11]), dedup=st.sampled_from(["document", "none"]))
def test_what_came_in_is_what_stayed_and_the_ledger(
    clean: Clean,
    write_jsonl: Write,
    many_tasks: None,
    tmp_path: Path,
    corpus: list[list[bytes]],
    min_words: int,
    dedup: str,
) -> None:
    folder = f"raw-{next(COUNTER)}"
    for number, lines in enumerate(corpus):
        # Without one object that has the field, the file is refused as a whole.
        write_jsonl(f"{folder}/{number}.jsonl", [*lines, orjson.dumps({"text": ten_words(100 + number)})])
    result = clean(
        tmp_path / folder,
        out=f"{folder}-clean",
        profile="none",
        dedup={"exact": dedup},
        filter={"length": {"enabled": True, "min_words": min_words}, "gopher_repetition": LINES_ALONE},
    )
    kept, ledger, total = expected_outcome(tmp_path / folder, min_words, dedup == "document")
    assert result.texts == kept
    assert result.ledger == ledger
    counts = result.manifest.counts
    assert (counts.input_documents, counts.documents) == (total, len(kept))
    assert counts.bytes == sum(len(text.encode()) for text in kept)
    assert counts.input_bytes == counts.bytes + sum(num_bytes for _, num_bytes in ledger.values())
    rejects = result.content.get("rejects.jsonl", b"").splitlines()
    filters = (MIN_WORDS, DUPLICATE_LINES, "exact_duplicate")
    assert len(rejects) == sum(count for reason, (count, _) in ledger.items() if reason not in filters)


COUNTER = itertools.count()


def expected_outcome(folder: Path, min_words: int, dedup: bool) -> tuple[list[str], dict[str, tuple[int, int]], int]:
    """(texts that stay, ledger, rows that are not blank)."""
    kept: list[str] = []
    ledger: dict[str, tuple[int, int]] = {}
    lines = [line for path in sorted(folder.iterdir()) for line in path.read_bytes().split(b"\n") if line]
    for line in lines:
        reason = expected_of_line(line, min_words)
        text = "" if reason not in (None, MIN_WORDS, DUPLICATE_LINES) else json.loads(line)["text"]
        text = text.replace("\0", "\ufffd")
        if reason is None and dedup and text in kept:
            reason = "exact_duplicate"
        if reason is None:
            kept.append(text)
            continue
        count, num_bytes = ledger.get(reason, (0, 0))
        ledger[reason] = (count + 1, num_bytes + len(text.encode() or line))
    return kept, dict(sorted(ledger.items())), len(lines)


def random_texts(seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(TEN_WORDS.split(), k=rng.choice([3, 12, 30]))) for _ in range(40)]


def test_workers_and_the_order_of_arguments_change_nothing(clean: Clean, write_jsonl: Write, many_tasks: None) -> None:
    files = [write_jsonl(f"{n}.jsonl", [*random_texts(n), *random_texts(n + 1), b"{"]) for n in range(4)]
    expected = clean(*files, out="one").content
    assert clean(*reversed(files), out="two", workers=2).content == expected
    assert len([name for name in expected if name.endswith(".parquet")]) == 4


def test_cleaning_again_keeps_file_row_and_id(clean: Clean, write_jsonl: Write) -> None:
    raw = write_jsonl("raw.jsonl", [{"id": i, "text": f"{ten_words(i)} {'more ' * i}"} for i in range(8)])
    once = clean(raw, filter=NO_REPETITION)
    twice = clean(once.folder, out="twice", filter=NO_REPETITION | {"length": {"min_words": 14}})
    assert twice.rows == once.rows[4:]
    assert [(row["id"], row["file"], row["row"]) for row in twice.rows] == [
        (str(i), "raw/raw.jsonl", i + 1) for i in range(4, 8)
    ]
    assert twice.manifest.counts.input_bytes == once.manifest.counts.bytes
    assert [ref.digest for ref in twice.manifest.inputs] == [once.manifest.digest]


def test_raw_files_and_a_dataset_together_are_one_corpus(clean: Clean, write_jsonl: Write) -> None:
    dataset = clean(write_jsonl("a.jsonl", [ten_words(1), ten_words(2)]), out="a")
    raw = write_jsonl("b.jsonl", [ten_words(2), ten_words(3)])
    both = clean(raw, dataset.folder, out="both")
    # Raw files come first.
    assert both.texts == [ten_words(2), ten_words(3), ten_words(1)]
    assert both.ledger == {"exact_duplicate": (1, len(ten_words(2)))}


def test_a_changed_threshold_builds_again_and_the_same_one_does_not(
    clean: Clean, write_jsonl: Write, tmp_path: Path
) -> None:
    raw = write_jsonl("a.jsonl", [ten_words(1), "only four words here"])
    assert clean(raw).texts == [ten_words(1)]

    def build(min_words: int) -> bool:
        stage = STAGE.build(
            CleanConfig.model_validate({"filter": {"length": {"min_words": min_words}}}), [str(raw)], None
        )
        return build_stage(stage, str(tmp_path / "clean"), LocalExecutor(1)).up_to_date

    assert build(10)
    assert not build(4)
    assert build(4)
    assert pq.read_table(tmp_path / "clean" / "part-00000.parquet").column("text").to_pylist() == [
        ten_words(1),
        "only four words here",
    ]


def test_strict_stops_at_the_first_bad_line_and_publishes_nothing(
    clean: Clean, write_jsonl: Write, tmp_path: Path
) -> None:
    raw = write_jsonl("a.jsonl", [ten_words(1), b"42", b"{"])
    with pytest.raises(InputError, match=r"a\.jsonl:2: not_an_object"):
        clean(raw, reader={"strict": True})
    assert not (tmp_path / "clean" / "manifest.json").exists()


def test_the_parts_that_keys_are_written_in_change_nothing(
    clean: Clean, write_jsonl: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [text for n in range(6) for text in (*random_texts(n % 4), ten_words(n % 4))]
    raw = write_jsonl("a.jsonl", texts)
    settings = {"profile": "none", "dedup": {"minhash": {"enabled": True}, "keep": "longest"}, "ledger": "full"}
    monkeypatch.setattr("tokenmill_core.readers.batches.MAX_BATCH_BYTES", 300)
    expected = clean(raw, out="one", **settings)
    assert expected.ledger["exact_duplicate"][0] > 80
    monkeypatch.setattr(sys.modules["tokenmill_corpus.dedup.sketch"], "PART_BYTES", 1000)
    assert clean(raw, out="parts", **settings).content == expected.content
