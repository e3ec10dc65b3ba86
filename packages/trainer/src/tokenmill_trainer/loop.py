"""Training, in the order things happen. Every rank runs this page; rank 0 alone writes logs and speaks."""

import math
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tokenmill_core.errors import ConfigError, ExitCode, InputError
from tokenmill_core.manifest import CheckpointManifest, SourceUse
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_shards.open_samples import SamplesManifest
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_shards.reading.samples import SampleReader
from tokenmill_shards.statistics import unigram_entropy
from tokenmill_trainer.batches.open_data import check_enough
from tokenmill_trainer.checkpoints import checkpoint, store
from tokenmill_trainer.config import RunConfig, recorded
from tokenmill_trainer.engine import Engine, NonFiniteError, initialize
from tokenmill_trainer.evaluation.sampler import Sampler
from tokenmill_trainer.evaluation.validation import validate
from tokenmill_trainer.guard.signals import StopSignals
from tokenmill_trainer.model.flops import flops_per_token, peak_flops
from tokenmill_trainer.report import StepReport
from tokenmill_trainer.resume import check_ledger, check_resumable, describe_switch
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.watching.console import RunConsole
from tokenmill_trainer.watching.metrics import StepMeter
from tokenmill_trainer.watching.profiling import ProfileWindow
from tokenmill_trainer.watching.run_log import RunLog
from tokenmill_trainer.watching.step_log import read_steps
from tokenmill_trainer.watching.trackers import SampledText, Trackers, check_installed, open_trackers

SUMMARY_STEPS = 20


def train(
    config: RunConfig,
    out: Path,
    *,
    resume: bool = False,
    allow_changes: Collection[str] = (),
    data_log: Path | None = None,
) -> ExitCode:
    """Train to `config.training.steps` in folder `out`: `DONE`, or `STOPPED` where a signal came and all is saved.

    `resume` goes on from the newest checkpoint that verifies; `allow_changes` names groups of settings that may differ
    from it (`resume.CHANGES`). `data_log` gets each step's global sample indices.
    """
    check_installed(config.trackers)
    if data_log is not None and data_log.exists() and not resume:
        raise InputError(f"--data-log {data_log}: exists already; name another file, or remove it first")
    with initialize(config) as engine:
        run = RunFolder(out)
        with _console(engine) as console, ExitStack() as resources:
            begin(engine, run, console, resume, allow_changes)
            trackers = resources.enter_context(_trackers(engine, run, console))
            if engine.progress.step >= engine.config.training.steps:
                console.say(
                    f"{out}: all {engine.progress.step} steps are done already; to go on, ask for more: "
                    "--set training.steps=… --allow-change schedule"
                )
            elif not run_steps(engine, run, console, data_log, trackers):
                return ExitCode.STOPPED
            engine.world.on_each(partial(finish_check, engine, console))
            engine.world.on_main(lambda: finish(engine, run, trackers))
            engine.world.on_main(lambda: console.say(summary(engine, run)))
            console.say(f"done: {out}")
    return ExitCode.DONE


def finish(engine: Engine, run: RunFolder, trackers: Trackers) -> None:
    """Publish the run's manifest and tell the trackers its digest."""
    manifest = run.finish(engine.config, _mixture(engine), engine.progress, _use(engine))
    trackers.finished(manifest.digest)


def summary(engine: Engine, run: RunFolder) -> str:
    """Where the loss has come to, beside that of the best model that knows only how frequent each token is."""
    assert engine.reader is not None
    rows = read_steps(run.metrics_file)
    before = [0, *(row["consumed_tokens"] for row in rows)]
    counted = [(row["consumed_tokens"] - first, row["loss"]) for first, row in zip(before, rows, strict=False)]
    last = [(tokens, loss) for tokens, loss in counted[-SUMMARY_STEPS:] if loss is not None]
    mean = sum(tokens * loss for tokens, loss in last) / max(1, sum(tokens for tokens, _ in last)) if last else math.nan
    return (
        f"loss {mean:.4f} nats a token (mean of the last {len(last)} steps); "
        f"the unigram entropy of the data is {unigram_entropy(engine.reader):.4f}"
    )


def finish_check(engine: Engine, console: RunConsole) -> None:
    """Wait for the check of the shards that large mixtures have in the background: what it finds is the run's error."""
    if isinstance(engine.reader, MixtureReader):
        if engine.reader.is_checking:
            console.say("waiting for the check of all shards to end")
        engine.reader.finish_check()


def begin(engine: Engine, run: RunFolder, console: RunConsole, resume: bool, allow_changes: Collection[str]) -> None:
    """Prepare the folder, and on `resume` put the engine where the newest good checkpoint was. Collective."""
    world = engine.world
    found = None
    if resume:
        world.on_main(run.check_ours)
        found = world.on_main(lambda: store.newest_verified(run.checkpoints, console.say))
        if found is None:
            console.say(f"{run.path}: no checkpoint yet, starting from the beginning")
    else:
        world.on_main(run.check_free)
    if found is not None:
        go_on_from(found, engine, allow_changes)
        console.say(f"resumed from {found.manifest.name}, {found.manifest.consumed_samples:,} samples consumed")
        switch = describe_switch(_mixture(engine).manifest, found.manifest)
        if switch:
            console.say(switch)
    check_enough(_reader(engine), engine.progress.consumed_samples, engine.samples_left)
    if engine.config.validation.interval:
        for reason in _reasons_against_validation(engine):
            console.say(f"no validation: {reason}")
    world.on_main(lambda: store.remove_unfinished(run.checkpoints))
    world.on_main(lambda: run.begin(engine.config, _mixture(engine)))


def go_on_from(found: LoadedManifest[CheckpointManifest], engine: Engine, allow_changes: Collection[str]) -> None:
    """Put the engine where a verified checkpoint was, if settings and data allow it. Collective."""
    check_resumable(engine.config, _mixture(engine).manifest, found.manifest, allow_changes)
    check_ledger(_reader(engine), found.manifest)
    if found.manifest.step > engine.config.training.steps:
        raise ConfigError(
            f"training.steps: {engine.config.training.steps} is less than the {found.manifest.step} steps that "
            f"{found.manifest.name} has done; ask for more"
        )
    checkpoint.restore(engine, found)


def run_steps(engine: Engine, run: RunFolder, console: RunConsole, data_log: Path | None, trackers: Trackers) -> bool:
    """All steps that are left; whether the end was reached rather than a signal received."""
    config, world = engine.config, engine.world
    meter = _meter(engine)
    sampler = Sampler(engine, run) if config.samples.interval else None
    with (
        StopSignals() as signals,
        _log(engine, run, data_log, trackers) as log,
        _profile(engine, run, console) as profile,
    ):
        meter.restart()
        for batch in engine.batches():
            loss = engine(batch)
            engine.backward(loss)
            report = engine.step()
            if report is None:
                continue

            step, is_end = report.progress.step, report.progress.step == config.training.steps
            metrics = meter.metrics(report)
            if _due(step, config.validation.interval, is_end):
                metrics |= _validate(engine)
            log.step(metrics, _samples(report))
            console.step(metrics)
            if sampler is not None and _due(step, config.samples.interval, is_end):
                log.texts(step, sampler.weights, _write_samples(sampler, console))
            profile.step(step)

            stopping = world.any(signals.received is not None)
            if stopping or _due(step, config.checkpoint.interval, is_end):
                saved = checkpoint.save(engine, run.checkpoints)
                console.say(f"saved {saved.name}")
            if stopping and not is_end:
                console.say(f"stopped by {signals.received or 'a signal'} after step {step}: go on with --resume")
                return False
            meter.restart()
    return True


def _due(step: int, interval: int, is_end: bool) -> bool:
    return interval > 0 and (is_end or step % interval == 0)


def _validate(engine: Engine) -> dict[str, Any]:
    config = engine.config
    if engine.validation_reader is None:
        return {}
    result = validate(
        engine.model,
        engine.world,
        engine.validation_reader,
        config.validation,
        micro_batch_size=config.training.micro_batch_size,
        consumed_samples=engine.progress.consumed_samples,
    )
    for source, loss in result["val_loss_by_source"].items():
        if not math.isfinite(loss):
            raise NonFiniteError(
                f"step {engine.progress.step}: the validation loss of source {source} is {loss}; this state is not "
                "saved: go on from the last checkpoint with --resume and a lower optimizer.lr"
            )
    return result


def _samples(report: StepReport) -> dict[str, Any]:
    return {
        "step": report.progress.step,
        "samples": list(range(report.first_sample, report.progress.consumed_samples)),
    }


def _reasons_against_validation(engine: Engine) -> list[str]:
    if engine.validation_reader is None:
        return ["the mixture that this dataset was packed from is not where it was"]
    if not engine.validation_reader.manifest.validation_share:
        return ["this mixture holds nothing out; mix it with --validation-share to have some"]
    return []


def _mixture(engine: Engine) -> LoadedManifest[SamplesManifest]:
    if engine.mixture is None:
        raise InputError("training into a run folder needs a mixture; use the engine itself for other data")
    return engine.mixture


def _reader(engine: Engine) -> SampleReader:
    assert engine.reader is not None, "a mixture has a reader"
    return engine.reader


def _use(engine: Engine) -> tuple[SourceUse, ...]:
    """What training has drawn from each source so far."""
    return _reader(engine).use(engine.progress.consumed_samples)


def _console(engine: Engine) -> RunConsole:
    training = engine.config.training
    return RunConsole(training.steps, engine.config.logging.interval, quiet=not engine.world.is_main)


def _meter(engine: Engine) -> StepMeter:
    config, world = engine.config, engine.world
    flops = flops_per_token(config.model, config.data.sequence_length)
    return StepMeter(flops, peak_flops(world.device, config.logging.peak_flops), world.size)


@contextmanager
def _trackers(engine: Engine, run: RunFolder, console: RunConsole) -> Iterator[Trackers]:
    """Rank 0's trackers; an error in starting them is raised on every rank."""
    config = engine.config
    settings = recorded(config) | {"mixture": _mixture(engine).manifest.digest}
    opened = open_trackers(config.trackers, run.path, settings, console.say)
    with ExitStack() as stack:
        yield engine.world.on_each(lambda: stack.enter_context(opened) if engine.world.is_main else Trackers())


def _log(engine: Engine, run: RunFolder, data_log: Path | None, trackers: Trackers) -> RunLog:
    paths = (run.metrics_file, run.samples_file if engine.config.samples.interval else None, data_log)
    metrics, samples, data = paths if engine.world.is_main else (None, None, None)
    return RunLog(metrics, samples, data, trackers, engine.progress.step)


def _profile(engine: Engine, run: RunFolder, console: RunConsole) -> ProfileWindow:
    return ProfileWindow(
        engine.config.logging.profile,
        run.profile,
        rank=engine.world.rank,
        steps_done=engine.progress.step,
        say=console.say,
    )


def _write_samples(sampler: Sampler, console: RunConsole) -> list[SampledText]:
    samples = sampler.texts()
    for sample in samples:
        # As Python writes strings: one line each, and no control character reaches the terminal.
        console.say(f"  {sample.prompt!r} -> {sample.text!r}")
    return samples
