"""The native Gopher, C4 and FineWeb rules beside datatrove's filters: `python benchmarks/corpus_filters.py FILE...`.

    Arrow batches in memory ─▶ repetition ─▶ quality ─▶ C4 ─▶ FineWeb ─▶ the documents that stay

FILE is Parquet or JSON Lines with a column `text`; the standard library's source comes on top. Two comparisons:
- every rule on every document, the same work on both sides: native rules always give their values, and datatrove gets
  thresholds at which no rule ends the work on a document;
- as in use, with FineWeb's settings: a document is done with at the first family (in datatrove: check) that drops it.

A rate is per core: bytes of text by the processor's time that the process took, so that other work on the machine does
not count. datatrove is slow, so it has a share of the documents, on which the native side runs again for the ratio.
Prints and keeps in benchmarks/results/.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from corpus_text import batches, best, load_texts, megabytes
from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.utils.logging import logger

from tokenmill_core.documents import Account
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters import Family, Judge
from tokenmill_corpus.filters.c4 import C4
from tokenmill_corpus.filters.fineweb import FineWeb
from tokenmill_corpus.filters.gopher_quality import GopherQuality
from tokenmill_corpus.filters.gopher_repetition import GopherRepetition

FAMILIES: dict[str, Family] = {
    "gopher_repetition": GopherRepetition(),
    "gopher_quality": GopherQuality(),
    "c4": C4(require_terminal_punctuation=False),
    "fineweb": FineWeb(),
}
DATATROVE_SHARE = 40
"""datatrove has every 40th document."""
PUBLISHED = (
    GopherRepetitionFilter(),
    GopherQualityFilter(),
    C4QualityFilter(filter_no_terminal_punct=False),
    FineWebQualityFilter(),
)
BEYOND = 1e9
"""A threshold that no document reaches."""
TO_THE_END = (
    GopherRepetitionFilter(
        **dict.fromkeys(("dup_line_frac", "dup_para_frac", "dup_line_char_frac", "dup_para_char_frac"), BEYOND),
        top_n_grams=[(n, BEYOND) for n in (2, 3, 4)],
        dup_n_grams=[(n, BEYOND) for n in (5, 6, 7, 8, 9, 10)],
    ),
    GopherQualityFilter(
        *(1, BEYOND, 1 / BEYOND, BEYOND, BEYOND, BEYOND, BEYOND, 1 / BEYOND),
        min_stop_words=1,
    ),
    C4QualityFilter(filter_no_terminal_punct=False, filter_lorem_ipsum=False, filter_curly_bracket=False),
    FineWebQualityFilter(line_punct_thr=-1, short_line_thr=2, char_duplicates_ratio=2, new_line_ratio=BEYOND),
)
"""datatrove's filters with thresholds at which none of their rules ends the work on a document."""


def bench_filters(texts: Sequence[str]) -> dict[str, dict[str, float]]:
    """Rates in MB/s, and ratios on the documents that both have."""
    some = [text for text in texts[::DATATROVE_SHARE] if text.strip()]
    sample, everything = list(batches(some)), list(batches(texts))
    run_native(sample[:1])
    run_datatrove(some[:1])
    sides = {
        "every rule on every document": (run_every_family, lambda: run_every_filter(some)),
        "until a rule drops the document": (run_native, lambda: run_datatrove(some)),
    }
    results = {}
    for name, (native, datatrove) in sides.items():
        rate = megabytes(some) / best(lambda native=native: native(sample), rounds=5)
        peer = megabytes(some) / best(datatrove, rounds=1)
        results[name] = {
            "native": megabytes(texts) / best(lambda native=native: native(everything)),
            "native on datatrove's share": rate,
            "datatrove": peer,
            "native_to_datatrove": rate / peer,
        }
    return results


def run_native(documents: Sequence[pa.RecordBatch]) -> int:
    """Documents that the families leave."""
    judge = Judge(FAMILIES, Account())
    return sum(len(judge(Documents(batch))) for batch in documents)


def run_every_family(documents: Sequence[pa.RecordBatch]) -> None:
    """All families on all documents, FineWeb on what C4 leaves of their texts."""
    for batch in documents:
        whole = Documents(batch)
        for family in FAMILIES.values():
            edit = family.apply(whole).edit
            whole = whole if edit is None else whole.with_texts(edit.text)


def run_datatrove(texts: Sequence[str]) -> int:
    """Documents that datatrove's filters leave."""
    documents = [Document(text=text, id="") for text in texts]
    return sum(all(step.filter(document) is True for step in PUBLISHED) for document in documents)


def run_every_filter(texts: Sequence[str]) -> None:
    """All of datatrove's filters on all documents, FineWeb on what C4 leaves of their texts."""
    for text in texts:
        document = Document(text=text, id="")
        for step in TO_THE_END:
            if document.text.strip():
                step.filter(document)


def bench_parts(texts: Sequence[str]) -> dict[str, float]:
    """Nanoseconds a byte of each part, every family on every document."""
    spent: dict[str, float] = {}
    for batch in batches(texts):
        documents = Documents(batch)
        for name, family in FAMILIES.items():
            for part, action in (
                ("words", lambda documents=documents: documents.words),
                ("lines", lambda documents=documents: documents.duplicates),
                (name, lambda documents=documents, family=family: family.apply(documents)),
            ):
                spent[part] = spent.get(part, 0) + best(action, rounds=1)
            edit = family.apply(documents).edit
            documents = documents if edit is None else documents.with_texts(edit.text)
    return {part: 1e3 * seconds / megabytes(texts) for part, seconds in spent.items()}


FIRST_CALL = """
import time
import pyarrow as pa
from corpus_filters import run_native
batch = pa.RecordBatch.from_arrays([pa.array(["text"], pa.large_string())], names=["text"])
started = time.process_time()
run_native([batch])
print(time.process_time() - started)
"""


def bench_compilation() -> dict[str, float]:
    """Seconds of the first call: in the first process ever, and in the next one."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(Path(__file__).parent)}
        command = [sys.executable, "-c", FIRST_CALL]
        cold, warm = (float(subprocess.check_output(command, env=environment)) for _ in range(2))
    return {"compiled": cold, "from the cache": warm}


def run(paths: Sequence[str]) -> dict[str, Any]:
    """All of it, with what it was run on."""
    logger.disable("datatrove")
    texts = load_texts(paths)
    return {
        "corpus": {"megabytes": megabytes(texts), "documents": len(texts)},
        "filters (MB/s)": bench_filters(texts),
        "parts (ns/byte)": bench_parts(texts),
        "first call (s)": bench_compilation(),
    }


def main() -> None:
    """Measure, print, keep."""
    results = run(sys.argv[1:])
    print(json.dumps(results, indent=2))
    machine = {"date": time.strftime("%Y-%m-%d"), "processor": platform.machine(), "cores": os.cpu_count()}
    target = Path(__file__).parent / "results" / "corpus_filters.json"
    target.write_text(json.dumps({**machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
