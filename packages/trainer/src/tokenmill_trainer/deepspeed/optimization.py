"""`optimizer`, `scheduler`, `fp16`, `bf16` and what else decides the update."""

from typing import Any

from tokenmill_trainer.deepspeed.run_values import RunValues
from tokenmill_trainer.deepspeed.section import AUTO, Section

OPTIMIZERS = {"AdamW": "adamw", "Adam": "adamw", "Muon": "muon"}
"""DeepSpeed's Adam decays weights as AdamW does, unless `adam_w_mode` is false."""
SCHEDULES = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
WARMUP: dict[str, Any] = {"warmup_num_steps": 1000, "warmup_type": "log"}
DEFAULTS: dict[str, dict[str, Any]] = {
    "WarmupLR": WARMUP,
    "WarmupDecayLR": {**WARMUP, "warmup_max_lr": 0.001, "warmup_min_lr": 0.0},
    "WarmupCosineLR": {**WARMUP, "cos_min_ratio": 0.0001},
}
LOSS_SCALE = {"loss_scale_window": 1000, "hysteresis": 2}
"""DeepSpeed's own values of keys that are not there, where they are not ours."""

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


def scheduler(section: Section, values: Values, run: RunValues) -> None:
    """Put `[schedule]`, the peak rate and the run's length into `values`."""
    kind = section.text("type") or ""
    if kind not in SCHEDULES:
        raise section.error("type", f"{kind!r} is not supported; what is: {', '.join(SCHEDULES)}")
    section.default(params={})
    params = section.section("params")
    if params is not None:
        params.default(**DEFAULTS[kind])
        schedule = {"kind": SCHEDULES[kind], **_warm_up(params)}
        if kind == "WarmupCosineLR":
            schedule["min_lr_ratio"] = params.number("cos_min_ratio")
            schedule["warmup_min_ratio"] = params.number("warmup_min_ratio")
        else:
            schedule |= _ends(params, values, run, decays=kind == "WarmupDecayLR")
        total = params.count("total_num_steps") if kind != "WarmupLR" else None
        values["training"] |= _given({"steps": total})
        values["schedule"] = _given(schedule)
        params.only("last_batch_iteration", (-1,), "a run counts its own steps; take it out")
        params.finish()
    section.finish()


def _warm_up(params: Section) -> Values:
    steps, shape = params.count("warmup_num_steps"), params.text("warmup_type")
    if steps is not None and steps < 0:
        raise params.error("warmup_num_steps", f"{steps} must be at least 0")
    if shape not in (None, "log", "linear"):
        raise params.error("warmup_type", f"{shape!r} is neither 'log' nor 'linear'")
    return {"warmup_steps": None if steps is None else max(2, steps), "warmup_shape": shape}


def _ends(params: Section, values: Values, run: RunValues, *, decays: bool) -> Values:
    """The rate that the warm-up rises from, to which the decay goes back; the peak goes into `values`."""
    peak, low = params.number("warmup_max_lr"), params.number("warmup_min_lr")
    if peak is not None:
        values.setdefault("optimizer", {})["lr"] = peak
    if low is None:
        return {}
    peak = values.get("optimizer", {}).get("lr", run.lr)
    if low != 0 and not 0 < low <= peak:
        raise params.error("warmup_min_lr", f"{low} is not between 0 and the peak rate {peak}")
    ratio = low / peak if low else 0.0
    return {"warmup_min_ratio": ratio, "min_lr_ratio": ratio if decays else None}


def precision(root: Section, values: Values) -> None:
    """Put `training.precision` and `[loss_scale]` into `values`. What is off, with nothing "auto", comes to fp32."""
    if root.peek("bf16") is not None:
        root.hint("bfloat16")  # its older name, which DeepSpeed does not look at then
    bf16 = root.section("bf16") or root.section("bfloat16")
    enabled = {"bf16": _bf16(bf16), "fp16": _fp16(root.section("fp16"), values)}
    on = [name for name, state in enabled.items() if state is True]
    if len(on) == 2:
        raise root.error("fp16.enabled", "bf16 is enabled as well; choose one")
    if on:
        values["training"]["precision"] = on[0]
    elif False in enabled.values() and AUTO not in enabled.values():
        values["training"]["precision"] = "fp32"


def _enabled(section: Section) -> bool | str | None:
    auto, flag = section.is_auto("enabled"), section.flag("enabled")
    return AUTO if auto else flag


def _bf16(section: Section | None) -> bool | str | None:
    if section is None:
        return None
    enabled = _enabled(section)
    section.hint("immediate_grad_update", "check_grad_overflow")
    for name in ("bf16_master_weights_and_grads", "bf16_optimizer_states"):
        section.only(name, (False,), "master weights, sums of gradients and moments are fp32")
    section.finish()
    return enabled


def _fp16(section: Section | None, values: Values) -> bool | str | None:
    if section is None:
        return None
    enabled = _enabled(section)
    if not enabled:
        return enabled  # nothing else of it means anything then
    section.only("loss_scale", (0,), "the scale is dynamic: 0")
    section.only("auto_cast", (False,), "inputs are ids, which have nothing to cast")
    section.only("consecutive_hysteresis", (False,), "hysteresis is counted anew when the scale is doubled")
    section.only("fp16_master_weights_and_grads", (False,), "master weights and sums of gradients are fp32")
    section.default(**LOSS_SCALE)
    scale = {
        "initial_power": section.count("initial_scale_power"),
        "window": section.count("loss_scale_window"),
        "hysteresis": section.count("hysteresis"),
        "min_scale": section.number("min_loss_scale"),
    }
    section.finish()
    values["loss_scale"] = _given(scale)
    return enabled


def _given(values: Values) -> Values:
    return {name: value for name, value in values.items() if value is not None}
