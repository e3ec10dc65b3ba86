import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import pytest
import torch

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_trainer import Engine, RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches, RankSamples
from tokenmill_trainer.guard.anomaly import NonFiniteError
from tokenmill_trainer.layout.gradients import global_gradient_norm
from tokenmill_trainer.loss import IGNORED
from tokenmill_trainer.report import StepReport

MakeConfig = Callable[..., RunConfig]


@dataclass(frozen=True)
class Masked:
    """Samples with 3, 29, 0, 29, … counted tokens: unlike micro-batches, one of them wholly masked."""

    source: GlobalBatches

    def iterate(self, consumed_samples: int, num_steps: int) -> Iterator[RankSamples]:
        for samples in self.source.iterate(consumed_samples, num_steps):
            labels = samples.labels.clone()
            for row, counted in enumerate((3, 29, 0, 29, 32, 1, 17, 30)):
                labels[row, counted:] = IGNORED
            yield replace(samples, labels=labels)


def run_steps(engine: Engine) -> list[StepReport]:
    reports = []
    for batch in engine.batches():
        engine.backward(engine(batch))
        report = engine.step()
        if report is not None:
            reports.append(report)
    return reports


def whole(engine: Engine) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in engine.model.parameters()]


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_micro_batches_change_neither_loss_nor_gradient(
    make_config: MakeConfig, source: GlobalBatches, zero_stage: int
) -> None:
    results = []
    for micro in (8, 1):
        config = make_config(training={"micro_batch_size": micro, "zero_stage": zero_stage, "steps": 3})
        with initialize(config, Masked(source)) as engine:
            results.append(([(r.loss, r.grad_norm) for r in run_steps(engine)], whole(engine)))
    (reports, weights), (reports_8, weights_8) = results
    torch.testing.assert_close(torch.tensor(reports), torch.tensor(reports_8), atol=1e-5, rtol=1e-5)
    for one, other in zip(weights, weights_8, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_loss_is_the_mean_over_counted_tokens(make_config: MakeConfig, source: GlobalBatches) -> None:
    masked = Masked(source)
    config = make_config(training={"micro_batch_size": 1, "steps": 1})
    with initialize(config, masked) as engine:
        samples = next(masked.iterate(0, 1))
        with torch.no_grad():
            logits = engine.model(samples.inputs)
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), samples.labels.flatten())
        (report,) = run_steps(engine)
    assert report.loss == pytest.approx(expected.item(), abs=1e-5)
    assert report.tokens == report.progress.consumed_tokens == 141


def test_clipping_scales_the_whole_gradient_by_one_norm(make_config: MakeConfig, source: GlobalBatches) -> None:
    config = make_config(training={"micro_batch_size": 4, "max_grad_norm": 0.1})
    with initialize(config, source) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            if batch.is_last:
                break
        before = torch.cat([p.grad.flatten() for p in engine.model.parameters()])
        seen = {}
        engine.optimizer.register_step_pre_hook(
            lambda *_: seen.update(g=torch.cat([p.grad.flatten() for p in engine.model.parameters()]))
        )
        report = engine.step()
    assert report is not None
    assert report.grad_norm == pytest.approx(before.norm().item(), rel=1e-5)
    torch.testing.assert_close(seen["g"], before * 0.1 / before.norm(), atol=1e-7, rtol=1e-4)


@pytest.mark.parametrize("value", [1e20, 1e-24])
def test_the_norm_of_huge_and_tiny_gradients_is_right(value: float) -> None:
    model = torch.nn.Linear(64, 64)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)
    assert global_gradient_norm(model).item() == pytest.approx(value * (64 * 65) ** 0.5, rel=1e-6)


def test_the_norm_of_many_small_gradients_is_exact(make_config: MakeConfig, source: GlobalBatches) -> None:
    with initialize(make_config(model={"vocab_size": 20_000}), source) as engine:
        embedding = engine.model.embed_tokens.weight
        embedding.grad = torch.full_like(embedding, 1e-3)
        size = embedding.numel()
        assert size > 500_000
        stored = float(torch.tensor(1e-3))
        assert float(global_gradient_norm(engine.model)) == pytest.approx(stored * size**0.5, rel=1e-7)


def test_a_gradient_that_is_no_number_stops_the_run_and_changes_nothing(
    make_config: MakeConfig, source: GlobalBatches
) -> None:
    with initialize(make_config(training={"micro_batch_size": 4}), source) as engine:
        before = whole(engine)
        for batch in engine.batches():
            engine.backward(engine(batch) * (float("nan") if batch.is_last else 1.0))
            if batch.is_last:
                break
        with pytest.raises(NonFiniteError, match=r"step 1: loss nan.* on samples 0 to 7; the weights are those before"):
            engine.step()
        assert all(torch.equal(a, b) for a, b in zip(before, whole(engine), strict=True))
        assert engine.progress.step == 0


def test_bf16_computes_in_bf16_over_fp32_masters(make_config: MakeConfig, source: GlobalBatches) -> None:
    curves = {}
    for precision in ("fp32", "bf16"):
        with initialize(make_config(training={"precision": precision}), source) as engine:
            assert {p.dtype for p in engine.model.parameters()} == {torch.float32}
            assert engine.model(torch.zeros(1, 4, dtype=torch.int64)).dtype == getattr(
                torch, {"fp32": "float32", "bf16": "bfloat16"}[precision]
            )
            curves[precision] = torch.tensor([report.loss for report in run_steps(engine)])
    torch.testing.assert_close(curves["fp32"], curves["bf16"], atol=0.02, rtol=0)
    assert not torch.equal(curves["fp32"], curves["bf16"])


def test_the_rate_of_each_step_is_the_schedule_s(make_config: MakeConfig, source: GlobalBatches) -> None:
    config = make_config(schedule={"warmup_steps": 2})
    with initialize(config, source) as engine:
        rates = [report.lr for report in run_steps(engine)]
    assert rates[:2] == [0.005, 0.01]
    assert rates[-1] == pytest.approx(0.001)


def test_a_model_learns_what_repeats(make_config: MakeConfig, source: GlobalBatches) -> None:
    @dataclass(frozen=True)
    class Same:
        def iterate(self, consumed_samples: int, num_steps: int) -> Iterator[RankSamples]:
            samples = source.read(0)
            return iter([samples] * num_steps)

    with initialize(make_config(training={"steps": 40}, optimizer={"lr": 0.02}), Same()) as engine:
        reports = run_steps(engine)
    assert reports[0].loss > 6
    assert reports[-1].loss < 3


@dataclass(frozen=True)
class Short:
    """A source that gives `rows` samples a step, for `steps` steps."""

    source: GlobalBatches
    rows: int = 8
    steps: int = 100

    def iterate(self, consumed_samples: int, num_steps: int) -> Iterator[RankSamples]:
        for samples in islice(self.source.iterate(consumed_samples, num_steps), self.steps):
            yield replace(samples, inputs=samples.inputs[: self.rows], labels=samples.labels[: self.rows])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": 4}, r"rank 0 got 4 samples of the step that begins with sample 0, .* is 8"),
        ({"rows": 0}, "rank 0 got 0 samples"),
        ({"steps": 2}, "the data ended after 2 of the 4 steps that are left"),
    ],
)
def test_a_source_that_gives_other_than_asked_for_is_refused(
    make_config: MakeConfig, source: GlobalBatches, fields: dict[str, int], message: str
) -> None:
    config = make_config(training={"steps": 4, "micro_batch_size": 4})
    with initialize(config, Short(source, **fields)) as engine, pytest.raises(InputError, match=message):
        run_steps(engine)


def test_batch_sizes_that_do_not_divide_are_refused(make_config: MakeConfig, source: GlobalBatches) -> None:
    with pytest.raises(ValueError, match=r"training.global_batch_size: 9 is not a multiple .* 4; set it to 12"):
        make_config(training={"global_batch_size": 9, "micro_batch_size": 4})
    with pytest.raises(ConfigError, match=r"data.mixture: no mixture is given; name one with --mixture"):
        initialize(make_config())
    with pytest.raises(ConfigError, match=r"model.vocab_size: must be given"):
        initialize(make_config(model={"vocab_size": None}), source)


# Two warnings of torch's compiler about itself: a deprecated part it imports, and `.grad` of what a block reads.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU")
def test_compiled_blocks_compute_the_same(make_config: MakeConfig, source: GlobalBatches) -> None:
    curves = []
    for compiled in (False, True):
        config = make_config(model={"num_layers": 1}, training={"compile": compiled, "steps": 3})
        with initialize(config, source) as engine:
            curves.append(torch.tensor([(report.loss, report.grad_norm) for report in run_steps(engine)]))
    torch.testing.assert_close(curves[0], curves[1], atol=1e-5, rtol=1e-5)
