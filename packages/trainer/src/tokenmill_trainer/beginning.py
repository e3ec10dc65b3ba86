"""How a run begins or goes on: its folder, the newest good checkpoint or start weights, data enough for the rest."""

from collections.abc import Collection
from pathlib import Path

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.manifest import CheckpointManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_shards.open_samples import SamplesManifest
from tokenmill_shards.reading.samples import SampleReader
from tokenmill_trainer.batches.open_data import check_enough
from tokenmill_trainer.checkpoints import checkpoint, store
from tokenmill_trainer.engine import Engine
from tokenmill_trainer.evaluation.sampler import check_prompts
from tokenmill_trainer.evaluation.tasks import check_tasks
from tokenmill_trainer.initial_weights import start_from
from tokenmill_trainer.resume import check_ledger, check_resumable, describe_switch
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.watching.console import RunConsole
from tokenmill_trainer.watching.step_log import check_appendable, each_step


def begin(
    engine: Engine,
    run: RunFolder,
    console: RunConsole,
    resume: bool,
    allow_changes: Collection[str],
    data_log: Path | None = None,
) -> None:
    """Prepare the folder, and on `resume` put the engine where the newest good checkpoint was. Collective.

    What can be refused is refused before the folder is written to.
    """
    world = engine.world
    found = None
    if resume:
        world.on_main(run.check_ours)
        world.on_main(run.hold)
        found = world.on_main(lambda: store.newest_verified(run.checkpoints, console.say))
        if found is None:
            console.say(f"{run.path}: no checkpoint yet, starting from the beginning")
    else:
        world.on_main(run.check_free)
        world.on_main(run.hold)
    if found is not None:
        world.on_main(lambda: _check_initial_model(engine.config.init_from, run))
        go_on_from(found, engine, allow_changes)
        console.say(f"resumed from {found.manifest.name}, {found.manifest.consumed_samples:,} samples consumed")
        switch = describe_switch(mixture_of(engine).manifest, found.manifest)
        if switch:
            console.say(switch)
    elif engine.config.init_from:
        engine.initial_model = start_from(engine, engine.config.init_from)
        console.say(f"starts from the weights of {engine.config.init_from}")
    check_enough(reader_of(engine), engine.progress.consumed_samples, engine.samples_left)
    if engine.config.validation.interval:
        for reason in _reasons_against_validation(engine):
            console.say(f"no validation: {reason}")
    if engine.byte_lengths is None:
        console.say("no bits per byte: how many bytes a token of this tokenizer spells depends on its neighbours")
    world.on_main(lambda: _check_outputs(engine, run, data_log))
    world.on_main(lambda: store.remove_unfinished(run.checkpoints))
    world.on_main(lambda: run.begin(engine.config, mixture_of(engine)))
    console.say(describe(engine, run))


def describe(engine: Engine, run: RunFolder) -> str:
    """What is about to be trained, on what, where: a line for a person to check."""
    config, world, data = engine.config, engine.world, mixture_of(engine).manifest
    training = config.training
    parameters = sum(parameter.numel() for parameter in engine.model.parameters())
    batch = config.batch_plan.size_at(engine.progress.consumed_samples)
    ranks = "" if world.size == 1 else f" × {world.size}, ZeRO {training.zero_stage}"
    first, last = engine.progress.step + 1, training.steps
    return (
        f"{parameters:,} parameters, {training.precision} on {world.device.type}{ranks}; "
        f"{f'steps {first:,} to {last:,}' if first <= last else 'no steps left'} of "
        f"{batch:,} × {config.data.sequence_length:,} tokens of {data.name} -> {run.path}"
    )


def _check_initial_model(path: str | None, run: RunFolder) -> None:
    """A run that has a checkpoint names no other model to start from than its own."""
    if path is None:
        return
    own = run.read_config().init_from if run.config_file.exists() else None
    if path != own:
        raise ConfigError(
            f"init_from: {path}, but this run goes on with the weights of its checkpoint, and started from "
            f"{own or 'random ones'}; leave --init-from out"
        )


def _check_outputs(engine: Engine, run: RunFolder, data_log: Path | None) -> None:
    """All that the run reads and writes besides as it goes is there and whole."""
    if engine.progress.step >= engine.config.training.steps:
        return
    if engine.config.samples.interval:
        check_prompts(engine.config.samples, mixture_of(engine))
    if engine.config.harness.interval:
        check_tasks(engine.config.harness.tasks, engine.config.harness.tasks_folder, "harness.tasks")
    for path in (run.metrics_file, run.samples_file):
        for _ in each_step(path):
            pass
    if data_log is not None:
        check_appendable(data_log, "--data-log")


def go_on_from(found: LoadedManifest[CheckpointManifest], engine: Engine, allow_changes: Collection[str]) -> None:
    """Put the engine where a verified checkpoint was, if settings and data allow it. Collective."""
    check_resumable(engine.config, mixture_of(engine).manifest, found.manifest, allow_changes)
    check_ledger(reader_of(engine), found.manifest)
    if found.manifest.step > engine.config.training.steps:
        raise ConfigError(
            f"training.steps: {engine.config.training.steps} is less than the {found.manifest.step} steps that "
            f"{found.manifest.name} has done; ask for more"
        )
    checkpoint.restore(engine, found)


def _reasons_against_validation(engine: Engine) -> list[str]:
    if engine.validation_reader is None:
        return ["the mixture that this dataset was packed from is not where it was"]
    if not engine.validation_reader.manifest.validation_share:
        return ["this mixture holds nothing out; mix it with --validation-share to have some"]
    return []


def mixture_of(engine: Engine) -> LoadedManifest[SamplesManifest]:
    """What the engine trains on. Errors: `InputError` where that is data of another making."""
    if engine.mixture is None:
        raise InputError("training into a run folder needs a mixture; use the engine itself for other data")
    return engine.mixture


def reader_of(engine: Engine) -> SampleReader:
    """The reader of what the engine trains on."""
    assert engine.reader is not None, "a mixture has a reader"
    return engine.reader
