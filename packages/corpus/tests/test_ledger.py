"""The full ledger: a row for every document that went, with what the rule saw; and what stays is in none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq

Clean = Callable[..., Any]
Write = Callable[..., Path]
WORDS = [f"w{i}" for i in range(400)]
NO_RULES = {"profile": "none", "ledger": "full"}


def text(start: int, count: int = 60) -> str:
    return " ".join(WORDS[start : start + count])


def dropped(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("dropped-*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_a_row_says_which_rule_and_what_it_measured(clean: Clean, write_jsonl: Write) -> None:
    raw = write_jsonl("a.jsonl", [{"id": "x", "text": text(0)}, {"id": 7, "text": "only three words"}, text(90)])
    result = clean(raw, ledger="full")
    assert dropped(result.folder) == [
        {
            "id": "7",
            "file": "a/a.jsonl",
            "row": 2,
            "bytes": 16,
            "rule": "length.min_words",
            "value": 3.0,
            "threshold": 10.0,
            "detail": None,
            "kept_id": None,
            "kept_file": None,
            "kept_row": None,
        }
    ]
    assert [row["row"] for row in result.rows] == [1, 3]


def test_a_duplicate_names_the_document_that_stays(clean: Clean, write_jsonl: Write, many_tasks: None) -> None:
    """Ids that collide, are missing, or look alike: documents are told apart by file and row."""
    first = write_jsonl("raw/1.jsonl", [{"id": "7", "text": text(0)}, {"id": 7, "text": text(100)}])
    write_jsonl(
        "raw/2.jsonl", [{"text": text(100)}, {"id": "7", "text": text(0) + " w399"}, {"id": "9", "text": text(0)}]
    )
    result = clean(first.parent, dedup={"minhash": {"enabled": True}}, **NO_RULES)
    rows = dropped(result.folder)
    assert [(r["file"], r["row"], r["id"], r["rule"], r["kept_file"], r["kept_row"], r["kept_id"]) for r in rows] == [
        ("raw/2.jsonl", 1, None, "exact_duplicate", "raw/1.jsonl", 2, "7"),
        ("raw/2.jsonl", 2, "7", "near_duplicate", "raw/1.jsonl", 1, "7"),
        ("raw/2.jsonl", 3, "9", "exact_duplicate", "raw/1.jsonl", 1, "7"),
    ]
    # 60 words have 56 runs of 5, with one more word 57: one of them is new.
    assert rows[1]["value"] == 56 / 57
    assert [(row["file"], row["row"]) for row in result.rows] == [("raw/1.jsonl", 1), ("raw/1.jsonl", 2)]
    report = orjson.loads((result.folder / "dedup.json").read_bytes())
    assert report["cluster_sizes"] == {"2": 1, "3": 1}


def test_the_ledger_and_its_rows_are_the_same_account(clean: Clean, write_jsonl: Write, many_tasks: None) -> None:
    files = [
        write_jsonl(f"{n}.jsonl", [text(n * 7 + i * 11, 5 + 13 * i) for i in range(12)] + [text(3, 60), b"{"])
        for n in range(3)
    ]
    result = clean(*files, ledger="full", dedup={"minhash": {"enabled": True}})
    total: dict[str, tuple[int, int]] = {}
    for row in dropped(result.folder):
        documents, num_bytes = total.get(row["rule"], (0, 0))
        total[row["rule"]] = (documents + 1, num_bytes + row["bytes"])
    assert total
    assert total == {reason: row for reason, row in result.ledger.items() if reason != "invalid_json"}


def test_totals_alone_write_no_rows_and_keep_the_same_documents(clean: Clean, write_jsonl: Write) -> None:
    raw = write_jsonl("a.jsonl", [text(0), text(0), "short"])
    totals, full = clean(raw, out="totals"), clean(raw, out="full", ledger="full")
    assert not list(totals.folder.glob("dropped-*"))
    assert (totals.rows, totals.ledger) == (full.rows, full.ledger)


def test_a_ledger_is_no_part_of_the_documents(clean: Clean, write_jsonl: Write) -> None:
    """A dataset with rows of the dropped beside it is read as its documents alone."""
    once = clean(write_jsonl("a.jsonl", [text(0), "short", text(100)]), ledger="full")
    assert dropped(once.folder)
    assert clean(once.folder, out="again").rows == once.rows


def test_scores_are_columns_of_what_stays(clean: Clean, write_jsonl: Write) -> None:
    result = clean(write_jsonl("a.jsonl", [text(0, 20), "short", text(50, 30)]), scores=True)
    assert [row["length.words"] for row in result.rows] == [20.0, 30.0]
    assert all(row["gopher_repetition.duplicate_line_ratio"] == 0 for row in result.rows)


def test_edits_have_rows_that_add_up_to_the_ledger(clean: Clean, write_jsonl: Write) -> None:
    sentence = "This line is long enough to be looked for elsewhere."
    texts = [f"{text(0)}\n{sentence}\n{text(100)}", f"{text(200)} write to a@example.org\n{sentence}", sentence]
    raw = write_jsonl("a.jsonl", [{"id": n, "text": value} for n, value in enumerate(texts)])
    result = clean(raw, filter={"pii": {"enabled": True}}, dedup={"lines": {"enabled": True}}, **NO_RULES)
    rows = pq.read_table(result.folder / "edited-00000.parquet").to_pylist()
    assert [(row["id"], row["rule"], row["bytes"]) for row in rows] == [
        ("1", "duplicate_line", 1 + len(sentence)),
        ("1", "pii.email", len("a@example.org") - len("<EMAIL>")),
    ]
    assert [(row["id"], row["rule"]) for row in dropped(result.folder)] == [("2", "emptied_by_cuts")]
    for row in rows:
        assert result.ledger[row["rule"]] == (0, row["bytes"])
    assert result.texts == [texts[0], texts[1].replace("a@example.org", "<EMAIL>").removesuffix("\n" + sentence)]


def test_a_bloom_filter_names_no_document_in_place_of_another(clean: Clean, write_jsonl: Write) -> None:
    raw = write_jsonl("a.jsonl", [text(0), text(100), text(0)])
    result = clean(raw, dedup={"bloom": {"enabled": True}}, **NO_RULES)
    assert [(row["row"], row["rule"], row["kept_file"]) for row in dropped(result.folder)] == [
        (3, "bloom_duplicate", None)
    ]
