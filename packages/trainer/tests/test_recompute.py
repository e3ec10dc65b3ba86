"""Activation checkpointing changes what is kept and no number: losses, gradients, counts, names, checkpoints."""

import gc
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.layout.recompute import RecomputeConfig, recompute_blocks
from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.resume import check_resumable

MakeConfig = Callable[..., RunConfig]
OneProcess = Callable[..., torch.Tensor]
B, L, D, F, H, K = 8, 64, 64, 176, 4, 2
IDS = torch.arange(B * L).view(B, L) % 64
MOE = {
    "num_experts": 8,
    "experts_per_token": 2,
    "expert_intermediate_size": 32,
    "router": "sigmoid",
    "aux_loss": 0.01,
    "bias_update_rate": 0.01,
}


class LiveStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every storage that an operation has made or touched, as long as something holds it; `known` ones apart."""

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known = {tensor.untyped_storage()._cdata for tensor in known}
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.known:
                storage = tensor.untyped_storage()
                self.storages[storage._cdata] = StorageWeakRef(storage), storage.nbytes()  # type: ignore[no-untyped-call]
        self.peak = max(self.peak, self.num_bytes)
        return result

    @property
    def num_bytes(self) -> int:
        held = {key: value for key, value in self.storages.items() if not value[0].expired()}  # type: ignore[no-untyped-call]
        self.storages = held
        return sum(size for _, size in self.storages.values())


def decoder(num_layers: int, dtype: torch.dtype, **settings: Any) -> Decoder:
    shape = {"hidden_size": D, "intermediate_size": F, "num_heads": H, "num_kv_heads": K}
    torch.manual_seed(0)
    model = Decoder(ModelConfig.model_validate({**shape, "vocab_size": 64, "num_layers": num_layers})).to(dtype)
    recompute_blocks(list(model.layers), RecomputeConfig.model_validate(settings))
    return model


def forward(num_layers: int, dtype: torch.dtype, **settings: Any) -> tuple[int, int, list[torch.Tensor]]:
    """Bytes that a forward leaves behind, the most there are until the backward's end, and all gradients."""
    model = decoder(num_layers, dtype, **settings)
    parameters = list(model.parameters())
    with LiveStorages(parameters) as live:
        loss = model(IDS).float().square().mean()
        gc.collect()  # a kernel's first call, which compiles it, leaves cycles behind that hold what it was given
        kept = live.num_bytes
        loss.backward()
    return kept, live.peak, [parameter.grad for parameter in parameters if parameter.grad is not None]


QUERY, KEY, VALUE, OUT, GATE, UP, DOWN = D, D * K // H, D * K // H, D, F, F, D


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        pytest.param({"mode": "full"}, 0, id="full"),
        pytest.param({"mode": "selective", "every": 1}, D, id="attention alone"),
        pytest.param({"mode": "selective"}, D + QUERY + VALUE + GATE + DOWN, id="every second product"),
        pytest.param(
            {"mode": "selective", "every": 8}, D + QUERY + KEY + VALUE + OUT + GATE + UP + DOWN, id="all products"
        ),
    ],
)
def test_a_layer_keeps_its_input_and_what_is_asked_for(settings: dict[str, Any], kept: int, dtype: torch.dtype) -> None:
    two, four = (forward(layers, dtype, **settings)[0] for layers in (2, 4))
    log_sum_exp = B * H * L * 4 if kept else 0  # of attention, fp32
    assert (four - two) / 2 == B * L * (D + kept) * dtype.itemsize + log_sum_exp


def test_every_second_block_keeps_as_much_as_none_and_full_do_on_average() -> None:
    every_second, none, full = (
        forward(4, torch.float32, mode=mode)[0] - forward(2, torch.float32, mode=mode)[0]
        for mode in ("every_k", "none", "full")
    )
    assert every_second == pytest.approx((none + full) / 2)
    assert none > 15 * full


def test_the_peak_falls_and_the_gradients_stay_the_same_bits() -> None:
    _, peak, gradients = forward(6, torch.float32)
    for mode, most in (("full", 0.4), ("every_k", 0.75), ("selective", 0.6)):
        _, lower, same = forward(6, torch.float32, mode=mode)
        assert lower < most * peak, mode
        assert all(torch.equal(a, b) for a, b in zip(gradients, same, strict=True)), mode


@pytest.mark.parametrize("mode", ["full", "every_k", "selective"])
@pytest.mark.parametrize(
    ("precision", "zero_stage", "model"),
    [("fp32", 0, {}), ("bf16", 1, {"moe": MOE}), ("fp32", 2, {"moe": MOE}), ("bf16", 3, {})],
)
def test_a_run_is_the_same_to_the_bit(
    make_config: MakeConfig,
    documents_apart: GlobalBatches,
    on_one_process: OneProcess,
    mode: str,
    precision: str,
    zero_stage: int,
    model: dict[str, Any],
) -> None:
    training = {"precision": precision, "zero_stage": zero_stage, "steps": 3, "micro_batch_size": 4}
    settings = {"training": training, "model": model, "loss": {"chunk_tokens": 40}}
    plain = on_one_process(make_config(**settings), documents_apart)
    recomputed = on_one_process(make_config(**settings, activation_checkpointing={"mode": mode}), documents_apart)
    assert torch.equal(plain, recomputed)


@pytest.mark.parametrize("own", [False, True])
def test_the_engine_s_model_keeps_less(
    make_config: MakeConfig, source: GlobalBatches, make_own_model: Callable[[str], nn.Module], own: bool
) -> None:
    kept = []
    for mode in ("none", "every_k", "full"):
        config = make_config(activation_checkpointing={"mode": mode})
        if own:
            config = config.model_copy(update={"model": ModelConfig()})
        with initialize(config, source, model=make_own_model("hand-made") if own else None) as engine:
            batch = next(engine.batches())
            with LiveStorages(engine.model.parameters()) as live:
                loss = engine(batch)
                kept.append(live.num_bytes)
            del loss
    one_block = kept[0] - kept[1]
    assert kept[1] - kept[2] == one_block > 2 * batch.inputs.numel() * 4 * 32, "the model has two, alike"


def test_dropout_drops_the_same_again() -> None:
    gradients = []
    for mode in ("none", "full"):
        torch.manual_seed(0)
        block = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 16))
        recompute_blocks([block], RecomputeConfig.model_validate({"mode": mode}))
        block(torch.randn(4, 16)).sum().backward()
        gradients.append([parameter.grad for parameter in block.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_experts_loads_are_counted_once(make_config: MakeConfig, source: GlobalBatches, mode: str) -> None:
    config = make_config(model={"moe": MOE}, activation_checkpointing={"mode": mode})
    with initialize(config, source) as engine:
        batch = next(engine.batches())
        engine.backward(engine(batch))
        loads = [router.step_load_E for router in engine.routers if router.step_load_E is not None]
        assert [int(load.sum()) for load in loads] == [2 * batch.inputs.numel()] * 2


def test_a_checkpoint_made_with_it_goes_on_without(
    make_config: MakeConfig, source: GlobalBatches, on_one_process: OneProcess, tmp_path: Path
) -> None:
    plain, recomputing = make_config(), make_config(activation_checkpointing={"mode": "selective"})
    with initialize(recomputing, source) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            if report is not None and report.progress.step == 3:
                saved = checkpoint.save(engine, tmp_path)
                break
        names = set(engine.model.state_dict())
    with initialize(plain, source) as engine:
        assert set(engine.model.state_dict()) == names
    check_resumable(plain, None, checkpoint_manifest(saved), ())
    unbroken = on_one_process(plain, source)
    assert torch.equal(on_one_process(plain, source, tmp_path), unbroken[3:])


def checkpoint_manifest(folder: Path) -> Any:
    from tokenmill_core.manifest import CheckpointManifest
    from tokenmill_core.manifest_io import load_manifest

    return load_manifest(str(folder), CheckpointManifest).manifest


@pytest.fixture
def compiler() -> Iterator[Callable[[], int]]:
    """How many graphs were compiled in this test."""
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler on the CPU")
    torch._dynamo.reset()
    counters.clear()
    yield lambda: counters["stats"]["unique_graphs"]
    torch._dynamo.reset()


# Two warnings of torch's compiler about itself: a deprecated part it imports, and `.grad` of FSDP's parameters.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("mode", ["full", "selective"])
def test_compiled_blocks_are_recomputed(
    make_config: MakeConfig,
    source: GlobalBatches,
    on_one_process: OneProcess,
    compiler: Callable[[], int],
    mode: str,
) -> None:
    plain = on_one_process(make_config(training={"steps": 2}), source)
    assert compiler() == 0
    training = {"steps": 2, "compile": True}
    compiled = on_one_process(make_config(training=training, activation_checkpointing={"mode": mode}), source)
    assert compiler() == 1, "both blocks run the same code"
    torch.testing.assert_close(compiled, plain, atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_blocks_keep_less(compiler: Callable[[], int]) -> None:
    kept = {}
    for mode in ("none", "full", "selective"):
        torch._dynamo.reset()
        model = decoder(2, torch.float32, mode=mode)
        for block in model.layers:
            block.compile()
        sizes: dict[int, int] = {}

        def pack(tensor: torch.Tensor, sizes: dict[int, int] = sizes) -> torch.Tensor:
            if not isinstance(tensor, nn.Parameter):
                sizes[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(IDS).sum()
        kept[mode] = sum(sizes.values())
    assert compiler() == 3
    assert kept["full"] < 0.2 * kept["none"]
    assert kept["full"] < kept["selective"] < 0.6 * kept["none"]


def test_what_it_does_not_know_is_refused(make_config: MakeConfig) -> None:
    with pytest.raises(ValueError, match=r"activation_checkpointing\.every\n.*greater than 0"):
        make_config(activation_checkpointing={"every": 0})
    with pytest.raises(ValueError, match=r"activation_checkpointing\.mode\n.*'full', 'every_k' or 'selective'"):
        make_config(activation_checkpointing={"mode": "some"})
