"""The chunked loss against the plain one, which is torch's cross-entropy."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.loss import IGNORED, LossConfig, chunked_loss_sums, loss_sums

ROWS, WIDTH, VOCABULARY = 37, 12, 53


def capped(cap: float | None, scale: float = 1.0) -> Callable[[Tensor, Tensor], Tensor]:
    def head(features: Tensor, weight: Tensor) -> Tensor:
        logits = F.linear(features, weight) * scale
        return logits if cap is None else cap * torch.tanh(logits / cap)

    return head


def inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64).to(dtype)
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, VOCABULARY, (ROWS,), generator=generator)
    labels[::5] = IGNORED
    labels[7:14] = IGNORED  # a chunk of 7 in which nothing counts
    return features.requires_grad_(), weight.requires_grad_(), labels


@pytest.mark.parametrize("chunk_tokens", [1, 7, 36, 37, 100])
@pytest.mark.parametrize("cap", [None, 5.0])
@pytest.mark.parametrize("z_loss", [0.0, 0.01])
def test_chunks_change_neither_loss_nor_gradients(chunk_tokens: int, cap: float | None, z_loss: float) -> None:
    head, config = capped(cap, 0.5), LossConfig(z_loss=z_loss, chunk_tokens=chunk_tokens)
    features, weight, labels = inputs(torch.float32)
    logits = head(features, weight)
    counted = labels != IGNORED
    plain = F.cross_entropy(logits[counted], labels[counted], reduction="sum")
    penalty = z_loss * torch.logsumexp(logits[counted], -1).square().sum()
    expected = torch.autograd.grad((plain + penalty) * 0.3, (features, weight))

    sums = chunked_loss_sums(features, weight, labels, lambda x: head(x, weight), config)
    torch.testing.assert_close(sums.total, plain + penalty, rtol=1e-6, atol=0)
    torch.testing.assert_close(sums.z_loss, penalty.detach(), rtol=1e-6, atol=1e-9)
    by_token = F.cross_entropy(logits.detach(), labels, ignore_index=IGNORED, reduction="none")
    torch.testing.assert_close(sums.by_token, by_token, rtol=1e-5, atol=1e-6)
    assert not sums.by_token.requires_grad
    got = torch.autograd.grad(sums.total * 0.3, (features, weight))
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        without = chunked_loss_sums(features, weight, labels, lambda x: head(x, weight), config)
    torch.testing.assert_close(without.total, sums.total.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(without.by_token, sums.by_token, rtol=0, atol=0)


def test_gradients_are_those_of_finite_differences() -> None:
    features, weight, labels = inputs(torch.float64)
    config = LossConfig(z_loss=0.01, chunk_tokens=10)

    def total(features: Tensor, weight: Tensor) -> Tensor:
        return chunked_loss_sums(features, weight, labels, lambda x: capped(5.0)(x, weight), config).total

    gradients = torch.autograd.grad(total(features, weight), (features, weight))
    for tensor, gradient in zip((features, weight), gradients, strict=True):
        for place in ((1, 0), (6, 3), (30, 11)):
            step = torch.zeros_like(tensor)
            step[place] = 1e-4
            moved = [(features + s, weight) if tensor is features else (features, weight + s) for s in (step, -step)]
            with torch.no_grad():
                slope = (total(*moved[0]) - total(*moved[1])) / 2e-4
            assert slope.item() == pytest.approx(gradient[place].item(), rel=1e-6, abs=1e-7)


def test_no_more_than_a_chunk_of_logits_exists() -> None:
    features, weight, labels = inputs(torch.float32)
    rows = []

    def head(x: Tensor) -> Tensor:
        rows.append(len(x))
        return F.linear(x, weight)

    chunked_loss_sums(features, weight, labels, head, LossConfig(chunk_tokens=10)).total.backward()
    assert rows == [10, 10, 10, 7], "the backward computes none again"


def test_bf16_sums_are_taken_in_fp32() -> None:
    features, weight, labels = inputs(torch.bfloat16)
    config = LossConfig(chunk_tokens=4)
    plain = loss_sums(F.linear(features, weight), labels, 0.0).total
    expected = torch.autograd.grad(plain, (features, weight))
    sums = chunked_loss_sums(features, weight, labels, lambda x: F.linear(x, weight), config)
    got = torch.autograd.grad(sums.total, (features, weight))
    assert sums.total.dtype == torch.float32
    torch.testing.assert_close(sums.total, plain, rtol=1e-6, atol=0)
    torch.testing.assert_close(got[0], expected[0], rtol=0, atol=0)
    torch.testing.assert_close(got[1], expected[1], rtol=0.02, atol=0.02)


def test_a_gradient_is_given_once() -> None:
    features, weight, labels = inputs(torch.float32)
    config = LossConfig(chunk_tokens=10)
    total = chunked_loss_sums(features, weight, labels, lambda x: F.linear(x, weight), config).total
    total.backward(retain_graph=True)
    with pytest.raises(TypeError):
        total.backward()


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("tied", [False, True])
def test_steps_are_the_same_whatever_the_chunk(
    make_config: Callable[..., RunConfig], documents_apart: GlobalBatches, zero_stage: int, tied: bool
) -> None:
    results = []
    for chunk_tokens in (0, 50):
        config = make_config(
            model={"tied_embeddings": tied},
            loss={"chunk_tokens": chunk_tokens, "z_loss": 1e-3},
            optimizer={"eps": 1e-3},  # a small one lets Adam make steps of what rounding leaves of zeros
            training={"micro_batch_size": 4, "zero_stage": zero_stage, "steps": 3},
        )
        with initialize(config, documents_apart) as engine:
            reports = []
            for batch in engine.batches():
                engine.backward(engine(batch))
                report = engine.step()
                if report is not None:
                    reports.append((report.loss, report.penalty, report.grad_norm))
            weight = engine.model.embed_tokens.weight
            results.append((torch.tensor(reports, dtype=torch.float64), weight.detach()))
    (plain, plain_weight), (chunked, chunked_weight) = results
    assert (plain[:, 1] > 0).all()
    torch.testing.assert_close(chunked, plain, atol=2e-6, rtol=2e-6)
    torch.testing.assert_close(chunked_weight, plain_weight, atol=2e-6, rtol=2e-6)


def test_the_reported_loss_is_the_cross_entropy_alone(
    make_config: Callable[..., RunConfig], source: GlobalBatches
) -> None:
    first = []
    for z_loss in (0.0, 0.1):
        with initialize(make_config(loss={"z_loss": z_loss}, training={"steps": 1}), source) as engine:
            for batch in engine.batches():
                engine.backward(engine(batch))
                first.append(engine.step())
    assert first[0].loss == pytest.approx(first[1].loss, rel=1e-6)
    assert first[0].penalty == 0.0
    assert first[1].penalty == pytest.approx(0.1 * torch.log(torch.tensor(503.0)).item() ** 2, rel=0.01)
    assert first[0].grad_norm != first[1].grad_norm


def test_a_frozen_head_gets_no_gradient() -> None:
    head, config = capped(None), LossConfig(chunk_tokens=7)
    features, weight, labels = inputs(torch.float32)
    whole = chunked_loss_sums(features, weight, labels, lambda x: head(x, weight), config).total
    expected = torch.autograd.grad(whole, features)[0]
    weight.requires_grad_(False)
    total = chunked_loss_sums(features, weight, labels, lambda x: head(x, weight), config).total
    assert torch.equal(torch.autograd.grad(total, features)[0], expected)
    assert not chunked_loss_sums(
        features.detach(), weight, labels, lambda x: head(x, weight), config
    ).total.requires_grad
