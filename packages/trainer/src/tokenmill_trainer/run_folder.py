"""The folder of a run, which stands alone once the run has begun.

config.toml  mixture.json  tokenizer.json      from the start: resolved settings, copies of what was trained on
tokenizer_config.json                          where the tokenizer has one
metrics.jsonl  checkpoints/step-NNNNNNNN/      as training goes
loss.png  manifest.json                        when it is finished
"""

import hashlib
from contextlib import suppress
from pathlib import Path

import torch

from tokenmill_core import storage
from tokenmill_core.config import dump_toml, load_config
from tokenmill_core.errors import InputError, TokenmillError, VerificationError
from tokenmill_core.manifest import (
    MANIFEST_NAME,
    TOKENIZER_CONFIG_NAME,
    TOKENIZER_NAME,
    Counts,
    FileEntry,
    MixtureManifest,
    RunManifest,
    StageRef,
)
from tokenmill_core.manifest_io import LoadedManifest, dump_manifest, input_ref, load_input, load_manifest, publish
from tokenmill_trainer import __version__
from tokenmill_trainer.checkpoint_store import list_checkpoints
from tokenmill_trainer.config import RunConfig, recorded
from tokenmill_trainer.plot import plot_loss
from tokenmill_trainer.report import Progress
from tokenmill_trainer.step_log import read_steps


class RunFolder:
    """Names and writes what lies in the folder of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.mixture_file = path / "mixture.json"
        self.tokenizer_file = path / TOKENIZER_NAME
        self.tokenizer_config_file = path / TOKENIZER_CONFIG_NAME
        self.metrics_file = path / "metrics.jsonl"
        self.plot_file = path / "loss.png"
        self.checkpoints = path / "checkpoints"

    @property
    def has_run(self) -> bool:
        """Whether a run has begun here."""
        return self.config_file.exists() or bool(list_checkpoints(self.checkpoints))

    def check_free(self) -> None:
        """A new run may begin here, or `InputError`."""
        if self.has_run:
            raise InputError(f"{self.path}: holds a run already; go on with it by --resume, or name another --out")
        self.check_ours()

    def check_ours(self) -> None:
        """What lies here is a run, or nothing, or `InputError`."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path}: this is a file; name a folder for the run as --out")
        if not self.has_run and self.path.is_dir() and any(self.path.iterdir()):
            raise InputError(f"{self.path}: holds something that is no run; name another --out")

    def read_config(self) -> RunConfig:
        """The resolved settings the run was last started with, or `InputError` where this is no run."""
        if not self.config_file.exists():
            raise InputError(
                f"{self.path}: no run here (no {self.config_file.name}); name the --out of a `pretrain run`"
            )
        return load_config(RunConfig, str(self.config_file), ())

    def begin(self, config: RunConfig, mixture: LoadedManifest[MixtureManifest]) -> None:
        """Write the resolved settings and copies of the tokenizer and the mixture's manifest."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / MANIFEST_NAME).unlink(missing_ok=True)
        storage.write_atomic(self.tokenizer_file, read_tokenizer(mixture))
        settings = read_tokenizer_settings(mixture)
        if settings is not None:
            storage.write_atomic(self.tokenizer_config_file, settings)
        storage.write_atomic(self.mixture_file, dump_manifest(mixture.manifest))
        storage.write_atomic(self.config_file, dump_toml(config).encode("utf-8"))

    def finish(self, config: RunConfig, mixture: LoadedManifest[MixtureManifest], progress: Progress) -> None:
        """Draw the loss curve and publish the run's manifest."""
        plot_loss(read_steps(self.metrics_file), self.plot_file, title=f"{self.path.resolve().name}: training loss")
        files = [self.config_file, self.plot_file, self.metrics_file, self.mixture_file, self.tokenizer_file]
        if self.tokenizer_config_file.exists():
            files.append(self.tokenizer_config_file)
        manifest = RunManifest(
            name=self.path.resolve().name,
            stage=StageRef(name="pretrain run", version=1),
            inputs=(input_ref(mixture, str(self.path)),),
            config=recorded(config),
            files=tuple(_entry(path) for path in files),
            counts=Counts(tokens=progress.consumed_tokens),
            tools={"tokenmill-trainer": __version__, "torch": torch.__version__},
            step=progress.step,
            consumed_samples=progress.consumed_samples,
            consumed_tokens=progress.consumed_tokens,
        )
        publish(manifest, str(self.path))


def read_tokenizer(mixture: LoadedManifest[MixtureManifest]) -> bytes:
    """The `tokenizer.json` that the mixture's tokens were made with; it lies beside the tokens of every source.

    Errors: `ManifestError` where the tokens are not found, `VerificationError` where the file is another one.
    """
    tokens = load_input(mixture, mixture.manifest.sources[0].input)
    url = tokens.file_url(TOKENIZER_NAME)
    content = storage.read_bytes(url)
    if hashlib.sha256(content).hexdigest() != mixture.manifest.tokenizer_sha256:
        raise VerificationError(f"{url}: not the tokenizer that {mixture.url} was made with; restore it")
    return content


def read_tokenizer_settings(mixture: LoadedManifest[MixtureManifest]) -> bytes | None:
    """The `tokenizer_config.json` beside that tokenizer, or none."""
    tokens = load_input(mixture, mixture.manifest.sources[0].input)
    if all(entry.path != TOKENIZER_CONFIG_NAME for entry in tokens.manifest.files):
        return None
    return storage.read_bytes(tokens.file_url(TOKENIZER_CONFIG_NAME))


def locate_mixture(config: RunConfig, checkpoints: Path) -> str:
    """Where the run's mixture lies now.

    As seen from its newest checkpoint, so that a tree that was moved is found again; otherwise as the settings say.
    """
    for path in list_checkpoints(checkpoints):
        with suppress(TokenmillError):  # a broken checkpoint; an older one says the same
            loaded = load_manifest(str(path))
            if loaded.manifest.inputs and storage.exists(loaded.input_url(0)):
                return loaded.input_url(0)
    return config.data.mixture


def _entry(path: Path) -> FileEntry:
    num_bytes, sha256 = storage.hash_file(str(path))
    return FileEntry(path=path.name, bytes=num_bytes, sha256=sha256)
