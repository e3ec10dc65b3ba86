"""All settings of a run. Each section stands beside its owner; this is the whole."""

from itertools import pairwise
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from tokenmill_core.config import validate_config
from tokenmill_core.errors import ConfigError
from tokenmill_core.manifest import Frozen
from tokenmill_core.mixture_manifest import MixtureManifest, PackedManifest
from tokenmill_shards.mixing.amounts import MAX_TOKENS, Tokens
from tokenmill_trainer.batches.batch_plan import BatchPlan, RampSize, RampTokens
from tokenmill_trainer.batches.data import DataConfig
from tokenmill_trainer.checkpoints.retention import CheckpointConfig
from tokenmill_trainer.evaluation.harness_config import HarnessConfig
from tokenmill_trainer.evaluation.prompts import SamplesConfig
from tokenmill_trainer.evaluation.validation import ValidationConfig
from tokenmill_trainer.guard.judge import GuardConfig
from tokenmill_trainer.layout.config import LayoutConfig
from tokenmill_trainer.layout.fp8 import Fp8Config
from tokenmill_trainer.layout.mesh import check_ranks
from tokenmill_trainer.layout.recompute import RecomputeConfig
from tokenmill_trainer.loss import LossConfig
from tokenmill_trainer.model import ModelConfig
from tokenmill_trainer.optim import OptimizerConfig, ScheduleConfig
from tokenmill_trainer.optim.ema import EmaConfig
from tokenmill_trainer.optim.loss_scale import LossScaleConfig
from tokenmill_trainer.watching.metrics import LoggingConfig
from tokenmill_trainer.watching.trackers import TrackersConfig
from tokenmill_trainer.world import Device


class TrainingConfig(LayoutConfig):
    """How long, in what portions, and how the model lies over the ranks."""

    model_config = ConfigDict(allow_inf_nan=False)

    steps: int = Field(default=1000, gt=0, le=MAX_TOKENS)
    """Optimizer steps of the whole run; the schedule ends with them."""
    tokens: Tokens | None = None
    """Tokens of the whole run, such as `10B`, in place of `steps`, which become as many as reach them."""
    global_batch_size: int = Field(default=32, gt=0, le=10**9)
    """Samples a step, over all ranks; with a ramp, once it is over."""
    batch_ramp: tuple[tuple[RampTokens, RampSize], ...] = ()
    """Smaller steps at first, such as [[0, 64], ["1B", 128]]: from so many consumed tokens on so many samples."""
    micro_batch_size: int = Field(default=8, gt=0, le=10**9)
    """Samples a rank works on at once; what is left of its share is accumulated."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Of the start weights. The order of the data has its own seed, in the mixture."""
    device: Device = "auto"
    """Where to compute: `cuda`, `cpu`, or `auto`, a GPU where there is one."""
    max_grad_norm: float = Field(default=1.0, ge=0)
    """The gradient is scaled down to this 2-norm; 0 leaves it."""
    compile: bool = False
    """Whether torch.compile works on each block; the first step then takes longer."""

    @model_validator(mode="after")
    def _ramp_rises(self) -> "TrainingConfig":
        if not self.batch_ramp:
            return self
        tokens = [tokens for tokens, _ in self.batch_ramp]
        if tokens[0] != 0 or any(later <= earlier for earlier, later in pairwise(tokens)):
            raise ValueError(f"batch_ramp: its tokens are {tokens}; they must begin with 0 and rise")
        if self.batch_ramp[-1][1] != self.global_batch_size:
            raise ValueError(
                f"global_batch_size: {self.global_batch_size} is not what batch_ramp ends with; set it to "
                f"{self.batch_ramp[-1][1]}"
            )
        return self


class RunConfig(Frozen):
    """Settings of `pretrain run`, as they stand in its TOML file."""

    init_from: str | None = None
    """Model folder whose weights a new run starts from, exported or imported; `--init-from` sets it."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    loss: LossConfig = LossConfig()
    loss_scale: LossScaleConfig = LossScaleConfig()
    ema: EmaConfig = EmaConfig()
    training: TrainingConfig = TrainingConfig()
    activation_checkpointing: RecomputeConfig = RecomputeConfig()
    fp8: Fp8Config = Fp8Config()
    checkpoint: CheckpointConfig = CheckpointConfig()
    logging: LoggingConfig = LoggingConfig()
    validation: ValidationConfig = ValidationConfig()
    guard: GuardConfig = GuardConfig()
    samples: SamplesConfig = SamplesConfig()
    harness: HarnessConfig = HarnessConfig()
    trackers: TrackersConfig = TrackersConfig()

    @model_validator(mode="after")
    def _sections_agree(self) -> "RunConfig":
        for size in self.batch_sizes:
            if size % self.training.micro_batch_size:
                raise ValueError(_not_a_multiple(self, size, 1))
        if self.training.tokens is not None:
            return self  # as many steps as `fitted` says; they are looked at again then
        if self.schedule.warmup_steps > self.training.steps:
            raise ValueError(
                f"schedule.warmup_steps: {self.schedule.warmup_steps} is more than training.steps "
                f"{self.training.steps}; the peak rate would never be reached: lower it"
            )
        warmup = self.schedule.warmup_tokens or 0
        total = self.batch_plan.after(0, self.training.steps) * self.data.sequence_length
        if warmup > total:
            raise ValueError(
                f"schedule.warmup_tokens: {warmup} is more than the run's {total} tokens; the peak rate would never be "
                "reached: lower it"
            )
        return self

    @model_validator(mode="after")
    def _positions_reach(self) -> "RunConfig":
        known, length = self.model.max_positions, self.data.sequence_length
        if "sequence_length" not in self.data.model_fields_set or self.model.position != "learned":
            return self  # packed data may bring a length of its own
        if known is not None and known < length:
            raise ValueError(
                f"data.sequence_length: {length} tokens need more than model.max_positions {known} learned positions; "
                "raise it, or lower the length"
            )
        return self

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The samples a step that occur in the run, in order."""
        return self.batch_plan.sizes

    @property
    def batch_plan(self) -> BatchPlan:
        """Samples of each step, from samples consumed before it."""
        ramp = self.training.batch_ramp
        if not ramp:
            return BatchPlan.constant(self.training.global_batch_size)
        return BatchPlan.ramp(ramp, self.data.sequence_length)


def check_world_size(config: RunConfig, world_size: int) -> None:
    """The ranks make whole copies of the model, and each gets the same number of micro-batches, or `ConfigError`."""
    check_ranks(config.training, world_size)
    for size in config.batch_sizes:
        if size % (config.training.micro_batch_size * world_size):
            raise ConfigError(_not_a_multiple(config, size, world_size))


def _not_a_multiple(config: RunConfig, size: int, world_size: int) -> str:
    micro = config.training.micro_batch_size
    setting = "batch_ramp" if config.training.batch_ramp else "global_batch_size"
    ranks, remedy = (f" × {world_size} ranks", " or lower the micro-batch") if world_size > 1 else ("", "")
    return (
        f"training.{setting}: {size} is not a multiple of training.micro_batch_size {micro}{ranks}; "
        f"set it to {_next_multiple(size, micro * world_size)}{remedy}"
    )


def fitted(config: RunConfig, data: MixtureManifest | PackedManifest) -> RunConfig:
    """`config` with what is left open taken over from `data`: the vocabulary, and the length of packed sequences.

    Errors: `ConfigError` where what is given does not fit it.
    """
    size = config.model.vocab_size or data.padded_vocab_size
    if size < data.vocab_size:
        raise ConfigError(
            f"model.vocab_size: {size} rows cannot hold the ids of the mixture's tokenizer, which has "
            f"{data.vocab_size}; leave the setting out to take them over"
        )
    length = config.data.sequence_length
    if isinstance(data, PackedManifest) and length != data.sequence_length:
        if "sequence_length" in config.data.model_fields_set:
            raise ConfigError(
                f"data.sequence_length: {length} is asked for, but {data.name} is packed with {data.sequence_length}; "
                f"leave the setting out to take it over, or say --set data.sequence_length={data.sequence_length}, "
                "or pack again"
            )
        length = data.sequence_length
    sections = {
        "model": config.model.model_copy(update={"vocab_size": size}),
        "data": config.data.model_copy(update={"sequence_length": length}),
    }
    return with_steps(config.model_copy(update=sections))


def with_steps(config: RunConfig) -> RunConfig:
    """`config` with `training.tokens` turned into steps. Errors: `ConfigError` where settings no longer agree."""
    tokens, length = config.training.tokens, config.data.sequence_length
    if tokens is not None:
        steps = config.batch_plan.steps_for(-(-tokens // length))
        training = config.training.model_copy(update={"tokens": None, "steps": steps})
        config = config.model_copy(update={"training": training})
    return validate_config(RunConfig, config.model_dump(), "settings")


def recorded(config: RunConfig, *, own_model: bool = False) -> dict[str, Any]:
    """The settings as manifests hold them: without those of where the data lies and how it is read and shown.

    Of an `own_model`, which no setting describes, only the size of the vocabulary.
    """
    values = config.model_dump(
        mode="json",
        exclude={
            "init_from": True,
            "data": {"mixture", "num_workers", "verify", "cache", "cache_size"},
            "logging": {"interval", "peak_flops", "profile"},
            "checkpoint": {"asynchronous"},
            "samples": True,
            "harness": True,
            "trackers": True,
        },
    )
    if own_model:
        values["model"] = {"vocab_size": config.model.vocab_size}
    return values


def _next_multiple(value: int, of: int) -> int:
    return -(-value // of) * of
