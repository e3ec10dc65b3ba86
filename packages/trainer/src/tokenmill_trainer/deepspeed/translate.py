"""A DeepSpeed config, key by key.

    ds.json ─┬ has a counterpart ─▶ settings of ours
             ├ how, not what     ─▶ named as of no effect: buckets, overlap, pinned memory
             └ anything else     ─▶ refused by name

"auto" leaves a value to the run's own settings, and so does a key that is not there, unless DeepSpeed has a value of
its own for it that is not ours.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.deepspeed.batch import resolve_batch
from tokenmill_trainer.deepspeed.memory import activation_checkpointing, zero
from tokenmill_trainer.deepspeed.monitors import monitors
from tokenmill_trainer.deepspeed.optimization import optimizer, precision, scheduler
from tokenmill_trainer.deepspeed.run_values import RunValues
from tokenmill_trainer.deepspeed.section import Section

ABSENT = {
    "flops_profiler": "`--profile FIRST:LAST` writes a profile, and `mfu` is in metrics.jsonl",
    "comms_logger": "`--profile FIRST:LAST` shows communication",
    "curriculum_learning": "a mixture has stages: prep mix --stage",
    "data_efficiency": "a mixture has stages: prep mix --stage",
    "progressive_layer_drop": "take it out",
    "eigenvalue": "take it out",
    "quantize_training": "take it out",
    "autotuning": "take it out",
    "elasticity": "a run goes on with any number of ranks as it is",
    "hybrid_engine": "take it out",
    "amp": "use bf16 or fp16",
    "torch_autocast": "use bf16 or fp16",
}


@dataclass(frozen=True)
class Translated:
    """What a DeepSpeed config comes to."""

    settings: dict[str, Any]
    """Sections of a run's settings, with what the config says of them."""
    hints: tuple[str, ...]
    """Keys that were there and have nothing to set here."""


def read_deepspeed(path: str, run: RunValues) -> Translated:
    """The config in file `path`. Errors: `ConfigError` where it is no JSON, or says what cannot be done here."""
    try:
        document = json.loads(Path(path).read_text("utf-8-sig"), object_pairs_hook=_once_each)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: no DeepSpeed config: {error}") from error
    return translate(document, run, path)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"{twice[0]!r} is there twice; take one of them out")
    return dict(pairs)


def translate(document: Any, run: RunValues, where: str = "deepspeed config") -> Translated:
    """The config `document`; `where` names it in messages."""
    root = Section(where, "", document)
    values: dict[str, Any] = {"training": resolve_batch(root, run)}
    if (section := root.section("optimizer")) is not None:
        values["optimizer"] = optimizer(section)
    if (section := root.section("scheduler")) is not None:
        scheduler(section, values, run)
    precision(root, values)
    if (section := root.section("zero_optimization")) is not None:
        values["training"] |= zero(section)
    if (section := root.section("activation_checkpointing")) is not None:
        values["activation_checkpointing"] = activation_checkpointing(section)
    clipping = root.number("gradient_clipping")
    if clipping is not None:
        values["training"]["max_grad_norm"] = clipping
    monitors(root, values)
    _rest(root)
    return Translated({name: value for name, value in values.items() if value != {}}, tuple(root.hints))


def _rest(root: Section) -> None:
    root.only("communication_data_type", ("fp32",), "gradients are summed in fp32")
    root.only("prescale_gradients", (False,), "gradients are sums over ranks, of a loss that is divided already")
    root.only("gradient_predivide_factor", (1.0,), "gradients are sums over ranks, of a loss that is divided already")
    root.only("sparse_gradients", (False,), "gradients of embeddings are dense")
    root.only("disable_allgather", (False,), "take it out")
    types = root.section("data_types")
    if types is not None:
        types.only("grad_accum_dtype", ("fp32",), "gradients are summed in fp32")
        types.finish()
    for key, remedy in ABSENT.items():
        root.off(key, remedy)
    root.hint("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "dump_state", "disable_python_gc")
    root.hint("wall_clock_breakdown", "memory_breakdown", "dataloader_drop_last", "log_level")
    root.hint("compile", "checkpoint", "aio")
    root.finish()
