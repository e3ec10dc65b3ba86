"""`zero_optimization` and `activation_checkpointing`: what lies where, and what is computed twice."""

from typing import Any

from tokenmill_trainer.deepspeed.section import AUTO, Section

HINTS = (
    "contiguous_gradients",
    "reduce_scatter",
    "reduce_bucket_size",
    "use_multi_rank_bucket_allreduce",
    "allgather_partitions",
    "allgather_bucket_size",
    "overlap_comm",
    "sub_group_size",
    "round_robin_gradients",
    "load_from_fp32_weights",
    "ignore_unused_parameters",
    "memory_efficient_linear",
    "override_module_apply",
    "log_trace_cache_warnings",
    "legacy_stage1",
    "cpu_offload_use_pin_memory",
    "elastic_checkpoint",
    "compute_grad_norm",
    "parameter_alignment",
    "pipeline_loading_checkpoint",
    "enable_sanity_checks",
    "save_muon_momentum_buffer_in_memory",
    "leaf_module",
)
"""Sizes of buckets and the like. FSDP2 has its own; checkpoints are sharded, load on any number of ranks, and
`pretrain export` gathers."""
STAGE3_HINTS = (
    "prefetch_bucket_size",
    "param_persistence_threshold",
    "model_persistence_threshold",
    "max_live_parameters",
    "max_reuse_distance",
    "gather_16bit_weights_on_model_save",
    "gather_fp16_weights_on_model_save",
    "module_granularity_threshold",
    "use_all_reduce_for_fetch_params",
    "allgather_sequential",
)
"""More of them, which are written with the prefix `stage3_` or without it."""
CHECKPOINTING = (
    "partition_activations",
    "number_checkpoints",
    "contiguous_memory_optimization",
    "synchronize_checkpoint_boundary",
    "profile",
)
QUANTIZED = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")


def zero(section: Section) -> dict[str, Any]:
    """What `[training]` gets of it."""
    values: dict[str, Any] = {}
    stage = section.count("stage")
    if stage is not None:
        if stage not in (0, 1, 2, 3):
            raise section.error("stage", f"{stage} is none of 0, 1, 2 and 3")
        values["zero_stage"] = stage
    offload = [_offloads(section, "offload_optimizer"), _offloads(section, "offload_param")]
    offload += [section.flag(name) or False for name in ("cpu_offload", "cpu_offload_param")]
    if any(offload):
        values["cpu_offload"] = True
    shard = section.count("mics_shard_size")
    if shard is not None and shard > 0:
        values["shard_size"] = shard
    section.hint(*HINTS, *STAGE3_HINTS, *(f"stage3_{name}" for name in STAGE3_HINTS), "mics_hierarchical_params_gather")
    section.only("zero_hpz_partition_size", (0, 1), "for shards within a node use mics_shard_size")
    for name in QUANTIZED:
        section.only(name, (False,), "weights and gradients travel as they are")
    section.finish()
    return values


def _offloads(section: Section, key: str) -> bool:
    offload = section.section(key)
    if offload is None:
        return False
    device = offload.text("device") or "none"
    if device not in ("cpu", "none"):
        raise offload.error("device", f"{device!r} is not supported; what is: 'cpu', 'none'")
    offload.hint("pin_memory", "buffer_count", "buffer_size", "max_in_cpu", "fast_init", "pipeline_read")
    offload.hint("pipeline_write", "pipeline", "ratio", "nvme_path")
    offload.finish()
    return device == "cpu"


def activation_checkpointing(section: Section) -> dict[str, Any]:
    """`[activation_checkpointing]`: DeepSpeed's keeps a layer's input and computes the layer again, as `full` does.

    There the section only says how a model that calls `deepspeed.checkpointing` does it. One that asks for nothing,
    all false or null, therefore leaves it to the run.
    """
    asked = any(section.peek(name) not in (None, False, 0, AUTO) for name in CHECKPOINTING)
    section.hint(*CHECKPOINTING)
    section.only("cpu_checkpointing", (False,), "inputs of layers stay on the device")
    section.finish()
    return {"mode": "full"} if asked else {}
