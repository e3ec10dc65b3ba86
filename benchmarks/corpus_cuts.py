"""Repeated parts and benchmarks in documents: `python benchmarks/corpus_cuts.py FILE...`.

    documents without copies ─▶ lines | paragraphs | substring, each from the work folder's files to cuts in it
                                  └▶ substring beside a suffix array over the same text, in memory
                             └▶ decontamination against a million n-grams

FILE is Parquet or JSON Lines with a column `text`; the standard library's source comes on top. A rate is bytes of text
by the processor's time that the process took. The suffix array and its common prefixes are those of pydivsufsort (`pip
install pydivsufsort`), and both sides must cut the same bytes. Prints and keeps in benchmarks/results/.
"""

import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pydivsufsort
from corpus_text import batches, best, load_texts, megabytes
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import text_buffers
from tokenmill_core.stage import Report, Work
from tokenmill_corpus.decontamination import Benchmark, Decontamination
from tokenmill_corpus.dedup import DedupSettings
from tokenmill_corpus.dedup.cut_phases import cut_phases, cuts
from tokenmill_corpus.dedup.windows import covered
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.survivors import FILTER, SurvivorsWriter

PASSES = ("lines", "paragraphs", "substring")
BATCHES_PER_TASK = 4
SUFFIX_ARRAY_SHARE = 3
"""The suffix array has every third document: it takes 9 bytes of memory for one of text, and more while it is built."""


def settings_of(name: str) -> DedupSettings:
    """One pass alone."""
    return DedupSettings.model_validate({"exact": "none", name: {"enabled": True}})


def write_survivors(work: Work, texts: Sequence[str]) -> int:
    """What the filter phase would leave, and in how many tasks."""
    (work.folder / FILTER).mkdir()
    together = list(batches(texts))
    groups = [together[i : i + BATCHES_PER_TASK] for i in range(0, len(together), BATCHES_PER_TASK)]
    for index, group in enumerate(groups):
        with SurvivorsWriter(work, index) as writer:
            for batch in group:
                writer.write(batch)
        extra = {"survivors": writer.num_documents, "reference": False}
        work.write_report(FILTER, index, Report(extra=extra))
    return len(groups)


def run_pass(work: Work, settings: DedupSettings) -> None:
    """All tasks of all phases of the passes that `settings` enable."""
    for phase in cut_phases(settings):
        (work.folder / phase.name).mkdir(exist_ok=True)
        for task in phase.plan(work):
            work.write_report(phase.name, task.index, phase.run(task, work))


def bench_passes(texts: Sequence[str]) -> dict[str, Any]:
    """For each pass its rate, the share of bytes it cuts, and the bytes it keeps on disk for one of text."""
    found: dict[str, Any] = {}
    for name in PASSES:
        with tempfile.TemporaryDirectory() as folder:
            work = Work(Path(folder))
            num_tasks = write_survivors(work, texts)
            seconds = best(lambda work=work, name=name: run_pass(work, settings_of(name)))
            cut = [cuts(work, settings_of(name), task) for task in range(num_tasks)]
            files = [path for path in Path(folder).rglob("*") if path.is_file() and FILTER not in path.parts]
            found[name] = {
                "MB/s": megabytes(texts) / seconds,
                "share of bytes cut": sum(int((c.end - c.start).sum()) for c in cut) / megabytes(texts) / 1e6,
                "bytes on disk": sum(path.stat().st_size for path in files) / megabytes(texts) / 1e6,
            }
    return found


def bench_suffix_array(texts: Sequence[str]) -> dict[str, float]:
    """Rates of both ways on the same documents."""
    some = texts[::SUFFIX_ARRAY_SHARE]
    width = settings_of("substring").substring.min_bytes
    text = text_buffers(pa.RecordBatch.from_arrays([pa.array(some, pa.large_string())], names=["text"]))
    data = text.data[: text.offsets[-1]].copy()
    cut_by_suffix_array(data, text.offsets, width)
    seconds = best(lambda: cut_by_suffix_array(data, text.offsets, width))
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder))
        num_tasks = write_survivors(work, some)
        windows = best(lambda: run_pass(work, settings_of("substring")))
        cut = [cuts(work, settings_of("substring"), task) for task in range(num_tasks)]
    ours = np.concatenate([np.stack([c.start, c.end]) for c in cut], axis=1)
    assert np.array_equal(ours, cut_by_suffix_array(data, text.offsets, width)), "the two ways differ"
    rates = [megabytes(some) / t for t in (windows, seconds)]
    return {"windows": rates[0], "suffix array": rates[1], "windows_to_suffix_array": rates[0] / rates[1]}


def cut_by_suffix_array(data: NDArray[np.uint8], offsets: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """Rows start and end of what is cut."""
    suffixes = pydivsufsort.divsufsort(data)
    prefixes = pydivsufsort.kasai(data, suffixes)
    inside = np.zeros(len(data), np.bool_)
    for start, end in pairwise(offsets.tolist()):
        inside[start : max(start, end - width + 1)] = True
    _, starts, ends = covered(data, offsets, width, _repeats(suffixes, prefixes, width, inside))
    return np.stack([starts, ends])


@numba.njit(cache=True)
def _repeats(
    suffixes: NDArray[np.int32], prefixes: NDArray[np.int32], width: int, inside: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Windows that the first one equal to them ends before; neighbours in the array are equal if they share `width`."""
    repeats, i, n = np.zeros(len(suffixes), np.bool_), 0, len(suffixes)
    while i < n:
        end, first = i + 1, n
        while end < n and prefixes[end - 1] >= width:
            end += 1
        for k in range(i, end):
            if inside[suffixes[k]]:
                first = min(first, suffixes[k])
        for k in range(i, end):
            repeats[suffixes[k]] = inside[suffixes[k]] and suffixes[k] - first >= width
        i = end
    return repeats


def bench_decontamination(texts: Sequence[str]) -> dict[str, float]:
    """The rate with a million n-grams that nothing has, of items of 5 to 250 words."""
    rng = random.Random(0)
    words = " ".join(texts[:: max(1, len(texts) // 500)]).split()
    items = [" ".join(rng.choices(words, k=rng.randint(5, 250))) for _ in range(9000)]
    together = [Documents(_placed(batch)) for batch in batches(texts)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "items.jsonl"
        path.write_text("".join(json.dumps({"prompt": item}) + "\n" for item in items))
        family = Decontamination(benchmarks=(Benchmark(name="items", path=str(path), fields=("prompt",)),))
        family.check()
        indexing = best(family.check)
        seconds = best(lambda: [family.apply(documents) for documents in together])
    return {"MB/s": megabytes(texts) / seconds, "seconds to index": indexing}


def _placed(batch: pa.RecordBatch) -> pa.RecordBatch:
    numbers = pa.array(range(len(batch)), pa.int64())
    columns = {"id": pa.nulls(len(batch), pa.string()), "file": pa.repeat(pa.scalar("f"), len(batch)), "row": numbers}
    return pa.RecordBatch.from_pydict({"text": batch.column("text"), **columns})


def run(paths: Sequence[str]) -> dict[str, Any]:
    """All of it, with what it was run on."""
    texts = list(dict.fromkeys(load_texts(paths)))
    return {
        "corpus": {"megabytes": megabytes(texts), "documents": len(texts)},
        "passes": bench_passes(texts),
        "substring (MB/s)": bench_suffix_array(texts),
        "decontamination": bench_decontamination(texts),
    }


def main() -> None:
    """Measure, print, keep."""
    results = run(sys.argv[1:])
    print(json.dumps(results, indent=2))
    machine = {"date": time.strftime("%Y-%m-%d"), "processor": platform.machine(), "cores": os.cpu_count()}
    target = Path(__file__).parent / "results" / "corpus_cuts.json"
    target.write_text(json.dumps({**machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
