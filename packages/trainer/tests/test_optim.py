"""Optimizers and groups on one process, each optimizer beside an independent one."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from tokenmill_core.errors import ConfigError
from tokenmill_trainer import Engine, RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import require_verified
from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.optim import GroupConfig, OptimizerConfig, build_optimizer, set_learning_rate
from tokenmill_trainer.optim.adafactor import Adafactor
from tokenmill_trainer.optim.muon import Muon, orthogonalize

SMALL = ModelConfig(vocab_size=11, num_layers=1, hidden_size=16, intermediate_size=24, num_heads=2)


def names_by_group(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[tuple[dict[str, object], set[str]]]:
    """(settings, parameter names) of each group."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    keys = ("weight_decay", "lr_scale", "muon")
    return [
        ({key: group[key] for key in keys if key in group}, {names[p] for p in group["params"]})
        for group in optimizer.param_groups
    ]


def test_vectors_do_not_decay() -> None:
    model = Decoder(SMALL)
    decayed, kept = build_optimizer(model, OptimizerConfig(weight_decay=0.3)).param_groups
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.3, 0.0)
    assert {p.ndim for p in decayed["params"]} == {2}
    assert {p.ndim for p in kept["params"]} == {1}
    assert len(decayed["params"]) + len(kept["params"]) == len(list(model.parameters()))


def test_embeddings_decay_if_they_are_to() -> None:
    for tied in (False, True):
        model = Decoder(SMALL.model_copy(update={"tied_embeddings": tied}))
        groups = names_by_group(model, build_optimizer(model, OptimizerConfig(decay_embeddings=False)))
        kept = next(names for settings, names in groups if settings["weight_decay"] == 0)
        assert "embed_tokens.weight" in kept
        assert "lm_head.weight" not in kept
        assert all("norm" in name for name in kept - {"embed_tokens.weight"})


def test_the_first_rule_that_matches_decides() -> None:
    model = Decoder(SMALL)
    rules = (
        GroupConfig(match=r"q_proj", lr_scale=0.5),
        GroupConfig(match=r"^layers\.0\.self_attn", weight_decay=0.7),
        GroupConfig(match=r"norm", weight_decay=0.01, lr_scale=2.0),
    )
    optimizer = build_optimizer(model, OptimizerConfig(weight_decay=0.1, groups=rules))
    by_name = {name: settings for settings, names in names_by_group(model, optimizer) for name in names}
    assert by_name["layers.0.self_attn.q_proj.weight"] == {"weight_decay": 0.1, "lr_scale": 0.5}
    assert by_name["layers.0.self_attn.k_proj.weight"] == {"weight_decay": 0.7, "lr_scale": 1.0}
    assert by_name["norm.weight"] == {"weight_decay": 0.01, "lr_scale": 2.0}
    assert by_name["layers.0.mlp.up_proj.weight"] == {"weight_decay": 0.1, "lr_scale": 1.0}
    set_learning_rate(optimizer, 0.01)
    assert {group["lr"] for group in optimizer.param_groups} == {0.005, 0.01, 0.02}


def test_rules_that_say_nothing_are_refused() -> None:
    model = Decoder(SMALL)
    with pytest.raises(ConfigError, match=r"optimizer.groups: match 'lora' decides for no parameter"):
        build_optimizer(model, OptimizerConfig(groups=(GroupConfig(match="norm"), GroupConfig(match="lora"))))
    with pytest.raises(ConfigError, match=r"match 'q_proj' decides for no parameter"):
        build_optimizer(model, OptimizerConfig(groups=(GroupConfig(match="_proj"), GroupConfig(match="q_proj"))))
    with pytest.raises(ValidationError, match=r"'\(' is not a regular expression"):
        GroupConfig(match="(")


def test_mup_rates_come_from_the_model() -> None:
    model = Decoder(SMALL.model_copy(update={"mup_base_width": 4}))
    by_name = {
        name: settings["lr_scale"]
        for settings, names in names_by_group(model, build_optimizer(model, OptimizerConfig()))
        for name in names
    }
    assert by_name["layers.0.mlp.up_proj.weight"] == 0.25
    assert by_name["embed_tokens.weight"] == by_name["norm.weight"] == 1.0


def test_what_is_not_offered_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="lion is in none of the libraries this is built on; use adamw, muon or"):
        OptimizerConfig.model_validate({"kind": "lion"})
    with pytest.raises(ValidationError, match=r"betas: \[0.9, 1.0\] must both be at least 0 and below 1"):
        OptimizerConfig(betas=(0.9, 1.0))


@pytest.mark.parametrize("shape", [(8, 8), (5, 12), (12, 5), (3, 6, 10)])
def test_newton_schulz_leaves_directions_and_evens_out_sizes(shape: tuple[int, ...]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    got = left.mT @ orthogonalize(matrix) @ right.mT  # diagonal: the new sizes in the old directions
    new = torch.diagonal(got, dim1=-2, dim2=-1)
    assert (sizes.amax(-1) / sizes.amin(-1) > 2).all()
    torch.testing.assert_close(got, torch.diag_embed(new), atol=1e-9, rtol=0)
    assert ((new > 0.6) & (new < 1.25)).all()


def steps(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], number: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(number):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def some(*shapes: tuple[int, ...]) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def test_muon_is_torch_s_up_to_its_bf16() -> None:
    shapes = ((6, 6), (6, 20), (20, 6))
    ours, theirs, start = some(*shapes), some(*shapes), some(*shapes)
    groups = [{"params": ours, "weight_decay": 0.1, "lr_scale": 1.0}]
    steps(Muon(groups, lr=0.01, momentum=0.95, betas=(0.9, 0.95), eps=1e-8), ours)
    steps(torch.optim.Muon(theirs, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"), theirs)
    for one, other, before in zip(ours, theirs, start, strict=True):
        moved = (one - before).norm()
        assert (one - other).norm() < 0.02 * moved


def test_muon_s_other_parameters_are_adamw_s() -> None:
    ours, theirs = some((6, 6), (9,)), some((6, 6), (9,))
    groups = [{"params": ours, "weight_decay": 0.1, "lr_scale": 1.0, "muon": False}]
    steps(Muon(groups, lr=0.01, momentum=0.95, betas=(0.9, 0.95), eps=1e-8), ours)
    steps(torch.optim.AdamW(theirs, lr=0.01, betas=(0.9, 0.95), weight_decay=0.1, fused=True), theirs)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_muon_takes_hidden_matrices_alone() -> None:
    model = Decoder(SMALL)
    rules = (GroupConfig(match="o_proj", method="adamw"),)
    optimizer = build_optimizer(model, OptimizerConfig(kind="muon", groups=rules))
    taken = {name for settings, names in names_by_group(model, optimizer) if settings["muon"] for name in names}
    matrices = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    assert taken == {f"layers.0.{name}.weight" for name in (*matrices, "mlp.down_proj")}


def test_adafactor_is_torch_s() -> None:
    shapes = ((7, 5), (9,), (3, 6, 4), (1, 8))
    ours, theirs = some(*shapes), some(*shapes)
    steps(Adafactor([{"params": ours}], lr=0.02, weight_decay=0.1), ours)
    steps(torch.optim.Adafactor(theirs, lr=0.02, weight_decay=0.1, foreach=False), theirs)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("zero_stage", [0, 3])
@pytest.mark.parametrize("kind", ["adamw", "muon", "adafactor"])
def test_a_save_before_the_first_step_changes_nothing(
    make_config: Callable[..., RunConfig], source: GlobalBatches, tmp_path: Path, kind: str, zero_stage: int
) -> None:
    config = make_config(optimizer={"kind": kind}, training={"steps": 3, "zero_stage": zero_stage})
    reports = []
    for is_saved in (False, True):
        with initialize(config, source) as engine:
            if is_saved:
                checkpoint.save(engine, tmp_path)
            saved = checkpoint.tensors(engine)["optimizer"]
            assert len(saved) >= len(list(engine.model.parameters()))
            assert not any(value.any() for value in saved.values()), "step 0, and moments of zeros"
            reports.append(losses_of(engine))
    assert reports[0] == reports[1]


@pytest.mark.parametrize("kind", ["adamw", "muon", "adafactor"])
def test_a_parameter_that_never_has_a_gradient_is_no_obstacle(
    make_config: Callable[..., RunConfig],
    make_own_model: Callable[[str], nn.Module],
    source: GlobalBatches,
    tmp_path: Path,
    kind: str,
) -> None:
    def model() -> nn.Module:
        torch.manual_seed(0)
        made = make_own_model("hand-made")
        made.pooler = nn.Linear(32, 32)
        return made

    values = make_config(optimizer={"kind": kind}, training={"steps": 4}).model_dump(exclude={"model"})
    config = RunConfig.model_validate(values)
    with initialize(config, source, model=model()) as engine:
        unbroken = losses_of(engine, tmp_path)
    with initialize(config, source, model=model()) as engine:
        checkpoint.restore(engine, require_verified(tmp_path, pytest.fail))
        assert losses_of(engine) == unbroken[2:]


def losses_of(engine: Engine, folder: Path | None = None) -> list[tuple[float, float]]:
    """(loss, norm) of all steps that are left; saved after step 2 in `folder`."""
    found = []
    for batch in engine.batches():
        engine.backward(engine(batch))
        report = engine.step()
        assert report is not None
        found.append((report.loss, report.grad_norm))
        if folder is not None and report.progress.step == 2:
            checkpoint.save(engine, folder)
    return found


@pytest.mark.parametrize(("kind", "lr"), [("muon", 0.02), ("adafactor", 0.05)])
def test_a_model_learns_with_each(
    make_config: Callable[..., RunConfig], source: GlobalBatches, kind: str, lr: float
) -> None:
    config = make_config(training={"steps": 30}, optimizer={"kind": kind, "lr": lr})
    with initialize(config, RepeatedBatch(source)) as engine:
        losses = []
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            assert report is not None
            losses.append(report.loss)
    assert losses[0] > 6
    assert losses[-1] < 4


class RepeatedBatch:
    """The first batch, again and again."""

    def __init__(self, source: GlobalBatches) -> None:
        self.source = source

    def iterate(self, consumed_samples: int, num_steps: int) -> object:
        return iter([self.source.read(0)] * num_steps)
