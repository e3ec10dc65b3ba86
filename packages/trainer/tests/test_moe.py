"""Mixture of experts against a reference that goes token by token."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor

from tokenmill_trainer.model import ModelConfig, MoEConfig, build_on_meta, num_parameters
from tokenmill_trainer.model.dispatch import combine, dispatch, sort_by_expert
from tokenmill_trainer.model.flops import flops_per_token, num_active_parameters
from tokenmill_trainer.model.grouped_linear import grouped_matmul, kernel_takes, loop_matmul
from tokenmill_trainer.model.kv_cache import cache_bytes_per_token
from tokenmill_trainer.model.moe import MoE
from tokenmill_trainer.model.presets_moe import MOE_PRESETS
from tokenmill_trainer.model.router import Router, balance_loss, loads

VARIANTS: dict[str, dict[str, Any]] = {
    "mixtral": {"num_experts": 8, "experts_per_token": 2},
    "one expert": {"num_experts": 4, "experts_per_token": 1, "normalise_gates": False},
    "deepseek v2": {
        "num_experts": 8,
        "experts_per_token": 3,
        "num_shared_experts": 2,
        "normalise_gates": False,
        "num_groups": 4,
        "groups_per_token": 2,
        "gate_scale": 16.0,
    },
    "deepseek v3": {
        "num_experts": 12,
        "experts_per_token": 4,
        "num_shared_experts": 1,
        "router": "sigmoid",
        "num_groups": 4,
        "groups_per_token": 2,
        "gate_scale": 2.5,
        "bias_update_rate": 0.001,
    },
}


def make_config(**moe: Any) -> ModelConfig:
    shape = {"vocab_size": 97, "hidden_size": 24, "intermediate_size": 40, "num_layers": 2, "num_heads": 4}
    return ModelConfig.model_validate({**shape, "moe": {"expert_intermediate_size": 20, **moe}})


def make_layer(config: ModelConfig, dtype: torch.dtype = torch.float64) -> MoE:
    layer = MoE(config).to(dtype)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in layer.state_dict().values():
            value.copy_(0.4 * torch.randn(value.shape, generator=generator))
    return layer


def random_input(config: ModelConfig, dtype: torch.dtype = torch.float64) -> Tensor:
    x_BLD = torch.randn(3, 7, config.hidden_size, generator=torch.Generator().manual_seed(1))
    return x_BLD.to(dtype).requires_grad_()


def chosen_one_by_one(config: MoEConfig, scores: Tensor, bias: Tensor | None) -> list[int]:
    """The experts of one token, by the published rules."""
    choice = [float(score) + (0.0 if bias is None else float(bias[e])) for e, score in enumerate(scores)]
    size = config.num_experts // config.num_groups
    best = 2 if config.router == "sigmoid" else 1
    worth = [sum(sorted(choice[g * size : (g + 1) * size])[-best:]) for g in range(config.num_groups)]
    groups = sorted(range(config.num_groups), key=lambda g: -worth[g])[: config.groups_per_token]
    allowed = [e for g in groups for e in range(g * size, (g + 1) * size)]
    return sorted(allowed, key=lambda e: -choice[e])[: config.experts_per_token]


def one_by_one(layer: MoE, config: ModelConfig, x_BLD: Tensor) -> Tensor:
    """The layer's result, token by token and expert by expert."""
    assert config.moe is not None
    rows = []
    for x in x_BLD.flatten(0, 1):
        logits = (layer.gate.weight.float() @ x.float()).float()
        scores = logits.sigmoid() if config.moe.router == "sigmoid" else logits.softmax(0)
        experts = chosen_one_by_one(config.moe, scores.detach(), layer.gate.balance_bias)
        total = sum(scores[e] for e in experts) if config.moe.normalise_gates else 1.0
        y = torch.zeros_like(x)
        for e in experts:
            gate, up, down = (getattr(layer.experts, f"{name}_proj").weight[e] for name in ("gate", "up", "down"))
            y = y + config.moe.gate_scale * scores[e] / total * (down @ (F.silu(gate @ x) * (up @ x)))
        if layer.shared_experts is not None:
            y = y + layer.shared_experts(x)
        rows.append(y)
    return torch.stack(rows).view_as(x_BLD)


@pytest.mark.parametrize("variant", VARIANTS)
def test_results_and_gradients_are_those_of_the_tokens_one_by_one(variant: str) -> None:
    config = make_config(**VARIANTS[variant])
    layer, x = make_layer(config), random_input(config)
    y, report = layer(x)
    expected = one_by_one(layer, config, x)
    torch.testing.assert_close(y, expected, atol=1e-4, rtol=1e-5)  # routers compute in fp32, the rest in fp64
    assert int(report.load_E.sum()) == 21 * VARIANTS[variant]["experts_per_token"], "a token was dropped"

    wanted = [x, *layer.parameters()]
    direction = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=y.dtype)
    for got, right in zip(
        torch.autograd.grad(y, wanted, direction), torch.autograd.grad(expected, wanted, direction), strict=True
    ):
        torch.testing.assert_close(got, right, atol=1e-4, rtol=1e-4)


def test_all_tokens_may_go_to_one_expert() -> None:
    config = make_config(num_experts=4, experts_per_token=1)
    layer, x = make_layer(config), random_input(config)
    with torch.no_grad():
        layer.gate.weight.zero_()
        layer.gate.weight[2] = 10 * x[0, 0] / x[0, 0].norm()
    same = x[0, 0].detach().expand(3, 7, -1)
    y, report = layer(same)
    assert report.load_E.tolist() == [0, 0, 21, 0]
    torch.testing.assert_close(y, one_by_one(layer, config, same), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("sizes", [(16, 24), (7, 9)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_kernel_and_loop_give_the_products_of_each_group(sizes: tuple[int, int], dtype: torch.dtype) -> None:
    size_in, size_out = sizes
    generator, counts = torch.Generator().manual_seed(0), [3, 0, 5, 8, 0]
    x = torch.randn(16, size_in, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(5, size_out, size_in, generator=generator).to(dtype).requires_grad_()
    direction = torch.randn(16, size_out, generator=generator).to(dtype)
    ends = torch.tensor(counts).cumsum(0).int()
    assert kernel_takes(x, weight) == (dtype == torch.bfloat16 and sizes == (16, 24))

    groups = zip(x.double().split(counts), weight.double(), strict=True)
    expected = torch.cat([rows @ matrix.T for rows, matrix in groups])
    expected_gradients = torch.autograd.grad(expected, (x, weight), direction.double())
    tolerance = {"atol": 0.1, "rtol": 0.01} if dtype == torch.bfloat16 else {"atol": 1e-4, "rtol": 1e-5}
    for product in (grouped_matmul, loop_matmul):
        y = product(x, weight, ends)
        torch.testing.assert_close(y.double(), expected, **tolerance)
        gradients = torch.autograd.grad(y, (x, weight), direction)
        for gradient, right in zip(gradients, expected_gradients, strict=True):
            torch.testing.assert_close(gradient, right, **tolerance)


def test_rows_are_sorted_by_expert_and_come_back_to_their_tokens() -> None:
    experts_Tk = torch.tensor([[2, 0], [0, 3], [2, 3]])
    places = sort_by_expert(experts_Tk, 5)
    assert places.ends_E.tolist() == [2, 2, 4, 6, 6]
    x_TD = torch.arange(6.0, dtype=torch.float64).view(3, 2).requires_grad_()
    rows = dispatch(x_TD, places)
    assert rows.tolist() == x_TD[[0, 1, 0, 2, 1, 2]].tolist()
    gates_Tk = torch.tensor([[0.25, 0.5], [1.0, 2.0], [0.125, 1.0]], dtype=torch.float64, requires_grad=True)
    assert combine(rows, gates_Tk, places).tolist() == (x_TD * gates_Tk.sum(1, keepdim=True)).tolist()
    assert torch.autograd.gradcheck(lambda x, gates: combine(dispatch(x, places), gates, places), (x_TD, gates_Tk))


def test_the_router_computes_in_fp32_whatever_the_model_is_cast_to() -> None:
    config = make_config(**VARIANTS["deepseek v3"], aux_loss=0.01)
    layer = make_layer(config, torch.bfloat16)
    x = random_input(config, torch.bfloat16)
    gates, experts, report = layer.gate(x)
    assert (gates.dtype, report.loss.dtype) == (torch.float32, torch.float32)
    wide = make_layer(config, torch.float32)
    wide.load_state_dict(layer.state_dict())
    wide_gates, wide_experts, _ = wide.gate(x.float())
    assert torch.equal(experts, wide_experts)
    assert torch.equal(gates, wide_gates)


def test_the_bias_chooses_and_leaves_the_gates_alone() -> None:
    config = make_config(
        num_experts=4, experts_per_token=2, router="sigmoid", normalise_gates=False, bias_update_rate=0
    )
    router = Router(config)
    x = random_input(config, torch.float32)
    assert router.balance_bias is not None
    router.balance_bias.copy_(torch.tensor([0.0, 0.0, 5.0, 5.0]))
    gates, experts, _ = router(x)
    assert experts.unique().tolist() == [2, 3]
    assert gates.max() < 1
    torch.testing.assert_close(gates, (x @ router.weight.T).sigmoid().gather(-1, experts))


def test_even_loads_have_a_balancing_loss_of_one_and_collapse_one_of_all_experts() -> None:
    even, collapsed = torch.full((2, 12, 4), 0.25), torch.zeros(2, 12, 4)
    collapsed[..., 1] = 1
    assert balance_loss(even, torch.full((2, 4), 6)).item() == pytest.approx(1)
    assert balance_loss(collapsed, torch.tensor([[0, 24, 0, 0]] * 2)).item() == pytest.approx(4)


def test_the_balancing_loss_over_a_micro_batch_is_the_one_transformers_has_for_mixtral() -> None:
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    config = make_config(num_experts=8, experts_per_token=2, aux_loss=0.02, aux_loss_over="micro_batch")
    router, x = Router(config), random_input(config, torch.float32)
    logits = x.flatten(0, 1) @ router.weight.T
    expected = 0.02 * load_balancing_loss_func((logits,), num_experts=8, top_k=2) / 2  # they count a token k times
    loss = router(x)[2].loss
    torch.testing.assert_close(loss, expected)
    for got, right in zip(
        torch.autograd.grad(loss, (x, router.weight)), torch.autograd.grad(expected, (x, router.weight)), strict=True
    ):
        torch.testing.assert_close(got, right, atol=1e-8, rtol=1e-4)


@pytest.mark.parametrize("router", ["softmax", "sigmoid"])
def test_losses_over_sequences_are_the_same_for_any_micro_batches(router: str) -> None:
    config = make_config(num_experts=8, experts_per_token=2, aux_loss=0.02, z_loss=0.1, router=router)
    layer, x = Router(config), random_input(config, torch.float32)
    whole = layer(x)[2].loss
    parts = torch.stack([layer(row[None])[2].loss for row in x])
    torch.testing.assert_close(parts.mean(), whole)
    assert parts.std() > 1e-4


def test_the_z_loss_is_the_mean_squared_log_of_the_softmax_sum() -> None:
    config = make_config(num_experts=4, experts_per_token=1, z_loss=0.5)
    router, x = Router(config), random_input(config, torch.float32)
    logits = (x @ router.weight.T).detach()
    assert router(x)[2].loss.item() == pytest.approx(0.5 * float(logits.exp().sum(-1).log().square().mean()), rel=1e-5)
    assert Router(make_config())(x)[2].loss.item() == 0


def test_loads_are_counted_by_row() -> None:
    experts_BLk = torch.tensor([[[0, 2], [2, 1]], [[3, 2], [3, 2]]])
    assert loads(experts_BLk, 5).tolist() == [[1, 1, 2, 0, 0], [0, 0, 2, 2, 0]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_experts": 8, "num_groups": 3}, "num_groups: 3 must divide num_experts 8"),
        ({"num_groups": 2, "groups_per_token": 3}, "groups_per_token: 3 is more than num_groups 2"),
        (
            {"num_experts": 8, "experts_per_token": 5, "num_groups": 2},
            "experts_per_token: 5 are more than the 4 a token",
        ),
        (
            {"num_experts": 4, "num_groups": 4, "router": "sigmoid", "experts_per_token": 1},
            "num_groups: 4 of one expert",
        ),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make_config(**settings)


def test_experts_are_gated_and_without_biases() -> None:
    for settings in ({"activation": "relu2"}, {"mlp_bias": True}):
        with pytest.raises(ValidationError, match="moe: experts are gated and have no biases"):
            ModelConfig.model_validate({"moe": {}, **settings})


@pytest.mark.parametrize(
    ("preset", "total", "active"),
    [
        ("mixtral-8x7b", 46_702_792_704, 12_879_925_248),
        ("qwen3-30b-a3b", 30_532_122_624, 3_353_032_704),
        ("deepseek-v2-lite", 15_706_484_224, None),
        ("deepseek-v3", 671_026_419_200, 37_552_297_472),
    ],
)
def test_presets_have_their_published_parameter_counts(preset: str, total: int, active: int | None) -> None:
    config = ModelConfig.model_validate({"preset": preset})
    assert preset in MOE_PRESETS
    assert num_parameters(build_on_meta(config)) == total
    if active is not None:
        assert num_active_parameters(config) == active


def test_deepseek_v3_has_its_published_cache_and_flops() -> None:
    config = ModelConfig.model_validate({"preset": "deepseek-v3"})
    assert cache_bytes_per_token(config) == 70_272
    assert flops_per_token(config, 4096) == pytest.approx(250e9, rel=0.01)
