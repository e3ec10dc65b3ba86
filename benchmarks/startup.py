"""From a command to the first batch, at the size of the largest runs: `python benchmarks/startup.py [SOURCES]`.

A mixture of 15 trillion tokens in 1000 sources of 100 shards is simulated: honest manifests over sparse files, which
have their sizes and no content. A fresh process opens it and reads a batch. Beside it stands what Megatron would do
before its first batch: measured on a slice with its own code, and scaled by the number of samples. Prints, and keeps
in benchmarks/results/.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tokenmill_core.manifest import FileEntry, StageRef, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, input_ref, publish
from tokenmill_core.mixture_manifest import MixtureManifest, MixtureSource, MixtureStage

NUM_TOKENS, NUM_SOURCES, SHARDS_A_SOURCE, DOCUMENT_TOKENS = 15_000_000_000_000, 1000, 100, 1000
SEQUENCE_LENGTH, BATCH, RUNS = 4096, 8, 3
VOCAB_SIZE, DENOMINATOR = 128_256, 1 << 40
STAGE, SHA256 = StageRef(name="bench", version=1), "0" * 64
FORM = {"dtype": "int32", "vocab_size": VOCAB_SIZE, "padded_vocab_size": VOCAB_SIZE, "tokenizer_sha256": SHA256}


def make_sparse(path: Path, num_bytes: int) -> FileEntry:
    """A file of this size that takes no room."""
    with path.open("wb") as file:
        file.truncate(num_bytes)
    return FileEntry(path=path.name, bytes=num_bytes, sha256=SHA256)


def make_source(folder: Path, shard_tokens: int) -> LoadedManifest[TokensManifest]:
    """A tokens dataset whose shards have their size and hold zeros."""
    folder.mkdir()
    documents = shard_tokens // DOCUMENT_TOKENS
    sizes = {".bin": 4 * shard_tokens, ".idx": 42 + 20 * documents, ".documents.parquet": 24 * documents}
    shards = [f"shard-{number:05d}" for number in range(SHARDS_A_SOURCE)]
    files = [make_sparse(folder / f"{shard}{suffix}", size) for shard in shards for suffix, size in sizes.items()]
    manifest = TokensManifest(
        name=folder.name, stage=STAGE, config={}, files=tuple(files), end_of_document_id=0, shards=tuple(shards), **FORM
    )
    return publish(manifest, str(folder))


def make_mixture(folder: Path, num_sources: int) -> str:
    """Of `num_sources`, with weights as uneven as sizes are; the URL of its manifest."""
    shard_tokens = NUM_TOKENS // NUM_SOURCES // SHARDS_A_SOURCE
    sources = [make_source(folder / f"source-{number:04d}", shard_tokens) for number in range(num_sources)]
    shares = np.arange(1, num_sources + 1)
    weights = (shares * (DENOMINATOR // int(shares.sum()))).tolist()
    weights[-1] += DENOMINATOR - sum(weights)
    mixture = MixtureManifest(
        name="all",
        stage=STAGE,
        config={},
        inputs=tuple(input_ref(source, str(folder)) for source in sources),
        sources=tuple(
            MixtureSource(
                name=source.manifest.name,
                input=number,
                documents=shard_tokens // DOCUMENT_TOKENS * SHARDS_A_SOURCE,
                tokens=shard_tokens * SHARDS_A_SOURCE,
                shard_tokens=(shard_tokens,) * SHARDS_A_SOURCE,
            )
            for number, source in enumerate(sources)
        ),
        stages=(MixtureStage(name="all", first_token=0, weights=tuple(weights)),),
        denominator=DENOMINATOR,
        seed=0,
        end_of_document_id=0,
        **FORM,
    )
    return publish(mixture, str(folder), "mixture.json").url


def first_batch(url: str) -> dict[str, float]:
    """In a fresh process: open the mixture as a user does, and read one batch."""
    from tokenmill_shards import MixtureReader

    started = time.perf_counter()
    reader = MixtureReader.open(url, SEQUENCE_LENGTH)
    tokens = reader.samples(np.arange(BATCH)).tokens
    seconds = time.perf_counter() - started
    assert tokens.shape == (BATCH, SEQUENCE_LENGTH + 1)
    return {
        "open_to_batch_seconds": seconds,
        "process_cpu_seconds": time.process_time(),
        "peak_mib": peak_mib(),
    }


def peak_mib() -> float:
    """The most memory that this process has had in use. Not by getrusage, which begins with what its parent had."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Every file below `folder`, its size, and when it was written."""
    return sorted(
        (entry.path, entry.stat().st_size, entry.stat().st_mtime_ns)
        for root, _, _ in os.walk(folder)
        for entry in os.scandir(root)
    )


def measure(folder: Path, url: str) -> dict[str, float]:
    """The fastest of some fresh processes, the most memory that one took, and how many files they wrote."""
    scratch = folder / "scratch"
    scratch.mkdir()
    before, runs = listing(folder), []
    for _ in range(RUNS):
        environment = {**os.environ, "TMPDIR": str(scratch), "HOME": str(scratch)}
        started = time.perf_counter()
        found = subprocess.run(
            [sys.executable, __file__, "--first-batch", url],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        runs.append(json.loads(found.stdout) | {"process_seconds": time.perf_counter() - started})
    written = set(listing(folder)) ^ set(before)
    best = {name: min(run[name] for run in runs) for name in runs[0]}
    return best | {"peak_mib": max(run["peak_mib"] for run in runs), "files_written": len(written)}


def megatron_bytes(num_samples: int, num_documents: int) -> dict[str, int]:
    """Index files of one epoch: of each sample 2 × i32, u32 and in a blend i16, i64; of each document i32."""
    return {"sample_index_bytes": num_samples * (8 + 4 + 2 + 8), "document_index_bytes": num_documents * 4}


def megatron_seconds(num_samples: int) -> dict[str, float]:
    """Its own builders on a slice of the samples: of one source, and of a blend of all; scaled to `num_samples`."""
    from megatron.core.datasets import helpers

    slice_samples, documents = 1_000_000, 1_000_000 * SEQUENCE_LENGTH // DOCUMENT_TOKENS
    lengths = np.full(documents + 1, DOCUMENT_TOKENS, np.int32)
    order = np.random.RandomState(0).permutation(documents + 1).astype(np.int32)
    started = time.perf_counter()
    helpers.build_sample_idx(lengths, order, SEQUENCE_LENGTH, 1, documents * DOCUMENT_TOKENS)
    np.random.RandomState(0).shuffle(np.arange(slice_samples, dtype=np.uint32))
    one = time.perf_counter() - started
    index, sample = np.zeros(slice_samples, np.int16), np.zeros(slice_samples, np.int64)
    weights = np.full(NUM_SOURCES, 1 / NUM_SOURCES)
    started = time.perf_counter()
    helpers.build_blending_indices(index, sample, weights, NUM_SOURCES, slice_samples, False)
    blend = time.perf_counter() - started
    scale = num_samples / slice_samples
    return {"sources_seconds_scaled": one * scale, "blend_seconds_scaled": blend * scale}


def main() -> None:
    """Simulate, measure, print, keep."""
    num_sources = int(sys.argv[1]) if len(sys.argv) > 1 else NUM_SOURCES
    num_tokens = NUM_TOKENS // NUM_SOURCES * num_sources
    num_samples = num_tokens // SEQUENCE_LENGTH
    with tempfile.TemporaryDirectory() as folder:
        ours = measure(Path(folder), make_mixture(Path(folder), num_sources))
    results = {
        "tokens": num_tokens,
        "sources": num_sources,
        "shards": num_sources * SHARDS_A_SOURCE,
        f"ours (best of {RUNS})": ours,
        "megatron (computed, and scaled from a slice of 1M samples)": {
            **megatron_bytes(num_samples, num_tokens // DOCUMENT_TOKENS),
            **megatron_seconds(num_samples),
        },
    }
    print(json.dumps(results, indent=2))
    machine = {"date": time.strftime("%Y-%m-%d"), "processor": platform.machine(), "cores": os.cpu_count()}
    target = Path(__file__).with_name("results") / "startup.json"
    target.write_text(json.dumps({**machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--first-batch"]:
        print(json.dumps(first_batch(sys.argv[2])))
    else:
        main()
