"""What the fields of `metrics.jsonl` are called on the page, and how each is drawn."""

from dataclasses import dataclass
from typing import Literal

Unit = Literal["number", "percent", "bytes", "seconds", "count"]
SCALAR, NAMED, LAYERS = "scalar", "named", "layers"


@dataclass(frozen=True)
class Measure:
    """A field of the rows."""

    field: str
    title: str
    about: str
    """Unit and meaning, in a few words."""
    section: str = "Other measures"
    unit: Unit = "number"
    log: bool = False
    """Whether the choice of a logarithmic axis is for this one too."""
    smooth: bool = True
    settles: bool = True
    """Whether its beginning may leave the frame, so that what comes after the first steps can be told apart."""
    always: bool = False
    """Whether it is drawn even where it never changes."""
    shape: str = SCALAR
    """`NAMED` where the field holds an object of numbers by name, `LAYERS` where these add up to a whole."""


LOSS, VALIDATION, BY_SOURCE = "Loss", "Validation", "Loss by source"
OPTIMISER, SPEED, DATA = "Optimisation", "Speed and memory", "Data"

MEASURES = (
    Measure("loss", "Training loss", "nats a token", LOSS, log=True, always=True),
    Measure("val_loss", "Validation loss", "nats a token", LOSS, log=True, smooth=False, always=True),
    Measure("bits_per_byte", "Training bits per byte", "of the text", LOSS, log=True, always=True),
    Measure("val_bits_per_byte", "Validation bits per byte", "of the text", LOSS, log=True, smooth=False, always=True),
    Measure("loss_by_source", "Training loss", "nats a token", BY_SOURCE, log=True, shape=NAMED),
    Measure("val_loss_by_source", "Validation loss", "nats a token", BY_SOURCE, log=True, smooth=False, shape=NAMED),
    Measure("bits_per_byte_by_source", "Training bits per byte", "of the text", BY_SOURCE, log=True, shape=NAMED),
    Measure(
        "val_bits_per_byte_by_source",
        "Validation bits per byte",
        "of the text",
        BY_SOURCE,
        log=True,
        smooth=False,
        shape=NAMED,
    ),
    Measure("harness", "Tasks", "of lm-evaluation-harness, by task and metric", VALIDATION, smooth=False, shape=NAMED),
    Measure("grad_norm", "Gradient norm", "2-norm before clipping", OPTIMISER, log=True, always=True),
    Measure(
        "lr",
        "Learning rate",
        "what the weights were updated with",
        OPTIMISER,
        log=True,
        smooth=False,
        settles=False,
        always=True,
    ),
    Measure("penalty", "Penalty", "minimised besides the loss: z-loss, routers", OPTIMISER),
    Measure("tokens_per_second", "Tokens per second", "over all ranks", SPEED, unit="count", always=True),
    Measure("samples_per_second", "Samples per second", "over all ranks", SPEED, unit="count"),
    Measure("mfu", "Model FLOPs utilisation", "share of the devices' peak", SPEED, unit="percent", always=True),
    Measure(
        "memory_bytes",
        "Memory",
        "the most that a rank has taken",
        SPEED,
        unit="bytes",
        smooth=False,
        settles=False,
        always=True,
    ),
    Measure("time", "Time of a step", "seconds by what they went to", SPEED, unit="seconds", shape=LAYERS),
    Measure("tokens_by_source", "Share of the sources", "of the tokens of a step", DATA, unit="percent", shape=LAYERS),
)
