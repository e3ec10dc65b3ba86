"""What a run is watched by, made for an engine and a folder."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tokenmill_trainer.config import recorded
from tokenmill_trainer.engine import Engine
from tokenmill_trainer.model.flops import flops_per_token
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.watching.console import RunConsole
from tokenmill_trainer.watching.metrics import StepMeter
from tokenmill_trainer.watching.peak_flops import peak_flops
from tokenmill_trainer.watching.profiling import ProfileWindow
from tokenmill_trainer.watching.run_log import RunLog
from tokenmill_trainer.watching.trackers import Trackers, open_trackers


def open_console(engine: Engine) -> RunConsole:
    """What rank 0 shows a person."""
    training = engine.config.training
    return RunConsole(training.steps, engine.config.logging.interval, quiet=not engine.world.is_main)


def open_meter(engine: Engine) -> StepMeter:
    """What turns the engine's reports into rows."""
    config, world = engine.config, engine.world
    flops = flops_per_token(config.model, config.data.sequence_length)
    peak = peak_flops(config.logging.peak_flops, world, config.training.precision)
    return StepMeter(flops, peak, world.size)


@contextmanager
def trackers_of(engine: Engine, run: RunFolder, console: RunConsole) -> Iterator[Trackers]:
    """Rank 0's trackers; an error in starting them is raised on every rank."""
    config = engine.config
    settings = recorded(config) | {"mixture": engine.mixture.manifest.digest if engine.mixture else None}
    opened = open_trackers(config.trackers, run.path, settings, console.say)
    with ExitStack() as stack:
        yield engine.world.on_each(lambda: stack.enter_context(opened) if engine.world.is_main else Trackers())


def open_log(engine: Engine, run: RunFolder, data_log: Path | None, trackers: Trackers) -> RunLog:
    """What rank 0 writes of the run."""
    paths = (run.metrics_file, run.samples_file if engine.config.samples.interval else None, data_log)
    metrics, samples, data = paths if engine.world.is_main else (None, None, None)
    return RunLog(metrics, samples, data, trackers, engine.progress.step)


def open_profile(engine: Engine, run: RunFolder, console: RunConsole) -> ProfileWindow:
    """The profile of the steps that `logging.profile` names, on every rank."""
    return ProfileWindow(
        engine.config.logging.profile,
        run.profile,
        rank=engine.world.rank,
        steps_done=engine.progress.step,
        say=console.say,
    )
