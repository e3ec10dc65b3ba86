"""`initialize(config, source, model=...)`: anybody's module trains as in a plain loop, on one rank and on two."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tokenmill_core.errors import ConfigError, InputError, VerificationError
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import require_verified, verify_checkpoint
from tokenmill_trainer.layout.blocks import find_blocks
from tokenmill_trainer.resume import check_resumable

MakeModel = Callable[[str], nn.Module]
NO_BLOCKS = {"activation_checkpointing": {"mode": "none"}}
DECODER = {"hidden_size": 48, "intermediate_size": 96, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2}
RUNS = [("hand-made", 0), ("gpt2", 1), ("hand-made", 2), ("llama", 3)]


def settings(**sections: dict[str, Any]) -> RunConfig:
    values: dict[str, Any] = {
        "data": {"sequence_length": 32},
        "optimizer": {"lr": 0.01},
        "schedule": {"kind": "constant"},
        "training": {"steps": 4, "global_batch_size": 8, "micro_batch_size": 2},
        "activation_checkpointing": {"mode": "every_k"},
    }
    return RunConfig.model_validate({**values, **{k: {**values.get(k, {}), **v} for k, v in sections.items()}})


def plain_loop(model: nn.Module, source: GlobalBatches, steps: int = 4) -> torch.Tensor:
    """(loss, norm) of each step, as anyone would write it."""
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), eps=1e-8)
    reports = []
    for samples in source.iterate(0, steps):
        loss = F.cross_entropy(model(samples.inputs).flatten(0, 1), samples.labels.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        reports.append([loss.item(), norm.item()])
    return torch.tensor(reports, dtype=torch.float64)


def run(config: RunConfig, source: Any, model: nn.Module, start: Path | None = None, **options: Any) -> torch.Tensor:
    reports = []
    with initialize(config, source, model=model, **options) as engine:
        if start is not None:
            checkpoint.restore(engine, require_verified(start, pytest.fail))
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            if report is not None:
                reports.append([report.loss, report.grad_norm])
    return torch.tensor(reports, dtype=torch.float64)


def seeded(make: MakeModel, kind: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return make(kind)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, on_two_ranks: Callable[..., None]) -> Path:
    folder = tmp_path_factory.mktemp("own-module")
    on_two_ranks("own_module_worker.py", settings(), folder)
    return folder


@pytest.mark.parametrize(("kind", "stage"), RUNS)
def test_one_rank_and_two_train_as_a_plain_loop_does(
    two_ranks: Path, make_own_model: MakeModel, source: GlobalBatches, kind: str, stage: int
) -> None:
    expected = plain_loop(seeded(make_own_model, kind), source)
    config = settings(training={"zero_stage": stage})
    torch.testing.assert_close(run(config, source, seeded(make_own_model, kind)), expected, atol=2e-5, rtol=0)
    first, second = json.loads((two_ranks / f"{kind}-{stage}.json").read_text())
    assert first == second
    torch.testing.assert_close(torch.tensor(first, dtype=torch.float64), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_ranks_agree_whatever_weights_each_micro_batch_uses(
    two_ranks: Path, make_own_model: MakeModel, source: GlobalBatches, precision: str
) -> None:
    first, second = json.loads((two_ranks / f"branching-{precision}.json").read_text())
    assert first == second, "losses, norms, or the weights at the end"
    model = seeded(make_own_model, "branching")
    expected = run(settings(training={"precision": precision}), source, model)
    found = torch.tensor(first[: len(expected)], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=2e-5 if precision == "fp32" else 2e-3, rtol=0)


def test_two_ranks_recompute_as_one_that_keeps_all(
    two_ranks: Path, source: GlobalBatches, on_one_process: Callable[..., torch.Tensor]
) -> None:
    first, second = json.loads((two_ranks / "decoder-3.json").read_text())
    assert first == second
    config = settings(model={"vocab_size": 503, **DECODER}, **NO_BLOCKS)
    expected = on_one_process(config, source)
    torch.testing.assert_close(torch.tensor(first, dtype=torch.float64), expected, atol=1e-5, rtol=0)


def test_ranks_with_unlike_modules_are_refused_together(two_ranks: Path) -> None:
    first, second = json.loads((two_ranks / "refused.json").read_text())
    assert first == second
    assert first == "model: rank 1 has other weights than rank 0, blocks.0.down.bias; make the same on all"


@pytest.mark.parametrize(("kind", "stage"), RUNS)
def test_one_process_goes_on_where_two_have_stopped(
    two_ranks: Path, make_own_model: MakeModel, source: GlobalBatches, kind: str, stage: int
) -> None:
    start = two_ranks / f"{kind}-{stage}"
    resumed = run(settings(), source, seeded(make_own_model, kind, seed=5), start)
    unbroken = torch.tensor(json.loads((two_ranks / f"{kind}-{stage}.json").read_text())[0], dtype=torch.float64)
    torch.testing.assert_close(resumed, unbroken[2:], atol=2e-5, rtol=0)
    manifest = require_verified(start, pytest.fail).manifest
    assert manifest.config["model"] == {"vocab_size": None}
    check_resumable(settings(), None, manifest, ())


@pytest.mark.parametrize(
    "sections",
    [
        pytest.param({"training": {"precision": "bf16", "zero_stage": 3}}, id="bf16"),
        pytest.param({"optimizer": {"kind": "muon"}, "ema": {"decay": 0.9}}, id="muon and an average"),
        pytest.param({"optimizer": {"kind": "adafactor", "groups": [{"match": "^out", "lr_scale": 0.5}]}}, id="groups"),
        pytest.param({"loss": {"z_loss": 1e-4}, "training": {"precision": "fp16"}}, id="fp16 and z-loss"),
    ],
)
def test_it_learns_and_goes_on_to_the_bit(
    make_own_model: MakeModel, tmp_path: Path, source: GlobalBatches, sections: dict[str, Any]
) -> None:
    class Same:
        def iterate(self, consumed_samples: int, num_steps: int) -> Iterator[Any]:
            return iter([source.read(0)] * num_steps)

    config = settings(**sections)
    reports = []
    with initialize(config, Same(), model=seeded(make_own_model, "hand-made")) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            if report is not None:
                reports.append([report.loss, report.grad_norm])
                if report.progress.step == 2:
                    checkpoint.save(engine, tmp_path)
    losses = [loss for loss, _ in reports]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.1
    resumed = run(config, Same(), seeded(make_own_model, "hand-made", seed=7), tmp_path)
    assert torch.equal(resumed, torch.tensor(reports[2:], dtype=torch.float64))


@pytest.mark.parametrize(
    ("kind", "sizes", "message"),
    [
        ("gpt2-1", {}, "not the tensors of this model: missing"),
        ("hand-made-0", {"num_blocks": 3}, r"missing \['model.blocks.2"),
        ("hand-made-0", {"width": 16}, r"model\.tokens\.weight has shape \[503, 32\] there, \[503, 16\] here"),
    ],
)
def test_a_checkpoint_of_another_module_is_refused(
    two_ranks: Path,
    make_own_model: MakeModel,
    source: GlobalBatches,
    kind: str,
    sizes: dict[str, int],
    message: str,
) -> None:
    found = verify_checkpoint(two_ranks / kind / "step-00000002")
    another = type(make_own_model("hand-made"))(**sizes)
    with initialize(settings(), source, model=another) as engine:
        before = [parameter.detach().clone() for parameter in engine.model.parameters()]
        with pytest.raises(VerificationError, match=message):
            checkpoint.restore(engine, found)
        assert all(torch.equal(a, b) for a, b in zip(before, engine.model.parameters(), strict=True))


def test_a_loss_of_one_s_own_takes_what_the_model_gives(make_own_model: MakeModel, source: GlobalBatches) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = make_own_model("llama")

        def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.inner(ids)}

    def criterion(output: dict[str, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
        return 2 * F.cross_entropy(output["logits"].flatten(0, 1), labels.flatten(), reduction="sum")

    torch.manual_seed(0)
    twice = run(settings(training={"steps": 1}), source, Named(), loss=criterion)
    once = run(settings(training={"steps": 1}), source, seeded(make_own_model, "llama"))
    torch.testing.assert_close(twice, 2 * once)
    with pytest.raises(InputError, match=r"it gives dict, not logits .* or give a loss="):
        run(settings(training={"steps": 1}), source, Named())


def test_what_the_model_adds_is_part_of_the_loss(make_own_model: MakeModel, source: GlobalBatches) -> None:
    class Adding(type(make_own_model("hand-made"))):  # type: ignore[misc]
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = super().forward(ids)
            self.added = logits.square().mean()
            return logits

        def auxiliary_loss(self) -> torch.Tensor:
            return self.added

    torch.manual_seed(0)
    with initialize(settings(training={"steps": 1}), source, model=Adding()) as engine:
        batch = next(engine.batches())
        loss = engine(batch)
        logits = engine.model(batch.inputs)
        expected = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten()) + logits.square().mean()
        assert loss.item() == pytest.approx(expected.item() / 4, rel=1e-5), "a quarter of the global batch"


class Apart(nn.Module):
    """A model that can be told where documents begin."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(503, 16), nn.Embedding(32, 16)
        self.out = nn.Linear(16, 503)

    def forward(self, ids: torch.Tensor, positions_BL: torch.Tensor | None = None) -> torch.Tensor:
        places = torch.arange(ids.shape[1]) if positions_BL is None else positions_BL
        return self.out(self.tokens(ids) + self.places(places))  # type: ignore[no-any-return]


def test_positions_reach_a_model_that_takes_them(make_own_model: MakeModel, documents_apart: GlobalBatches) -> None:
    config = settings(data={"documents": "separate"}, **NO_BLOCKS)
    model = Apart()
    with initialize(config, documents_apart, model=model) as engine:
        batch = next(engine.batches())
        logits = model(batch.inputs, batch.positions).flatten(0, 1)
        expected = F.cross_entropy(logits, batch.labels.flatten(), reduction="sum") / batch.global_tokens
        assert engine(batch).item() == pytest.approx(expected.item(), rel=1e-6)
        assert not torch.equal(model(batch.inputs).flatten(0, 1), logits)
    with (
        initialize(settings(), documents_apart, model=make_own_model("hand-made")) as engine,
        pytest.raises(InputError, match="keeps documents apart, but forward has no parameter positions_BL"),
    ):
        engine(next(engine.batches()))


@pytest.mark.parametrize(
    ("sections", "options", "message"),
    [
        ({"model": {"hidden_size": 64}}, {}, "model: settings describe the decoder, but a model= is given"),
        ({"data": {"documents": "separate"}}, {}, 'data.documents: "separate" needs a model whose forward has'),
        ({}, {"blocks": ["layers"]}, r"blocks: the model has no module 'layers'; its modules are such as \['tokens'"),
        ({"loss": {"z_loss": 0.1}}, {"loss": F.cross_entropy}, "loss.z_loss: is part of the cross-entropy"),
        ({}, {"model": Apart()}, "activation_checkpointing.mode: works on blocks, and the model has no nn.ModuleList"),
        (NO_BLOCKS, {"model": Apart().bfloat16()}, r"model: tokens.weight is torch.bfloat16; .* give model.float\(\)"),
        (NO_BLOCKS, {"model": Apart().to("meta")}, "model: tokens.weight has no values"),
        ({}, {"model": None, "blocks": ["x"]}, "blocks: names parts of a model="),
    ],
)
def test_what_does_not_go_together_is_refused(
    make_own_model: MakeModel,
    source: GlobalBatches,
    sections: dict[str, Any],
    options: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(ConfigError, match=message):
        initialize(settings(**sections), source, **{"model": make_own_model("hand-made"), **options})


def test_blocks_are_the_longest_outermost_list(make_own_model: MakeModel) -> None:
    llama = make_own_model("llama")
    assert find_blocks(llama) == list(llama.get_submodule("inner.model.layers"))  # type: ignore[call-overload]
    experts = nn.ModuleList(nn.ModuleList(nn.Linear(2, 2) for _ in range(8)) for _ in range(2))
    assert find_blocks(nn.ModuleDict({"few": nn.ModuleList([nn.Linear(2, 2)]), "layers": experts})) == list(experts)
    steps = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    assert find_blocks(nn.ModuleDict({"body": steps}), ["body"]) == list(steps)
    assert find_blocks(steps) == []


def test_a_weight_of_two_blocks_is_refused() -> None:
    model = nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(2, 2) for _ in range(2))})
    model["layers"][1].weight = model["layers"][0].weight  # type: ignore[index]
    with pytest.raises(ConfigError, match=r"blocks: the weight layers.0.weight is part of two blocks"):
        find_blocks(model)
    model["layers"][1] = model["layers"][0]  # type: ignore[index, operator]
    assert len(find_blocks(model)) == 1, "a block that runs twice is one block"
