"""`prep pack` on one core: bytes of tokens a second for both methods, and best fit alone on ten million documents.

Beside each build stands the least that any such build does: read as many bytes from the start of the shard to its end,
hash them, write them and sync. Measured in turn in one process, best of several; kept with its date and machine in
benchmarks/results/.
"""

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tokenmill_core import storage
from tokenmill_core.build import build_stage
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import StageRef, TokensManifest
from tokenmill_core.manifest_io import input_ref, publish
from tokenmill_core.mixture_manifest import MixtureManifest, MixtureSource, MixtureStage
from tokenmill_shards import ShardWriter
from tokenmill_shards.packing.best_fit import best_fit
from tokenmill_shards.packing.pack import STAGE, PackConfig

NUM_TOKENS, NUM_SHARDS, VOCAB_SIZE = 200_000_000, 4, 50_000
NUM_PACKED = 128_000_000
NUM_DOCUMENTS = 10_000_000
ROUNDS = 3


def text_like_lengths(num_documents: int, generator: np.random.Generator) -> np.ndarray:
    """Tokens of documents: half below 400, a tenth above 1,500."""
    return np.maximum(1, generator.lognormal(6, 1, num_documents)).astype(np.int64)


def make_mixture(folder: Path) -> str:
    """A mixture of one source of random tokens in documents."""
    generator, files, shard_tokens = np.random.default_rng(0), [], []
    names = [f"shard-{number:05d}" for number in range(NUM_SHARDS)]
    for name in names:
        lengths = text_like_lengths(NUM_TOKENS // NUM_SHARDS // 660, generator)
        with ShardWriter(folder / name, np.uint16, VOCAB_SIZE) as writer:
            writer.append(generator.integers(0, VOCAB_SIZE, lengths.sum(), np.uint16), lengths)
        files += writer.files
        shard_tokens.append(int(lengths.sum()))
    common = {"name": "random", "stage": StageRef(name="bench", version=1), "config": {}, "dtype": "uint16"}
    common |= {"vocab_size": VOCAB_SIZE, "padded_vocab_size": VOCAB_SIZE, "tokenizer_sha256": "0" * 64}
    tokens = publish(
        TokensManifest(**common, files=tuple(files), end_of_document_id=None, shards=tuple(names)), str(folder)
    )
    source = MixtureSource(
        name="random", input=0, documents=0, tokens=sum(shard_tokens), shard_tokens=tuple(shard_tokens)
    )
    mixture = MixtureManifest(
        **common,
        inputs=(input_ref(tokens, str(folder)),),
        sources=(source,),
        stages=(MixtureStage(name="all", first_token=0, weights=(1,)),),
        denominator=1,
        seed=0,
        end_of_document_id=None,
    )
    return publish(mixture, str(folder), "mixture.json").url


def seconds(action: Callable[[], object]) -> float:
    """How long `action` takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def bench_build(mixture: str, folder: Path, method: str, sequence_length: int) -> dict[str, float]:
    """Megabytes of tokens a second of a whole build: check the inputs, pack, hash, write, sync and read back."""
    config = PackConfig(method=method, sequence_length=sequence_length, tokens=NUM_PACKED)
    best: list[tuple[float, float]] = []
    for number in range(ROUNDS):
        out = folder / f"{method}-{sequence_length}-{number}"
        stage = STAGE.build(config, [mixture], None)
        ours = seconds(lambda stage=stage, out=out: build_stage(stage, str(out), LocalExecutor(1)))
        files = sorted(out.glob("*.bin"))
        num_bytes = sum(file.stat().st_size for file in files)
        bare = seconds(lambda files=files: [storage.copy_file(str(f), folder / "copy.bin") for f in files])
        best.append((num_bytes / ours / 1e6, num_bytes / bare / 1e6))
        for file in out.iterdir():
            if file.is_file():
                file.unlink()
    ours, bare = (max(column) for column in zip(*best, strict=True))
    return {"ours_megabytes_per_second": ours, "bare_copy_megabytes_per_second": bare, "ratio": ours / bare}


def bench_best_fit(capacity: int) -> dict[str, float]:
    """Best fit of ten million documents."""
    lengths = np.minimum(text_like_lengths(NUM_DOCUMENTS, np.random.default_rng(0)), capacity).astype(np.int32)
    _, count = best_fit(lengths, capacity)  # compiled
    taken = min(seconds(lambda: best_fit(lengths, capacity)) for _ in range(ROUNDS))
    return {"seconds": taken, "fill_rate": int(lengths.sum()) / (count * capacity)}


def main() -> None:
    """Measure, print, keep."""
    results: dict[str, dict[str, float]] = {}
    for capacity in (2049, 8193):
        results[f"best fit, {NUM_DOCUMENTS:,} documents, {capacity} tokens a sequence"] = bench_best_fit(capacity)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mixture = make_mixture(folder)
        for method in ("concat", "best-fit"):
            for length in (2048, 512):
                results[f"{method}, sequence length {length}"] = bench_build(mixture, folder, method, length)
    for what, values in results.items():
        print(f"{what}: " + ", ".join(f"{key} {value:,.4g}" for key, value in values.items()))
    machine = {"date": time.strftime("%Y-%m-%d"), "processor": platform.machine(), "cores": os.cpu_count()}
    target = Path(__file__).parent / "results" / "packing.json"
    target.write_text(json.dumps({**machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
