"""`prep clean` with everything on, as a process: nothing but the data decides what it writes, and memory stays flat."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PREP_WITH_A_TASK_A_FILE = """
from tokenmill_core import pieces, sources
from tokenmill_core.cli import main
sources.group_pieces = lambda found, _: pieces.group_pieces(found, 1)
main()
"""
EVERYTHING = """
ledger = "full"
scores = true

[filter]
normalise = { enabled = true, unicode_form = "nfc" }
length = { enabled = true, min_words = 12 }
gopher_repetition = { enabled = true, max_duplicate_10gram_character_ratio = 0.9 }
c4 = { enabled = true, min_sentences = 1, require_terminal_punctuation = false }
pii = { enabled = true }
language = { enabled = true, keep = ["en"], min_score = 0.1 }

[dedup]
exact = "normalised"
minhash = { enabled = true }
lines = { enabled = true, min_characters = 30 }
paragraphs = { enabled = true, min_characters = 30 }
substring = { enabled = true, min_bytes = 120 }
"""
_TEXT = "the of river house night small under water never because people stone letter green walked over"
WORDS = re.findall(r"\w+", _TEXT)


def corpus(folder: Path, num_files: int, documents: int) -> Path:
    """Files of English-looking text with copies, near-copies, repeated lines and stretches, addresses and rubbish."""
    rng = random.Random(num_files * 1000 + documents)
    shared = [" ".join(rng.choices(WORDS, k=30)).capitalize() + "." for _ in range(8)]
    folder.mkdir()
    texts: list[str] = []
    for number in range(num_files):
        rows = []
        for _ in range(documents):
            lines = [
                " ".join(rng.choices(WORDS, k=rng.randint(5, 25))).capitalize() + "." for _ in range(rng.randint(1, 9))
            ]
            lines += rng.sample(shared, k=rng.choice([0, 0, 1, 2]))
            text = "\n".join(lines) + rng.choice(["", "", " Write to someone@example.org today."])
            if texts and rng.random() < 0.2:
                old = rng.choice(texts)
                words = old.split(" ")
                words[rng.randrange(len(words))] = rng.choice(WORDS)
                text = rng.choice([old, old.replace(" ", "  ", 1), " ".join(words)])
            texts.append(text)
            rows.append(json.dumps({"text": text}))
        rows.insert(rng.randrange(len(rows)), "{broken")
        (folder / f"{number}.jsonl").write_text("\n".join(rows) + "\n")
    return folder


def start(raw: Path, out: Path, *options: str, hash_seed: str = "0") -> subprocess.Popen[str]:
    settings = out.with_suffix(".toml")
    settings.write_text(EVERYTHING)
    return subprocess.Popen(
        [
            *(sys.executable, "-c", PREP_WITH_A_TASK_A_FILE, "clean", str(raw), "--name", "corpus"),
            *("--out", str(out), "--config", str(settings), *options),
        ],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def documents_of(folder: Path) -> dict[str, bytes]:
    """All files but the manifest, which records the settings."""
    return {name: data for name, data in content(folder).items() if name != "manifest.json"}


def test_workers_hash_seed_and_memory_change_nothing(tmp_path: Path) -> None:
    raw = corpus(tmp_path / "raw", num_files=4, documents=60)
    finish(start(raw, tmp_path / "one", "--workers", "1"))
    expected = content(tmp_path / "one")
    ledger = {row["reason"] for row in json.loads(expected["manifest.json"])["ledger"]}
    for reason in ("invalid_json", "length.min_words", "normalised_duplicate", "near_duplicate", "pii.email"):
        assert reason in ledger, (reason, ledger)
    assert [reason for reason in ledger if "line" in reason], ledger
    finish(start(raw, tmp_path / "two", "--workers", "2", hash_seed="12345"))
    assert content(tmp_path / "two") == expected
    finish(start(raw, tmp_path / "three", "--workers", "2", "--set", f"dedup.memory_bytes={1 << 20}"))
    assert documents_of(tmp_path / "three") == documents_of(tmp_path / "one")


def test_killed_at_any_moment_a_rerun_equals_a_build_that_nothing_disturbed(tmp_path: Path) -> None:
    raw, out = corpus(tmp_path / "raw", num_files=4, documents=40), tmp_path / "out"
    finish(start(raw, tmp_path / "undisturbed", "--workers", "1"))
    rng = random.Random(3)
    total = 4 * 2 + 12
    for reports in sorted(rng.sample(range(total), k=4)):
        process = start(raw, out, "--workers", "2")
        deadline = time.monotonic() + 120
        while process.poll() is None and len(list(out.glob(".work/*/*/reports/*.json"))) < reports:
            assert time.monotonic() < deadline, "the build makes no progress"
            time.sleep(0.002)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    finish(start(raw, out, "--workers", "2"))
    assert content(out) == content(tmp_path / "undisturbed")


PEAK_OF_CHILDREN = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_memory(raw: Path, out: Path) -> int:
    """KiB of the largest process."""
    options = ("--workers", "1", "--dedup", "minhash", "--set", f"dedup.memory_bytes={4 << 20}", "--out", str(out))
    command = [sys.executable, "-c", PREP_WITH_A_TASK_A_FILE, "clean", str(raw), *options]
    measured = [sys.executable, "-c", PEAK_OF_CHILDREN, *command]
    return int(subprocess.run(measured, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux")
def test_ten_times_the_data_takes_no_more_memory(tmp_path: Path) -> None:
    rng = random.Random(5)
    words = [f"w{n}" for n in range(50_000)]
    sizes = {}
    for num_files in (4, 40):
        raw = tmp_path / f"raw-{num_files}"
        raw.mkdir()
        for number in range(num_files):
            lines = (json.dumps({"text": " ".join(rng.choices(words, k=400))}) for _ in range(1500))
            (raw / f"{number}.jsonl").write_text("\n".join(lines))
        sizes[num_files] = peak_memory(raw, tmp_path / f"out-{num_files}")
    assert sizes[40] < 1.1 * sizes[4], sizes
