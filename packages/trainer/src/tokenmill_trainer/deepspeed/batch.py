"""The batch triple of DeepSpeed: samples a step = samples a micro-batch · accumulated micro-batches · ranks."""

from tokenmill_trainer.deepspeed.run_values import RunValues
from tokenmill_trainer.deepspeed.section import Section

TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def resolve_batch(root: Section, run: RunValues) -> dict[str, int]:
    """`global_batch_size` and `micro_batch_size` from what is given of the three; none of them: nothing.

    What does not follow from those is the run's where one of the three is "auto". Otherwise nothing is accumulated.
    Errors: `ConfigError` where they do not fit each other on the run's ranks.
    """
    auto = any(root.is_auto(name) for name in (TRAIN, MICRO, STEPS))
    train, micro, steps = root.count(TRAIN), root.count(MICRO), root.count(STEPS)
    for name, value in ((TRAIN, train), (MICRO, micro), (STEPS, steps)):
        if value is not None and value <= 0:
            raise root.error(name, f"{value} must be at least 1")
    if train is None:
        return _without_train(micro, steps, run, auto)
    if micro is None:
        if steps is None and auto:
            return {"global_batch_size": train}
        return {"global_batch_size": train, "micro_batch_size": _share(root, train, steps, run.world_size)}
    _check(root, train, micro, steps, run.world_size)
    return {"global_batch_size": train, "micro_batch_size": micro}


def _without_train(micro: int | None, steps: int | None, run: RunValues, auto: bool) -> dict[str, int]:
    known = {} if micro is None else {"micro_batch_size": micro}
    if steps is None and (micro is None or auto):
        return known
    return {"global_batch_size": (micro or run.micro_batch_size) * (steps or 1) * run.world_size, **known}


def _share(root: Section, train: int, steps: int | None, world_size: int) -> int:
    parts = (steps or 1) * world_size
    if train % parts:
        accumulated = f" × {steps} {STEPS}" if steps else ""
        raise root.error(TRAIN, f"{train} is no multiple of {world_size} ranks{accumulated}")
    return train // parts


def _check(root: Section, train: int, micro: int, steps: int | None, world_size: int) -> None:
    if steps is None and train % (micro * world_size):
        raise root.error(TRAIN, f"{train} is no multiple of {MICRO} {micro} × {world_size} ranks")
    if steps is not None and train != micro * steps * world_size:
        raise root.error(
            TRAIN,
            f"{train} is not {MICRO} {micro} × {STEPS} {steps} × {world_size} ranks = {micro * steps * world_size}; "
            "leave one of the three out",
        )
