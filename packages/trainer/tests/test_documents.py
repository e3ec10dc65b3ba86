"""Documents kept apart in one row compute what each computes in a row of its own."""

import shutil
from collections.abc import Callable, Sequence

import pytest
import torch

from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.loss import IGNORED, token_loss_sum
from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.model.init import initialize_weights
from tokenmill_trainer.model.masks import attention_mask, document_of
from tokenmill_trainer.model.rotary import RotaryTable
from tokenmill_trainer.report import StepReport

MakeConfig = Callable[..., RunConfig]
LENGTH = 32


def positions_of(*lengths: int) -> torch.Tensor:
    return torch.cat([torch.arange(length, dtype=torch.int32) for length in lengths])[None]


@pytest.fixture
def model() -> Decoder:
    config = ModelConfig(vocab_size=97, hidden_size=48, intermediate_size=80, num_layers=2, num_heads=6, num_kv_heads=2)
    decoder = Decoder(config)
    initialize_weights(decoder, seed=1)
    return decoder


def gradients(model: Decoder) -> torch.Tensor:
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
    model.zero_grad()
    return flat


@pytest.mark.parametrize("lengths", [(13, 19), (1, 31), (16, 1, 15), (32,)])
def test_a_row_of_documents_is_rows_of_one_document_each(model: Decoder, lengths: Sequence[int]) -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 97, (1, LENGTH), generator=generator)
    labels = torch.randint(0, 97, (1, LENGTH), generator=generator)
    labels[0, torch.tensor(lengths).cumsum(0) - 1] = IGNORED
    together = model(tokens, positions_BL=positions_of(*lengths))
    loss = token_loss_sum(model, tokens, labels, positions_of(*lengths))
    loss.backward()
    gradient = gradients(model)

    alone = [model(document) for document in tokens.split(list(lengths), 1)]
    torch.testing.assert_close(together, torch.cat(alone, 1), atol=1e-6, rtol=1e-6)
    documents = zip(tokens.split(list(lengths), 1), labels.split(list(lengths), 1), strict=True)
    losses = [token_loss_sum(model, *document) for document in documents]
    torch.testing.assert_close(loss, sum(losses), atol=1e-5, rtol=1e-6)
    sum(losses).backward()
    torch.testing.assert_close(gradient, gradients(model), atol=2e-6, rtol=1e-5)

    joined = model(tokens)
    first = lengths[0]
    torch.testing.assert_close(joined[:, :first], together[:, :first], atol=1e-6, rtol=1e-6)
    if first < LENGTH:
        assert (joined[:, first:] - together[:, first:]).abs().max() > 0.01


def test_rows_have_documents_of_their_own(model: Decoder) -> None:
    tokens = torch.randint(0, 97, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    positions = torch.cat([positions_of(5, 27), positions_of(20, 12)])
    alone = [model(tokens[row : row + 1], positions_BL=positions[row : row + 1]) for row in range(2)]
    torch.testing.assert_close(model(tokens, positions_BL=positions), torch.cat(alone), atol=1e-6, rtol=1e-6)


def test_no_token_attends_to_another_document_or_to_what_follows() -> None:
    positions = torch.cat([positions_of(2, 3), positions_of(5)])
    mask = attention_mask(5, positions.device, document_BL=document_of(positions))
    assert mask is not None
    assert mask.shape == (2, 1, 5, 5)
    for row, document in enumerate(([0, 0, 1, 1, 1], [0] * 5)):
        expected = [[j <= i and document[i] == document[j] for j in range(5)] for i in range(5)]
        assert mask[row, 0].tolist() == expected


def test_phases_at_positions_are_those_of_the_table() -> None:
    table = RotaryTable(8, 1e4)
    cos, sin = table(0, 6, torch.device("cpu"))
    cos_at, sin_at = table.at(positions_of(2, 4))
    assert torch.equal(cos_at[0, 0], torch.cat([cos[:2], cos[:4]]))
    assert torch.equal(sin_at[0, 0], torch.cat([sin[:2], sin[:4]]))


def train(config: RunConfig, source: GlobalBatches) -> list[StepReport]:
    reports = []
    with initialize(config, source) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            if report is not None:
                reports.append(report)
    return reports


def curve(reports: list[StepReport]) -> torch.Tensor:
    return torch.tensor([(report.loss, report.grad_norm) for report in reports])


def test_micro_batches_take_the_positions_of_their_rows(
    make_config: MakeConfig, documents_apart: GlobalBatches, documents_joined: GlobalBatches
) -> None:
    configs = [make_config(training={"micro_batch_size": micro, "steps": 3}) for micro in (8, 4, 1)]
    whole, halves, ones = (curve(train(config, documents_apart)) for config in configs)
    torch.testing.assert_close(halves, whole, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ones, whole, atol=1e-5, rtol=1e-5)
    assert (curve(train(configs[0], documents_joined)) - whole).abs().max() > 1e-3


def test_the_loss_of_a_step_is_the_mean_over_all_its_documents(
    make_config: MakeConfig, documents_apart: GlobalBatches
) -> None:
    samples = documents_apart.read(0)
    assert samples.positions is not None
    config = make_config(training={"micro_batch_size": 2, "steps": 1})
    total, counted = 0.0, 0
    with initialize(config, documents_apart) as engine, torch.no_grad():
        for inputs, labels, positions in zip(samples.inputs, samples.labels, samples.positions, strict=True):
            cut = int(positions.diff().argmin()) + 1
            for part in (slice(None, cut), slice(cut, None)):
                total += float(token_loss_sum(engine.model, inputs[None, part], labels[None, part]))
                counted += int((labels[part] != IGNORED).sum())
    (report,) = train(config, documents_apart)
    assert report.tokens == counted == 7 * (LENGTH - 1)
    assert report.loss == pytest.approx(total / counted, abs=1e-5)


# Two warnings of torch's compiler about itself: a deprecated part it imports, and `.grad` of FSDP's parameters.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU")
def test_compiled_blocks_compute_the_same(make_config: MakeConfig, documents_apart: GlobalBatches) -> None:
    settings = [{"compile": chosen, "steps": 3} for chosen in (False, True)]
    configs = [make_config(model={"num_layers": 1}, training=training) for training in settings]
    plain, compiled = (curve(train(config, documents_apart)) for config in configs)
    torch.testing.assert_close(plain, compiled, atol=1e-5, rtol=1e-5)
