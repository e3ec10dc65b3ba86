"""fp8 through torchao, emulated where no hardware has it: near bf16, the right layers, checkpoints of fp32 masters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tokenmill_core.errors import ConfigError
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.layout.fp8 import Fp8Config, check_fp8, convert_to_fp8
from tokenmill_trainer.resume import CHANGES

MakeConfig = Callable[..., RunConfig]
OneProcess = Callable[..., torch.Tensor]
ALIGNED = {"hidden_size": 64, "num_heads": 4, "num_kv_heads": 2, "intermediate_size": 168}


def emulated(make_config: MakeConfig, scaling: str = "tensorwise", **sections: dict[str, Any]) -> RunConfig:
    training = {"precision": "fp8", "micro_batch_size": 4, **sections.pop("training", {})}
    fp8 = {"emulate": True, "scaling": scaling}
    return make_config(**{"model": ALIGNED, "training": training, "fp8": fp8, **sections})


def converted(model: nn.Module) -> set[str]:
    return {name for name, module in model.named_modules() if type(module).__name__ == "Float8Linear"}


@pytest.mark.parametrize("scaling", ["tensorwise", "rowwise"])
def test_losses_are_close_to_those_of_bf16(
    make_config: MakeConfig, documents_apart: GlobalBatches, on_one_process: OneProcess, scaling: str
) -> None:
    pytest.importorskip("torchao")
    fp8 = on_one_process(emulated(make_config, scaling), documents_apart)
    bf16 = on_one_process(emulated(make_config, training={"precision": "bf16"}), documents_apart)
    torch.testing.assert_close(fp8[:, 0], bf16[:, 0], atol=0.02, rtol=0)
    assert not torch.equal(fp8, bf16)


def test_linear_layers_of_blocks_are_converted_where_16_divides_them(
    make_config: MakeConfig, source: GlobalBatches
) -> None:
    pytest.importorskip("torchao")
    with initialize(emulated(make_config), source) as engine:
        attention = {f"layers.{layer}.self_attn.{name}_proj" for layer in (0, 1) for name in "qkvo"}
        assert converted(engine.model) == attention, "168 is no multiple of 16, and the head is no block"
        assert {parameter.dtype for parameter in engine.model.parameters()} == {torch.float32}


def test_it_recomputes_and_shards_like_bf16(
    make_config: MakeConfig, source: GlobalBatches, on_one_process: OneProcess
) -> None:
    pytest.importorskip("torchao")
    plain = on_one_process(emulated(make_config), source)
    for mode in ("full", "selective"):
        config = emulated(make_config, training={"zero_stage": 3}, activation_checkpointing={"mode": mode})
        assert torch.equal(on_one_process(config, source), plain), mode


def test_a_checkpoint_goes_on_in_bf16(
    make_config: MakeConfig, source: GlobalBatches, on_one_process: OneProcess, tmp_path: Path
) -> None:
    pytest.importorskip("torchao")
    with initialize(emulated(make_config), source) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            if report is not None and report.progress.step == 3:
                checkpoint.save(engine, tmp_path)
        losses = report.loss if report is not None else 0.0
    in_bf16 = emulated(make_config, training={"precision": "bf16"})
    assert on_one_process(in_bf16, source, tmp_path)[-1, 0] == pytest.approx(losses, abs=0.02)
    assert set(CHANGES["precision"]) == {"training.precision", "loss_scale.", "fp8."}


def test_a_module_of_one_s_own_is_converted_too(
    source: GlobalBatches, make_own_model: Callable[[str], nn.Module]
) -> None:
    pytest.importorskip("torchao")
    config = RunConfig.model_validate(
        {
            "data": {"sequence_length": 32},
            "training": {"steps": 2, "global_batch_size": 8, "precision": "fp8"},
            "fp8": {"emulate": True},
        }
    )
    with initialize(config, source, model=make_own_model("hand-made")) as engine:
        assert converted(engine.model) == {f"blocks.{block}.{name}" for block in (0, 1) for name in ("up", "down")}
        batch = next(engine.batches())
        engine.backward(engine(batch))


def test_without_hardware_it_is_refused(make_config: MakeConfig, source: GlobalBatches) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    config = emulated(make_config).model_copy(update={"fp8": Fp8Config()})
    with pytest.raises(ConfigError, match=r"training.precision: fp8 needs a GPU of CUDA capability 8.9 .* use bf16"):
        initialize(config, source)


def test_micro_batches_that_16_does_not_divide_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"multiple of 16 tokens, and .* is 120; change one of them"):
        check_fp8(Fp8Config(emulate=True), torch.device("cpu"), 120)


def test_a_model_without_a_layer_it_could_take_is_refused() -> None:
    pytest.importorskip("torchao")
    with pytest.raises(ConfigError, match="no linear layer of the blocks has sizes that are multiples of 16"):
        convert_to_fp8([nn.Linear(24, 16)], Fp8Config(emulate=True))


def test_without_torchao_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torchao", None)
    with pytest.raises(ConfigError, match=r"fp8 needs torchao: pip install 'tokenmill-trainer\[fp8\]', or use bf16"):
        check_fp8(Fp8Config(emulate=True), torch.device("cpu"), 128)
