"""The batch triple of DeepSpeed: samples a step = samples a micro-batch · accumulated micro-batches · ranks."""

from tokenmill_trainer.deepspeed.section import Section

TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def resolve_batch(root: Section, world_size: int) -> dict[str, int]:
    """`global_batch_size` and `micro_batch_size` from what is given of the three; none of them: nothing.

    Errors: `ConfigError` where they do not fit each other on `world_size` ranks.
    """
    train, micro, steps = root.count(TRAIN), root.count(MICRO), root.count(STEPS)
    for name, value in ((TRAIN, train), (MICRO, micro), (STEPS, steps)):
        if value is not None and value <= 0:
            raise root.error(name, f"{value} must be at least 1")
    if train is None and micro is None:
        if steps is None:
            return {}
        raise root.error(STEPS, f"{steps} says nothing of the batch alone; give {TRAIN} or {MICRO} too")
    if train is None:
        assert micro is not None
        return {"global_batch_size": micro * (steps or 1) * world_size, "micro_batch_size": micro}
    if micro is None:
        parts = (steps or 1) * world_size
        if train % parts:
            accumulated = f" × {steps} {STEPS}" if steps else ""
            raise root.error(TRAIN, f"{train} is no multiple of {world_size} ranks{accumulated}")
        return {"global_batch_size": train, "micro_batch_size": train // parts}
    _check(root, train, micro, steps, world_size)
    return {"global_batch_size": train, "micro_batch_size": micro}


def _check(root: Section, train: int, micro: int, steps: int | None, world_size: int) -> None:
    if steps is None and train % (micro * world_size):
        raise root.error(TRAIN, f"{train} is no multiple of {MICRO} {micro} × {world_size} ranks")
    if steps is not None and train != micro * steps * world_size:
        raise root.error(
            TRAIN,
            f"{train} is not {MICRO} {micro} × {STEPS} {steps} × {world_size} ranks = {micro * steps * world_size}; "
            "leave one of the three out",
        )
