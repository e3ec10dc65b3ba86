"""Loads, biases and the routers' losses as the decoder hands them out."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.model.balance import forget_loads, update_biases
from tokenmill_trainer.model.init import initialize_weights

BALANCED = {
    "num_experts": 8,
    "experts_per_token": 2,
    "expert_intermediate_size": 20,
    "router": "sigmoid",
    "bias_update_rate": 0.01,
}


def make_decoder(num_layers: int = 2, **moe: Any) -> Decoder:
    shape = {"vocab_size": 97, "hidden_size": 24, "intermediate_size": 40, "num_layers": num_layers, "num_heads": 4}
    model = Decoder(ModelConfig.model_validate({**shape, "init_std": 0.2, "moe": {**BALANCED, **moe}}))
    initialize_weights(model, 0)
    return model


def random_tokens(rows: int = 4) -> Tensor:
    return torch.randint(0, 97, (rows, 16), generator=torch.Generator().manual_seed(3))


def biases(model: Decoder) -> list[Tensor]:
    return [router.balance_bias.clone() for router in model.routers if router.balance_bias is not None]


def step_loads(model: Decoder) -> Tensor:
    seen = [router.step_load_E for router in model.routers]
    return torch.stack([load for load in seen if load is not None])


def test_biases_move_by_the_loads_of_the_whole_step_and_of_all_ranks() -> None:
    model = make_decoder()
    for row in random_tokens():
        model(row[None])
    here = step_loads(model)
    assert here.shape == (2, 8)
    assert here.sum(1).tolist() == [4 * 16 * 2] * 2
    there = torch.tensor([[0, 100, 0, 28, 0, 0, 0, 0]] * 2)

    def add_the_other_rank(loads: Tensor) -> None:
        loads += there

    update_biases(model.routers, add_the_other_rank)
    for bias, load in zip(biases(model), (here + there).double(), strict=True):
        torch.testing.assert_close(bias, (0.01 * torch.sign(load.mean() - load)).float())
    assert all(router.step_load_E is None for router in model.routers)


def test_an_expert_with_exactly_its_share_keeps_its_bias() -> None:
    model = make_decoder()
    for router in model.routers:
        router.step_load_E = torch.tensor([3, 3, 3, 3, 3, 3, 2, 4])
    update_biases(model.routers, lambda loads: None)
    assert biases(model)[0].tolist() == pytest.approx([0, 0, 0, 0, 0, 0, 0.01, -0.01])


@pytest.mark.parametrize(("rate", "num_biases"), [(None, 0), (0.0, 2)])
def test_without_a_rate_nothing_moves(rate: float | None, num_biases: int) -> None:
    model = make_decoder(bias_update_rate=rate)
    model(random_tokens())
    update_biases(model.routers, lambda loads: None)
    assert len(biases(model)) == num_biases
    assert not any(bias.any() for bias in biases(model))


def test_only_training_counts_and_a_step_that_is_not_taken_does_not() -> None:
    model = make_decoder()
    with torch.no_grad():
        model(random_tokens())
    assert all(router.step_load_E is None for router in model.routers)
    model(random_tokens())
    forget_loads(model.routers)
    assert all(router.step_load_E is None for router in model.routers)


def test_biases_make_loads_even() -> None:
    model = make_decoder()

    def unevenness() -> float:
        model(random_tokens(16))
        loads = step_loads(model).float()
        return float((loads.max(1).values / loads.mean(1)).mean())

    before = unevenness()
    for _ in range(60):
        forget_loads(model.routers)
        unevenness()
        update_biases(model.routers, lambda loads: None)
    after = unevenness()
    assert before > 1.4
    assert after < 1.2


@pytest.mark.parametrize("name", ["aux_loss", "z_loss"])
def test_minimising_a_router_loss_alone_lowers_it(name: str) -> None:
    model = make_decoder(bias_update_rate=None, router="softmax", **{name: 1.0})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(20):
        model(random_tokens())
        loss = model.auxiliary_loss()
        assert loss is not None
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.98 * losses[0]


def test_the_losses_of_all_layers_are_summed_and_a_dense_model_has_none() -> None:
    model = make_decoder(z_loss=0.1, num_dense_layers=1)
    model(random_tokens())
    loss = model.auxiliary_loss()
    assert loss is not None
    model(random_tokens()[:2])
    first = model.auxiliary_loss()
    model(random_tokens()[2:])
    second = model.auxiliary_loss()
    assert first is not None
    assert second is not None
    torch.testing.assert_close((first + second) / 2, loss)
    dense = Decoder(ModelConfig(vocab_size=97, hidden_size=24, num_layers=1, num_heads=4))
    dense(random_tokens())
    assert dense.auxiliary_loss() is None
    assert dense.routers == []


def plain(model: Decoder) -> None:
    del model


def repeated(model: Decoder) -> None:
    for index, block in enumerate(model.layers):
        model.layers[index] = checkpoint_wrapper(block)


def compiled(model: Decoder) -> None:
    for block in model.layers:
        block.compile(backend="aot_eager")  # traced and differentiated as ever, without a minute of C++ compiler


def repeated_and_compiled(model: Decoder) -> None:
    repeated(model)
    compiled(model)


def trained_once(prepare: Callable[[Decoder], None], dtype: torch.dtype) -> tuple[Tensor, list[Tensor], Tensor]:
    model = make_decoder(num_layers=1, aux_loss=0.01, z_loss=0.001).to(dtype)
    prepare(model)
    logits = model(random_tokens())
    auxiliary = model.auxiliary_loss()
    assert auxiliary is not None
    loss = logits.float().logsumexp(-1).mean() + auxiliary
    loss.backward()
    gradients = [value.grad for value in model.parameters() if value.grad is not None]
    return loss.detach(), gradients, step_loads(model)


@pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("prepare", [plain, repeated, compiled, repeated_and_compiled])
def test_repeated_and_compiled_forwards_count_once_and_compute_the_same(
    prepare: Callable[[Decoder], None], dtype: torch.dtype
) -> None:
    loss, gradients, counted = trained_once(plain, dtype)
    other_loss, other_gradients, other_counted = trained_once(prepare, dtype)
    exact = prepare in (plain, repeated)
    limit = 0 if exact else 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(other_loss, loss, atol=limit, rtol=limit)
    assert len(gradients) == len(other_gradients) == len(list(make_decoder(num_layers=1).parameters()))
    for got, right in zip(other_gradients, gradients, strict=True):
        torch.testing.assert_close(got, right, atol=limit, rtol=limit)
    if exact or dtype == torch.float32:
        assert torch.equal(other_counted, counted)
    assert other_counted.sum() == counted.sum()
