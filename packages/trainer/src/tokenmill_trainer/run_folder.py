"""The folder of a run, which stands alone once the run has begun.

config.toml  mixture.json  tokenizer.json      from the start: resolved settings, copies of what was trained on
tokenizer_config.json                          where the tokenizer has one
mixture-<digest>.json                          mixtures that this one took over from, while the run went on
metrics.jsonl  checkpoints/step-NNNNNNNN/      as training goes
events.jsonl   hang-rank-N.txt                 where the guard had something to say
samples.jsonl  trackers/  profile/             where they are asked for (docs/watching.md)
loss.png  manifest.json                        when it is finished
"""

import fcntl
import logging
import os
from contextlib import suppress
from pathlib import Path

import torch

from tokenmill_core import storage
from tokenmill_core.config import dump_toml, load_config
from tokenmill_core.errors import InputError, TokenmillError
from tokenmill_core.manifest import (
    MANIFEST_NAME,
    TOKENIZER_CONFIG_NAME,
    TOKENIZER_NAME,
    Counts,
    FileEntry,
    InputRef,
    RunManifest,
    SourceUse,
    StageRef,
)
from tokenmill_core.manifest_io import (
    LoadedManifest,
    dump_manifest,
    input_ref,
    load_input,
    load_manifest,
    publish,
    ref_from,
)
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards.open_samples import SamplesManifest, load_samples_manifest
from tokenmill_trainer import __version__
from tokenmill_trainer.batches.tokenizer import read_tokenizer, read_tokenizer_settings
from tokenmill_trainer.checkpoints.store import list_checkpoints
from tokenmill_trainer.config import RunConfig, recorded
from tokenmill_trainer.report import Progress
from tokenmill_trainer.watching.plot import plot_loss
from tokenmill_trainer.watching.step_log import read_steps

logger = logging.getLogger(__name__)


class RunFolder:
    """Names and writes what lies in the folder of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.mixture_file = path / "mixture.json"
        self.tokenizer_file = path / TOKENIZER_NAME
        self.tokenizer_config_file = path / TOKENIZER_CONFIG_NAME
        self.metrics_file = path / "metrics.jsonl"
        self.events_file = path / "events.jsonl"
        self.samples_file = path / "samples.jsonl"
        self.profile = path / "profile"
        self.plot_file = path / "loss.png"
        self.checkpoints = path / "checkpoints"
        self._lock: int | None = None

    @property
    def name(self) -> str:
        """The folder's name as text: what is not UTF-8 in it stands as escapes."""
        return self.path.resolve().name.encode("utf-8", "backslashreplace").decode("utf-8")

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

    def hold(self) -> None:
        """Keep other runs out of the folder until `release`, or `InputError` where one is at work in it."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise InputError(
                f"{self.path}: another process trains into this folder; wait for it, stop it, or name another --out"
            ) from None
        except OSError:
            pass  # a file system without locks; then nobody is kept out
        self._lock = lock

    def release(self) -> None:
        """Let other runs in again; a folder that nothing was written into goes."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            with suppress(OSError):
                self.path.rmdir()

    def read_config(self) -> RunConfig:
        """The resolved settings the run was last started with, or `InputError` where this is no run."""
        if not self.config_file.exists():
            raise InputError(
                f"{self.path}: no run here (no {self.config_file.name}); name the --out of a `pretrain run`"
            )
        return load_config(RunConfig, str(self.config_file), ())

    def former_mixtures(self) -> list[Path]:
        """The manifests of mixtures the run was trained on before it was moved to that of `mixture_file`."""
        return sorted(self.path.glob("mixture-*.json"))

    def begin(self, config: RunConfig, mixture: LoadedManifest[SamplesManifest]) -> None:
        """Write the resolved settings and copies of the tokenizer and the mixture's manifest."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / MANIFEST_NAME).unlink(missing_ok=True)
        storage.write_atomic(self.tokenizer_file, read_tokenizer(mixture))
        settings = read_tokenizer_settings(mixture)
        if settings is not None:
            storage.write_atomic(self.tokenizer_config_file, settings)
        self._keep_mixture(mixture)
        storage.write_atomic(self.config_file, dump_toml(config).encode("utf-8"))

    def _keep_mixture(self, mixture: LoadedManifest[SamplesManifest]) -> None:
        """Make `mixture` the current one; earlier ones stay where it goes on with them: nothing else counts."""
        if self.mixture_file.exists():
            former = load_samples_manifest(str(self.mixture_file)).manifest
            if former.digest != mixture.manifest.digest:
                kept = self.path / f"mixture-{former.digest[:12]}.json"
                storage.write_atomic(kept, self.mixture_file.read_bytes())
        continued = mixture.manifest.continues if isinstance(mixture.manifest, MixtureManifest) else ()
        for path in self.former_mixtures():
            if load_samples_manifest(str(path)).manifest.digest not in {one.digest for one in continued}:
                path.unlink()
        storage.write_atomic(self.mixture_file, dump_manifest(_seen_from(self.path, mixture)))

    def finish(
        self,
        config: RunConfig,
        mixture: LoadedManifest[SamplesManifest],
        progress: Progress,
        sources: tuple[SourceUse, ...],
        initial_model: InputRef | None = None,
    ) -> RunManifest:
        """Draw the loss curve and publish the run's manifest; `sources` says what was drawn from each.

        `initial_model` is what the weights started from, where it was a model.
        """
        files = [self.config_file, self.metrics_file, self.mixture_file, self.tokenizer_file, *self._plot()]
        if self.tokenizer_config_file.exists():
            files.append(self.tokenizer_config_file)
        former = self.former_mixtures()
        mixtures = [mixture, *(load_samples_manifest(str(path)) for path in former)]
        initial = () if initial_model is None else (ref_from(str(self.path), initial_model),)
        manifest = RunManifest(
            name=self.name,
            stage=StageRef(name="pretrain run", version=1),
            inputs=(*(input_ref(one, str(self.path)) for one in mixtures), *initial),
            config=recorded(config),
            files=tuple(_entry(path) for path in (*files, *former)),
            counts=Counts(tokens=progress.consumed_tokens),
            tools={"tokenmill-trainer": __version__, "torch": torch.__version__},
            step=progress.step,
            consumed_samples=progress.consumed_samples,
            consumed_tokens=progress.consumed_tokens,
            sources=sources,
            skipped=progress.skipped,
        )
        return publish(manifest, str(self.path)).manifest

    def _plot(self) -> list[Path]:
        """The file with the loss curve; none where it could not be drawn, which must not stop a run from ending."""
        rows = read_steps(self.metrics_file)
        try:
            plot_loss(rows, self.plot_file, title=f"{self.name}: training loss")
        except Exception as error:  # whatever fails in drawing, the run is done
            self.plot_file.unlink(missing_ok=True)
            logger.warning("%s: the loss curve cannot be drawn (%s)", self.plot_file, error)
            return []
        return [self.plot_file]


def locate_mixture(run: RunFolder) -> str:
    """Where the mixture that the run was last trained on lies now.

    As seen from its checkpoints, so that a tree that was moved is found again; otherwise as the settings say.
    """
    stated = run.read_config().data.mixture
    current = load_samples_manifest(str(run.mixture_file)).manifest.digest
    for path in list_checkpoints(run.checkpoints):
        with suppress(TokenmillError):  # a broken checkpoint; an older one may say the same
            checkpoint = load_manifest(str(path))
            if load_input(checkpoint, 0).manifest.digest == current:
                return checkpoint.input_url(0)
    return stated


def _seen_from(folder: Path, loaded: LoadedManifest[SamplesManifest]) -> SamplesManifest:
    """The manifest with its inputs' places as they are from `folder`; what it says stays the same."""
    inputs = tuple(
        ref.model_copy(update={"path": storage.relative_to(loaded.input_url(number), str(folder))})
        for number, ref in enumerate(loaded.manifest.inputs)
    )
    return loaded.manifest.model_copy(update={"inputs": inputs})


def _entry(path: Path) -> FileEntry:
    num_bytes, sha256 = storage.hash_file(str(path))
    return FileEntry(path=path.name, bytes=num_bytes, sha256=sha256)
