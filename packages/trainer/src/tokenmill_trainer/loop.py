"""Training, in the order things happen. Every rank runs this page; rank 0 alone writes logs and speaks."""

import math
from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tokenmill_core.errors import ExitCode, InputError
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_shards.statistics import unigram_entropy
from tokenmill_trainer.beginning import begin, mixture_of, reader_of
from tokenmill_trainer.build import initialize
from tokenmill_trainer.checkpoints.saver import Saver
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.engine import Engine
from tokenmill_trainer.evaluation.in_loop import InLoopHarness
from tokenmill_trainer.evaluation.sampler import Sampler
from tokenmill_trainer.evaluation.validation import validate
from tokenmill_trainer.guard.anomaly import NonFiniteError
from tokenmill_trainer.guard.plain_words import plain_words
from tokenmill_trainer.guard.run_guard import RunGuard
from tokenmill_trainer.guard.signals import StopSignals
from tokenmill_trainer.report import StepReport
from tokenmill_trainer.report_page.course import read_course
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.watching.console import RunConsole
from tokenmill_trainer.watching.opening import open_console, open_log, open_meter, open_profile, trackers_of
from tokenmill_trainer.watching.timing import Phase
from tokenmill_trainer.watching.trackers import SampledText, Trackers, check_installed


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
    with initialize(config) as engine, plain_words(engine.world):
        run = RunFolder(out)
        with open_console(engine) as console, ExitStack() as resources:
            resources.callback(run.release)
            begin(engine, run, console, resume, allow_changes, data_log)
            trackers = resources.enter_context(trackers_of(engine, run, console))
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
    use = reader_of(engine).use(engine.progress.consumed_samples)
    manifest = run.finish(engine.config, mixture_of(engine), engine.progress, use, engine.initial_model)
    trackers.finished(manifest.digest)


def summary(engine: Engine, run: RunFolder) -> str:
    """Where the loss has come to, beside that of the best model that knows only how frequent each token is."""
    assert engine.reader is not None
    course = read_course(run.metrics_file)
    mean = math.nan if course.loss is None else course.loss
    return (
        f"loss {mean:.4f} nats a token (mean of the last {course.num_last} steps); "
        f"the unigram entropy of the data is {unigram_entropy(engine.reader):.4f}"
    )


def finish_check(engine: Engine, console: RunConsole) -> None:
    """Wait for the check of the shards that large mixtures have in the background: what it finds is the run's error."""
    if isinstance(engine.reader, MixtureReader):
        if engine.reader.is_checking:
            console.say("waiting for the check of all shards to end")
        engine.reader.finish_check()


def run_steps(engine: Engine, run: RunFolder, console: RunConsole, data_log: Path | None, trackers: Trackers) -> bool:
    """All steps that are left; whether the end was reached rather than a signal received."""
    config, world = engine.config, engine.world
    meter = open_meter(engine)
    sampler = Sampler(engine, run) if config.samples.interval else None
    harness = InLoopHarness(engine) if config.harness.interval else None
    with (
        StopSignals() as signals,
        Saver(engine, run.checkpoints, console.say) as saver,
        RunGuard(engine, run, console.say, settle=saver.finish) as guard,
        open_log(engine, run, data_log, trackers) as log,
        open_profile(engine, run, console) as profile,
    ):
        engine.clock.lap()
        for batch in engine.batches():
            loss = engine(batch)
            engine.backward(loss)
            report = engine.step()
            if report is None:
                continue
            if report.anomaly is not None and guard.respond(report.anomaly):
                log.forget_after(engine.progress.step)
                continue

            step, is_end = report.progress.step, report.progress.step == config.training.steps
            measured: dict[str, Any] = {}
            if _due(step, config.validation.interval, is_end) and (is_end or not world.any(bool(signals.received))):
                measured |= _validate(engine)
            if harness is not None and _due(step, config.harness.interval, is_end):
                measured |= harness.metrics()
            metrics = meter.metrics(report, engine.clock.lap()) | measured
            log.step(metrics, _samples(report))
            console.step(metrics)
            if sampler is not None and _due(step, config.samples.interval, is_end):
                engine.on_phase("sampling")
                log.texts(step, sampler.weights, _write_samples(sampler, console))
            profile.step(step)

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


def _write_samples(sampler: Sampler, console: RunConsole) -> list[SampledText]:
    samples = sampler.texts()
    for sample in samples:
        # As Python writes strings: one line each, and no control character reaches the terminal.
        console.say(f"  {sample.prompt!r} -> {sample.text!r}")
    return samples
