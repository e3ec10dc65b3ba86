import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from tokenmill_shards.reading.samples import Samples
from tokenmill_trainer import initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import require_verified
from tokenmill_trainer.config import RunConfig

VOCABULARY, LENGTH = 503, 32
TOKENMILL = "import sys; from tokenmill_{0}.cli import main; sys.argv[0] = '{1}'; main()"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class RandomSamples:
    """Sample i is random, but always the same."""

    def samples(self, indices: NDArray[np.int64]) -> Samples:
        rows = [np.random.default_rng(int(i)).integers(0, VOCABULARY, LENGTH + 1) for i in indices]
        return Samples(np.stack(rows))


class HandMade(nn.Module):
    """Somebody's own model: ids (B, L) to logits, by blocks that see the mean of what came before."""

    def __init__(self, num_blocks: int = 2, width: int = 32) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(MeanBlock(width) for _ in range(num_blocks))
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.out(x)  # type: ignore[no-any-return]


class Branching(HandMade):
    """Takes one block or both, in this order or that, as the micro-batch says; some weights have no gradient at all."""

    def __init__(self) -> None:
        super().__init__()
        self.pooler = nn.Linear(32, 32)
        self.blocks[0].up.bias.requires_grad_(False)  # type: ignore[union-attr]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for place in ([0], [0, 1], [1, 0])[int(ids.sum()) % 3]:
            x = self.blocks[place](x)
        return self.out(x)  # type: ignore[no-any-return]


class MeanBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = torch.arange(1, x.shape[1] + 1, device=x.device).unsqueeze(-1)
        means = (self.norm(x).cumsum(1) / seen).to(x.dtype)
        return x + self.down(self.up(means).relu())  # type: ignore[no-any-return]


class LogitsOnly(nn.Module):
    """A model of `transformers` as the engine wants it: ids to logits, no cache."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.inner(ids, use_cache=False).logits  # type: ignore[no-any-return]


def own_model(kind: str) -> nn.Module:
    """`hand-made`, `branching`, or a tiny `gpt2` (tied head, no dropout) or `llama` of transformers, untrained."""
    if kind == "hand-made":
        return HandMade()
    if kind == "branching":
        return Branching()
    import transformers

    if kind == "gpt2":
        sizes = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 4}
        no_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        return LogitsOnly(transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **no_dropout)))
    llama = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LogitsOnly(transformers.LlamaForCausalLM(llama))


@dataclass(frozen=True)
class RowsOfDocuments:
    """Two random documents a sample, `apart` or joined; of every eighth sample no label counts."""

    apart: bool = True

    def samples(self, indices: NDArray[np.int64]) -> Samples:
        cuts = 1 + indices * 7 % (LENGTH - 1)
        places, cuts = np.arange(LENGTH, dtype=np.int32), cuts[:, None].astype(np.int32)
        counted = (places != cuts - 1) & (indices[:, None] % 8 != 2)
        positions = np.where(places < cuts, places, places - cuts)
        return RandomSamples().samples(indices)._replace(counted=counted, positions=positions if self.apart else None)


SOURCES = ("code", "prose", "never", "rare")


@dataclass(frozen=True)
class OfSources:
    """Those rows, each of one of `SOURCES`, or, where `mixed`, with labels of several."""

    mixed: bool

    def samples(self, indices: NDArray[np.int64]) -> Samples:
        sources = np.array([0, 0, 1, 0, 3, 1, 0, 1], np.int32)[indices % 8]
        if self.mixed:
            sources = np.where(np.arange(LENGTH) < 9, 3, sources[:, None]).astype(np.int32)
        return RowsOfDocuments().samples(indices)._replace(sources=sources)


@pytest.fixture(scope="session")
def on_ranks() -> Callable[[int, str, RunConfig, Path], None]:
    """on_ranks(ranks, worker, config, out): run the script `worker` of this folder by torchrun, `worker config out`."""

    def run(ranks: int, worker: str, config: RunConfig, out: Path) -> None:
        here = Path(__file__).parent
        paths = os.pathsep.join(filter(None, (str(here), os.environ.get("PYTHONPATH"))))
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        command = [*launcher, str(here / worker), config.model_dump_json(), str(out)]
        environment = {**ONE_THREAD, "PYTHONPATH": paths}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr

    return run


@pytest.fixture(scope="session")
def on_two_ranks(on_ranks: Callable[[int, str, RunConfig, Path], None]) -> Callable[[str, RunConfig, Path], None]:
    """on_two_ranks(worker, config, out): the same on two."""
    return partial(on_ranks, 2)


@pytest.fixture(scope="session")
def on_one_process() -> Callable[..., torch.Tensor]:
    """on_one_process(config, source, start): (loss, norm) of each step, from the checkpoint in `start` if any."""

    def run(config: RunConfig, source: GlobalBatches, start: Path | None = None) -> torch.Tensor:
        reports = []
        with initialize(config, source) as engine:
            if start is not None:
                checkpoint.restore(engine, require_verified(start, pytest.fail))
            for batch in engine.batches():
                engine.backward(engine(batch))
                report = engine.step()
                if report is not None:
                    reports.append([report.loss, report.grad_norm])
        return torch.tensor(reports, dtype=torch.float64)

    return run


@pytest.fixture(scope="session")
def transformers() -> Any:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return transformers


@pytest.fixture(scope="session")
def make_own_model() -> Callable[[str], nn.Module]:
    return own_model


@pytest.fixture
def source() -> GlobalBatches:
    return GlobalBatches(RandomSamples(), global_batch_size=8)


@pytest.fixture
def documents_apart() -> GlobalBatches:
    return GlobalBatches(RowsOfDocuments(), global_batch_size=8)


@pytest.fixture
def documents_joined() -> GlobalBatches:
    return GlobalBatches(RowsOfDocuments(apart=False), global_batch_size=8)


@pytest.fixture(params=["whole", "mixed"])
def of_sources(request: pytest.FixtureRequest) -> OfSources:
    return OfSources(request.param == "mixed")


@pytest.fixture
def make_config() -> Callable[..., RunConfig]:
    """A tiny run; keyword `section={...}` overrides settings."""

    def make(**sections: dict[str, Any]) -> RunConfig:
        values: dict[str, dict[str, Any]] = {
            "model": {
                "vocab_size": VOCABULARY,
                "hidden_size": 48,
                "intermediate_size": 96,
                "num_layers": 2,
                "num_heads": 6,
                "num_kv_heads": 2,
            },
            "data": {"sequence_length": LENGTH},
            "optimizer": {"lr": 0.01},
            "training": {"steps": 6, "global_batch_size": 8, "micro_batch_size": 8},
        }
        for section, settings in sections.items():
            values[section] = {**values.get(section, {}), **settings}
        return RunConfig.model_validate(values)

    return make


def run_python(*arguments: str, cwd: Path | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=cwd, env=ONE_THREAD, capture_output=True, text=True, timeout=240)
    if check and done.returncode:
        raise AssertionError(f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done


@pytest.fixture(scope="session")
def pretrain() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `pretrain` as a process of its own."""

    def run(*arguments: object, ranks: int = 1, **options: Any) -> subprocess.CompletedProcess[str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
        return run_python(*launcher, "-m", "tokenmill_trainer", *map(str, arguments), **options)

    return run


@pytest.fixture(scope="session")
def prep() -> Callable[..., None]:
    """Run `prep` as a process of its own, in folder `cwd`."""

    def run(*arguments: str, cwd: Path) -> None:
        run_python("-c", TOKENMILL.format("core", "prep"), *arguments, cwd=cwd)

    return run


@pytest.fixture(scope="session")
def mixture(tmp_path_factory: pytest.TempPathFactory, prep: Callable[..., None]) -> Path:
    """A mixture of two sources, made by the real stages from this package's own source text."""
    folder = tmp_path_factory.mktemp("mixture")
    import tokenmill_core
    import tokenmill_trainer

    for name, package in (("trainer", tokenmill_trainer), ("core", tokenmill_core)):
        texts = [path.read_text("utf-8") for path in sorted(Path(package.__file__).parent.rglob("*.py"))]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"{name}.jsonl").write_text(lines, "utf-8")

    prep("train-tokenizer", "core.jsonl", "--vocab-size", "400", "--out", "tokenizer", cwd=folder)
    for name in ("trainer", "core"):
        prep("tokenize", f"{name}.jsonl", "--tokenizer", "tokenizer", "--out", name, cwd=folder)
    shares = ("--temperature", "2", "--validation-share", "0.2")
    prep("mix", "trainer=trainer", "core=core", *shares, "--out", "mixture.json", cwd=folder)
    return folder / "mixture.json"


@pytest.fixture(scope="session")
def run_toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings of a run of seconds on `mixture`."""
    path = tmp_path_factory.mktemp("settings") / "run.toml"
    path.write_text(
        """
        [model]
        hidden_size = 48
        intermediate_size = 96
        num_layers = 2
        num_heads = 6
        num_kv_heads = 2
        [data]
        sequence_length = 32
        [optimizer]
        lr = 5e-3
        [schedule]
        warmup_steps = 3
        [training]
        steps = 12
        global_batch_size = 8
        micro_batch_size = 2
        [checkpoint]
        interval = 4
        [validation]
        interval = 6
        """
    )
    return path


@pytest.fixture
def losses() -> Callable[[Path], list[float]]:
    """The loss curve of a run folder."""

    def read(run: Path) -> list[float]:
        return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]

    return read


@pytest.fixture
def largest_file() -> Callable[[int], AbstractContextManager[None]]:
    """With largest_file(bytes) this process writes no file beyond that size: a disk that is full."""

    @contextmanager
    def limit(num_bytes: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limit


@pytest.fixture(autouse=True)
def no_group_left() -> Iterator[None]:
    yield
    assert not torch.distributed.is_initialized(), "a test left its process group behind"
