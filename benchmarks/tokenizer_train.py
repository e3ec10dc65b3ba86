"""Training a 32k vocabulary beside `tokenizers`, rustbpe and gigatoken: `python benchmarks/tokenizer_train.py FILE...`.

FILE is Parquet or JSON Lines with a column `text`; source code comes on top. All sides use all cores and GPT-2's split,
the one that gigatoken trains with. Ours is the whole command, from compressed JSON Lines to a dataset with checksums,
its start included; the others are their training call alone, in a process that has the texts ready as they want them:
gigatoken a file that it reads itself, the other two an iterator. Peak memory is that of all processes of a side.
Prints and keeps in benchmarks/results/.
"""

import json
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from corpus_text import megabytes
from tokenizer_text import Run, gather, run, write_files

VOCAB_SIZE = 32_000
ROUNDS = 2
TRAINERS = {
    "gigatoken": """
import gigatoken, json, sys
paths, merges_path = sys.argv[1].split(","), sys.argv[2]
started = time.perf_counter()
_, merges = gigatoken.train_bpe(gigatoken.JsonlFileSource(paths), {size}, ["<|endoftext|>"])
report(started)
Path(merges_path).write_text(json.dumps([[left.hex(), right.hex()] for left, right in merges]))
""",
    "rustbpe": """
import rustbpe
trainer = rustbpe.Tokenizer()
started = time.perf_counter()
trainer.train_from_iterator(texts(sys.argv[1].split(",")), {size} - 1, pattern={pattern!r})
report(started)
""",
    "tokenizers": """
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
trainer = trainers.BpeTrainer(vocab_size={size}, min_frequency=2, special_tokens=["<|endoftext|>"],
                              initial_alphabet=alphabet, show_progress=False)
started = time.perf_counter()
tokenizer.train_from_iterator(texts(sys.argv[1].split(",")), trainer)
report(started)
tokenizer.save(sys.argv[2])
""",
}
HEAD = """
import sys, time
from pathlib import Path
import orjson
def texts(paths):
    for path in paths:
        with open(path, "rb") as file:
            for line in file:
                yield orjson.loads(line)["text"]
def report(started):
    Path(sys.argv[3]).write_text(str(time.perf_counter() - started))
"""
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def train_theirs(name: str, paths: list[Path], out: Path) -> Run:
    """A peer's training call in a process of its own."""
    code = HEAD + TRAINERS[name].format(size=VOCAB_SIZE, pattern=PATTERN)
    seconds = out.with_suffix(".seconds")
    whole = run([sys.executable, "-c", code, ",".join(map(str, paths)), str(out), str(seconds)])
    return Run(float(seconds.read_text()), whole.peak_bytes)


def train_ours(paths: list[Path], out: Path) -> Run:
    """`prep train-tokenizer`, from start to end."""
    prep = str(Path(sys.executable).with_name("prep"))
    options = ["--split", "gpt2", "--vocab-size", str(VOCAB_SIZE), "--force", "--out", str(out)]
    return run([prep, "train-tokenizer", *map(str, paths), *options])


def merges_of(path: Path) -> list[Any]:
    """The merges in a tokenizer.json."""
    return list(json.loads(path.read_bytes())["model"]["merges"])


def main() -> None:
    """Train with each in turn, several times over, and keep each side's best."""
    texts = gather(sys.argv[1:])
    runs: dict[str, list[Run]] = {name: [] for name in ("ours", *TRAINERS)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "plain").mkdir()
        compressed, plain = write_files(texts, folder), write_files(texts, folder / "plain", compress=False)
        train_ours(compressed[:1], folder / "warm")  # compiles, once for each machine
        for _ in range(ROUNDS):
            runs["ours"].append(train_ours(compressed, folder / "ours"))
            for name in TRAINERS:
                runs[name].append(train_theirs(name, plain, folder / f"{name}.json"))
        same = merges_of(folder / "ours" / "tokenizer.json") == merges_of(folder / "tokenizers.json")
    best = {name: Run(min(r.seconds for r in of), min(r.peak_bytes for r in of)) for name, of in runs.items()}
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in TRAINERS},
        "megabytes": round(megabytes(texts), 1),
        "vocab_size": VOCAB_SIZE,
        "merges_equal_those_of_tokenizers": same,
        "seconds": {name: round(of.seconds, 2) for name, of in best.items()},
        "peak_megabytes": {name: round(of.peak_bytes / 1e6) for name, of in best.items()},
        "times_as_fast_as": {name: round(best[name].seconds / best["ours"].seconds, 2) for name in TRAINERS},
    }
    target = Path(__file__).parent / "results" / "tokenizer_train.json"
    target.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
