"""`optimizer`, `scheduler`, `fp16`, `bf16` and what else decides the update."""

from typing import Any

from tokenmill_trainer.deepspeed.section import Section

OPTIMIZERS = {"AdamW": "adamw", "Adam": "adamw", "Muon": "muon"}
"""DeepSpeed's Adam decays weights as AdamW does, unless `adam_w_mode` is false."""
SCHEDULES = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
WARMUP_STEPS, COSINE_FLOOR, WINDOW, HYSTERESIS = 1000, 0.0001, 1000, 2
"""DeepSpeed's own defaults, where they are not ours."""
LOG = "log"

Values = dict[str, Any]


def optimizer(section: Section) -> Values:
    """`[optimizer]`."""
    kind = section.text("type") or "AdamW"
    known = {name.lower(): ours for name, ours in OPTIMIZERS.items()}
    if kind.lower() not in known:
        raise section.error("type", f"{kind!r} is not supported; what is: {', '.join(OPTIMIZERS)}")
    section.hint("legacy_fusion")
    params = section.section("params")
    values: Values = {"kind": known[kind.lower()]}
    if params is not None:
        params.only("adam_w_mode", (True,), "decay that is part of the gradient (L2) is not offered")
        params.only("amsgrad", (False,), "leave it out")
        params.only("bias_correction", (True,), "leave it out")
        params.hint("torch_adam", "fused", "foreach", "ns_method")
        given = {name: params.number(name) for name in ("lr", "eps", "weight_decay", "momentum")}
        values |= {**given, "betas": params.numbers("betas")}
        params.finish()
    section.finish()
    return _given(values)


def scheduler(section: Section, values: Values) -> None:
    """Put `[schedule]`, the peak rate and the run's length into `values`."""
    kind = section.text("type") or ""
    if kind not in SCHEDULES:
        raise section.error("type", f"{kind!r} is not supported; what is: {', '.join(SCHEDULES)}")
    params = section.section("params") or Section("", "", {})
    steps = params.count("warmup_num_steps")
    shape = params.text("warmup_type") or LOG
    if shape not in (LOG, "linear"):
        raise params.error("warmup_type", f"{shape!r} is neither 'log' nor 'linear'")
    schedule: Values = {
        "kind": SCHEDULES[kind],
        "warmup_steps": max(2, WARMUP_STEPS if steps is None else steps),
        "warmup_shape": shape,
    }
    if kind == "WarmupCosineLR":
        floor = params.number("cos_min_ratio")
        schedule |= {
            "min_lr_ratio": COSINE_FLOOR if floor is None else floor,
            "warmup_min_ratio": params.number("warmup_min_ratio"),
        }
    else:
        peak, start = params.number("warmup_max_lr"), params.number("warmup_min_lr")
        if kind == "WarmupDecayLR":
            schedule["min_lr_ratio"] = 0.0
        if peak is not None:
            values.setdefault("optimizer", {})["lr"] = peak
        if start:
            schedule["warmup_min_ratio"] = _ratio(params, start, values.get("optimizer", {}).get("lr"))
    total = params.count("total_num_steps") if kind != "WarmupLR" else None
    if total is not None:
        values["training"]["steps"] = total
    params.finish()
    section.finish()
    values["schedule"] = _given(schedule)


def _ratio(params: Section, start: float, peak: float | None) -> float:
    if peak is None:
        raise params.error("warmup_min_lr", f"{start} is a share of the peak here; give warmup_max_lr too")
    if not 0 <= start <= peak:
        raise params.error("warmup_min_lr", f"{start} is not between 0 and the peak rate {peak}")
    return start / peak


def precision(root: Section, values: Values) -> None:
    """Put `training.precision` and `[loss_scale]` into `values`."""
    enabled = []
    bf16, fp16 = root.section("bf16") or root.section("bfloat16"), root.section("fp16")
    if bf16 is not None:
        if bf16.flag("enabled"):
            enabled.append("bf16")
        bf16.hint("immediate_grad_update", "check_grad_overflow")
        for name in ("bf16_master_weights_and_grads", "bf16_optimizer_states"):
            bf16.only(name, (False,), "master weights, sums of gradients and moments are fp32")
        bf16.finish()
    if fp16 is not None and _fp16(fp16, values):
        enabled.append("fp16")
    if len(enabled) == 2:
        raise root.error("fp16.enabled", "bf16 is enabled as well; choose one")
    if enabled:
        values["training"]["precision"] = enabled[0]


def _fp16(section: Section, values: Values) -> bool:
    enabled = section.flag("enabled")
    section.only("loss_scale", (0,), "the scale is dynamic: 0")
    section.only("auto_cast", (False,), "inputs are ids, which have nothing to cast")
    section.only("consecutive_hysteresis", (False,), "hysteresis is counted anew when the scale is doubled")
    section.only("fp16_master_weights_and_grads", (False,), "master weights and sums of gradients are fp32")
    window, hysteresis = section.count("loss_scale_window"), section.count("hysteresis")
    scale = {
        "initial_power": section.count("initial_scale_power"),
        "window": WINDOW if window is None else window,
        "hysteresis": HYSTERESIS if hysteresis is None else hysteresis,
        "min_scale": section.number("min_loss_scale"),
    }
    section.finish()
    if enabled:
        values["loss_scale"] = _given(scale)
    return bool(enabled)


def _given(values: Values) -> Values:
    return {name: value for name, value in values.items() if value is not None}
