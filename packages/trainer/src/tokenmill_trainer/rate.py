"""The learning rate of a step, from the run's settings and how far it has come."""

from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.optim import learning_rate
from tokenmill_trainer.report import Progress


def rate_of_next_step(config: RunConfig, progress: Progress) -> float:
    """Of the step after `progress`, from the samples consumed after it, in units of a full step.

    While the batch does not change these are whole numbers of steps. The run is as long as what is consumed and what is
    to come, so that a rate is right too where a run goes on with another batch size. Samples that a rollback has jumped
    over count for neither: step n has the rate it would have had.
    """
    plan, consumed, steps_left = config.batch_plan, progress.consumed_samples, config.training.steps - progress.step
    tokens = config.schedule.warmup_tokens
    warmup = plan.after(0, config.schedule.warmup_steps) if tokens is None else tokens / config.data.sequence_length
    jumped = progress.jumped_samples
    lengths = (plan.after(consumed, 1) - jumped, plan.after(consumed, steps_left) - jumped, warmup)
    after, total, warmup = (length / plan.final_size for length in lengths)
    return learning_rate(after, total, warmup, config.optimizer.lr, config.schedule)
