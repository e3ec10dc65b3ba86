"""`prep clean` whole, JSONL.zst in, Parquet out, on one core: `python benchmarks/corpus_clean.py FILE...`.

    hash inputs ─▶ read ─▶ filters ─▶ sketches ─▶ dedup ─▶ Parquet, hashed and published with its manifest

FILE is Parquet or JSON Lines with a column `text`; the standard library's source comes on top. A rate is bytes of text
by the processor's time that the process took, start of Python and all its threads included, so that other work on the
machine does not count. Prints and keeps in benchmarks/results/.
"""

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zstandard
from corpus_text import load_texts, megabytes

SETTINGS = {
    "native, exact": ("--profile", "native"),
    "native, exact and near-duplicates": ("--profile", "native", "--dedup", "minhash"),
    "gopher + c4 + fineweb, exact and near-duplicates": (
        *("--profile", "gopher", "--dedup", "minhash", "--set", "filter.c4.enabled=true"),
        *("--set", "filter.c4.require_terminal_punctuation=false", "--set", "filter.fineweb.enabled=true"),
    ),
    "fineweb with language and PII": ("--profile", "fineweb"),
}
ROUNDS = 3


def processor_seconds(command: Sequence[str]) -> float:
    """Time of the processor that a command and its children take."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bench_clean(texts: Sequence[str]) -> dict[str, dict[str, float]]:
    """MB/s a core of the whole command, by settings; and seconds of a command that does nothing."""
    prep = str(Path(sys.executable).with_name("prep"))
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        raw, out = Path(folder) / "raw.jsonl.zst", Path(folder) / "out"
        lines = b"".join(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n" for text in texts)
        raw.write_bytes(zstandard.ZstdCompressor(level=3).compress(lines))
        idle = min(processor_seconds([prep, "clean", "--help"]) for _ in range(ROUNDS))
        for name, settings in SETTINGS.items():
            seconds = []
            for _ in range(ROUNDS):
                shutil.rmtree(out, ignore_errors=True)
                seconds.append(
                    processor_seconds([prep, "clean", str(raw), "--workers", "1", "--out", str(out), *settings])
                )
            manifest = json.loads((out / "manifest.json").read_bytes())
            found[name] = {
                "MB/s a core": megabytes(texts) / min(seconds),
                "seconds": min(seconds),
                "share of bytes kept": manifest["counts"]["bytes"] / manifest["counts"]["input_bytes"],
            }
    return found | {"prep clean --help": {"seconds": idle}}


def main() -> None:
    """Measure, print, keep."""
    texts = load_texts(sys.argv[1:])
    result: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "text": f"{len(texts):,} documents, {megabytes(texts):.0f} MB",
        "prep clean, JSONL.zst to Parquet": bench_clean(texts),
    }
    print(json.dumps(result, indent=2))
    Path(__file__).with_name("results").joinpath("corpus_clean.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
