"""`zero_optimization` and `activation_checkpointing`: what lies where, and what is computed twice."""

from typing import Any

from tokenmill_trainer.deepspeed.section import Section

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
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
    "stage3_model_persistence_threshold",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save",
    "stage3_module_granularity_threshold",
    "stage3_use_all_reduce_for_fetch_params",
    "stage3_allgather_sequential",
)
"""Sizes of buckets and the like. FSDP2 has its own; checkpoints are sharded, and `pretrain export` gathers."""
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
    section.hint(*HINTS, "mics_hierarchical_params_gather")
    section.only("zero_hpz_partition_size", (0, 1), "for shards within a node use mics_shard_size")
    section.only("elastic_checkpoint", (False,), "checkpoints load on any number of ranks as they are")
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
    """`[activation_checkpointing]`: DeepSpeed's keeps a layer's input and computes the layer again, as `full` does."""
    section.hint("partition_activations", "contiguous_memory_optimization", "synchronize_checkpoint_boundary")
    section.hint("number_checkpoints", "profile")
    section.only("cpu_checkpointing", (False,), "inputs of layers stay on the device")
    section.finish()
    return {"mode": "full"}
