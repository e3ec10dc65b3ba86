"""The text that benchmarks of tokenizers run on, on disk as users have it, and how commands are timed.

FILE... and source code and documents of Python and the system ─▶ compressed JSON Lines of about 24 MB of text
"""

import json
import os
import subprocess
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard
from corpus_text import load_texts, megabytes

INSTALLED_BYTES = 700_000_000
"""Source code and documents of what is installed, at most."""
SUFFIXES = {".py", ".pyi", ".h", ".hpp", ".c", ".cpp", ".js", ".pl", ".pm", ".sh", ".html", ".md", ".rst", ".txt"}
FILE_BYTES = 24_000_000


def gather(paths: Sequence[str]) -> list[str]:
    """The texts of all files, the standard library and what is installed, those of each spread over all places."""
    parts = [load_texts(paths), list(_installed())]
    ranked = sorted(
        ((place + 0.5) / len(part), number, text)
        for number, part in enumerate(parts)
        for place, text in enumerate(part)
    )
    # Readers repair NUL characters; peers take them as they are.
    return [text for _, _, text in ranked if text.strip() and "\0" not in text]


def _installed() -> Iterator[str]:
    size = 0
    for root in (sysconfig.get_paths()["purelib"], "/usr/include", "/usr/lib", "/usr/share"):
        for path in sorted(Path(root).rglob("*")):
            if path.suffix not in SUFFIXES or path.is_symlink() or not path.is_file():
                continue
            text = path.read_text(errors="replace")
            size += len(text.encode())
            if size > INSTALLED_BYTES:
                return
            yield text


def write_files(texts: Sequence[str], folder: Path, compress: bool = True) -> list[Path]:
    """The texts as JSON Lines of about `FILE_BYTES` of text each."""
    num_files = max(2, round(megabytes(texts) * 1e6 / FILE_BYTES))
    paths = []
    for number in range(num_files):
        lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts[number::num_files])
        path = folder / f"text-{number:03d}.jsonl{'.zst' if compress else ''}"
        path.write_bytes(zstandard.compress(lines) if compress else lines)
        paths.append(path)
    return paths


@dataclass(frozen=True)
class Run:
    """What a command took."""

    seconds: float
    peak_bytes: int
    """Memory of its processes together, pages that several share counted once."""


def run(command: Sequence[str], **environment: str) -> Run:
    """Run a command to its end, and look at the memory of its processes every few milliseconds."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    peak, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            peak[0] = max(peak[0], sum(map(_proportional_bytes, _family(process.pid))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    seconds = time.perf_counter() - started
    over.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{output}")
    return Run(seconds, peak[0])


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(member for child in children for member in _family(int(child)))]


def _proportional_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
