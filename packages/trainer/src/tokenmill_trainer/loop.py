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
from tokenmill_trainer.build import initialize
from tokenmill_trainer.checkpoints import checkpoint, store
from tokenmill_trainer.checkpoints.saver import Saver
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.engine import Engine
from tokenmill_trainer.evaluation.validation import validate
from tokenmill_trainer.guard.anomaly import NonFiniteError
from tokenmill_trainer.guard.plain_words import plain_words
from tokenmill_trainer.guard.run_guard import RunGuard
from tokenmill_trainer.guard.signals import StopSignals
from tokenmill_trainer.initial_weights import start_from
from tokenmill_trainer.model.flops import flops_per_token
from tokenmill_trainer.report import StepReport
from tokenmill_trainer.report_page.course import read_course
from tokenmill_trainer.resume import check_ledger, check_resumable, describe_switch
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.watching.console import RunConsole
from tokenmill_trainer.watching.metrics import StepMeter
from tokenmill_trainer.watching.peak_flops import peak_flops
from tokenmill_trainer.watching.step_log import StepLog
from tokenmill_trainer.watching.timing import Phase


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
    if data_log is not None and data_log.exists() and not resume:
        raise InputError(f"--data-log {data_log}: exists already; name another file, or remove it first")
    with initialize(config) as engine, plain_words(engine.world):
        run = RunFolder(out)
        with _console(engine) as console:
            begin(engine, run, console, resume, allow_changes)
            if engine.progress.step >= engine.config.training.steps:
                console.say(
                    f"{out}: all {engine.progress.step} steps are done already; to go on, ask for more: "
                    "--set training.steps=… --allow-change schedule"
                )
            elif not run_steps(engine, run, console, data_log):
                return ExitCode.STOPPED
            engine.world.on_each(partial(finish_check, engine, console))
            engine.world.on_main(partial(_finish, engine, run))
            engine.world.on_main(lambda: console.say(summary(engine, run)))
            console.say(f"done: {out}")
    return ExitCode.DONE


def summary(engine: Engine, run: RunFolder) -> str:
    """Where the loss has come to, beside that of the best model that knows only how frequent each token is."""
    assert engine.reader is not None
    course = read_course(run.metrics_file)
    mean = math.nan if course.loss is None else course.loss
    return (
        f"loss {mean:.4f} nats a token (mean of the last {course.num_last} steps); "
        f"the unigram entropy of the data is {unigram_entropy(engine.reader):.4f}"
    )


def _finish(engine: Engine, run: RunFolder) -> None:
    run.finish(engine.config, _mixture(engine), engine.progress, _use(engine), engine.initial_model)


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
    elif engine.config.init_from:
        engine.initial_model = start_from(engine, engine.config.init_from)
        console.say(f"starts from the weights of {engine.config.init_from}")
    check_enough(_reader(engine), engine.progress.consumed_samples, engine.samples_left)
    if engine.config.validation.interval:
        for reason in _reasons_against_validation(engine):
            console.say(f"no validation: {reason}")
    if engine.byte_lengths is None:
        console.say("no bits per byte: how many bytes a token of this tokenizer spells depends on its neighbours")
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


def run_steps(engine: Engine, run: RunFolder, console: RunConsole, data_log: Path | None) -> bool:
    """All steps that are left; whether the end was reached rather than a signal received."""
    config, world = engine.config, engine.world
    meter = _meter(engine)
    with (
        StopSignals() as signals,
        Saver(engine, run.checkpoints, console.say) as saver,
        RunGuard(engine, run, console.say, settle=saver.finish) as guard,
        _logs(engine, run, data_log) as (metrics_log, samples_log),
    ):
        engine.clock.lap()
        for batch in engine.batches():
            loss = engine(batch)
            engine.backward(loss)
            report = engine.step()
            if report is None:
                continue
            if report.anomaly is not None and guard.respond(report.anomaly):
                for log in (metrics_log, samples_log):
                    log.forget_after(engine.progress.step)
                continue

            step, is_end = report.progress.step, report.progress.step == config.training.steps
            validated = {}
            if _due(step, config.validation.interval, is_end) and (is_end or not world.any(bool(signals.received))):
                validated = _validate(engine)
            metrics = meter.metrics(report, engine.clock.lap()) | validated
            metrics_log.write(metrics)
            samples_log.write(_samples(report))
            console.step(metrics)

            stopping = world.any(signals.received is not None)
            saver.check()
            if stopping or _due(step, config.checkpoint.interval, is_end):
                engine.on_phase("saving")
                with engine.clock.during(Phase.CHECKPOINT):
                    saver.save()
                stopping = stopping or world.any(signals.received is not None)
            if stopping and not is_end:
                saver.finish()
                console.say(f"stopped by {signals.received or 'a signal'} after step {step}: go on with --resume")
                return False
    return True


def _due(step: int, interval: int, is_end: bool) -> bool:
    return interval > 0 and (is_end or step % interval == 0)


def _validate(engine: Engine) -> dict[str, Any]:
    config = engine.config
    if engine.validation_reader is None:
        return {}
    engine.on_phase("validation")
    with engine.clock.during(Phase.VALIDATION):
        result = validate(
            engine.model,
            engine.world,
            engine.validation_reader,
            config.validation,
            micro_batch_size=config.training.micro_batch_size,
            consumed_samples=engine.progress.consumed_samples,
            byte_lengths=engine.byte_lengths,
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
    peak = peak_flops(config.logging.peak_flops, world, config.training.precision)
    return StepMeter(flops, peak, world.size)


@contextmanager
def _logs(engine: Engine, run: RunFolder, data_log: Path | None) -> Iterator[tuple[StepLog, StepLog]]:
    """Rank 0's metrics and samples; both forget steps that are about to be run again."""
    with ExitStack() as files:
        step = engine.progress.step
        paths = (run.metrics_file, data_log) if engine.world.is_main else (None, None)
        metrics, samples = (files.enter_context(StepLog(path, step)) for path in paths)
        yield metrics, samples
