"""How an engine comes to be: world, data, model, one after the other, each from the settings.

config ─ process group ─▶ data ─▶ the decoder of `config.model`, or a module of the user's own ─▶ Engine, step 0
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import torch
from torch import nn

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.batches.data import Documents, GlobalBatches
from tokenmill_trainer.batches.open_data import open_data, open_validation
from tokenmill_trainer.batches.tokenizer import read_byte_lengths
from tokenmill_trainer.config import RunConfig, check_world_size, fitted, with_steps
from tokenmill_trainer.engine import Engine, StepSource, SumLosses
from tokenmill_trainer.layout.blocks import find_blocks, prepare_blocks
from tokenmill_trainer.layout.fp8 import check_fp8
from tokenmill_trainer.layout.own_module import expect_view, lay_out
from tokenmill_trainer.layout.recompute import RecomputeMode
from tokenmill_trainer.layout.sharding import PrepareBlocks, build_model
from tokenmill_trainer.loss import Criterion, own_loss_sums, takes_positions, training_loss_sums
from tokenmill_trainer.model import ModelConfig
from tokenmill_trainer.world import World, start_world


def initialize(
    config: RunConfig,
    source: StepSource | None = None,
    *,
    source_names: Sequence[str] = (),
    model: nn.Module | None = None,
    blocks: Sequence[str] | None = None,
    loss: Criterion | None = None,
) -> Engine:
    """An engine at step 0: process group, mesh, model with its start weights, optimizer and data.

    Every process of a torchrun start calls this; without torchrun the one process is a world of its own. `source`
    replaces the mixture of `config.data`, and `config.model.vocab_size` must then be given.

    `source_names` are those of the sources that its samples number, if they do.

    `model` replaces the decoder of `config.model`: a module that gives logits (B, L, V) for ids (B, L), in fp32. It is
    changed in place, and every rank gets the weights of rank 0. `blocks` names the modules that are sharded, compiled
    and recomputed one at a time; none: those of its longest `nn.ModuleList`. `loss` replaces cross-entropy: from what
    the model gives and labels (B, L) to a scalar, the sum over the labels that are not `loss.IGNORED`.

    Errors: `ConfigError` where settings do not fit each other, the model, the mixture or the number of ranks;
    `ManifestError` and `VerificationError` where the mixture or its shards are not what their manifests say.
    """
    with ExitStack() as resources:
        world = resources.enter_context(start_world(config.training.device))
        check_world_size(config, world.size)
        world.on_each(lambda: _check_parts(config, world, model, blocks, loss))
        torch.manual_seed(config.training.seed + world.rank)
        reader, mixture, byte_lengths = None, None, None
        if source is not None:
            config = with_steps(config)
        else:
            mixture, reader = open_data(config, world)
            config = fitted(config, mixture.manifest)
            byte_lengths, source_names = world.on_main(partial(read_byte_lengths, mixture)), reader.source_names
            source = GlobalBatches(
                reader,
                config.batch_plan,
                world.rank,
                world.size,
                config.data.num_workers,
                pin_memory=world.device.type == "cuda",
                vocab_size=reader.manifest.vocab_size,
                byte_lengths=byte_lengths,
            )
        built = _build_decoder(config, world) if model is None else _take_over(config, world, model, blocks)
        if loss is None:
            expect_view(built)
        engine = Engine(config, world, built, source, _sum_losses(config, loss), () if loss else source_names)
        engine.reader, engine.mixture, engine.byte_lengths = reader, mixture, byte_lengths
        if reader is not None and mixture is not None:
            engine.validation_reader = world.on_each(partial(open_validation, config, mixture, reader))
        engine._resources = resources.pop_all()
    return engine


def _check_parts(
    config: RunConfig, world: World, model: nn.Module | None, blocks: Sequence[str] | None, loss: Criterion | None
) -> None:
    """The settings and what stands in for some of them do not contradict each other, or `ConfigError`."""
    if model is None and blocks is not None:
        raise ConfigError("blocks: names parts of a model=; the decoder's own are its layers")
    if model is not None and config.model.model_copy(update={"vocab_size": None}) != ModelConfig():
        raise ConfigError("model: settings describe the decoder, but a model= is given; leave out one of the two")
    separate = config.data.documents is Documents.SEPARATE
    if model is not None and separate and not takes_positions(model):
        raise ConfigError(
            'data.documents: "separate" needs a model whose forward has a parameter positions_BL, the place of each '
            'token in its document, and attends within documents; say "join", or add it'
        )
    if loss is not None and config.loss.z_loss:
        raise ConfigError("loss.z_loss: is part of the cross-entropy that loss= replaces; leave out one of the two")
    if config.training.precision == "fp8":
        check_fp8(config.fp8, world.device, config.training.micro_batch_size * config.data.sequence_length)


def _build_decoder(config: RunConfig, world: World) -> nn.Module:
    training = config.training
    if config.model.vocab_size is None:
        raise ConfigError("model.vocab_size: must be given where the data is not a mixture")
    return build_model(
        config.model,
        world,
        _prepare(config),
        seed=training.seed,
        layout=training,
    )


def _take_over(config: RunConfig, world: World, model: nn.Module, names: Sequence[str] | None) -> nn.Module:
    """The user's module, laid out as the settings say."""
    training = config.training
    found = world.on_each(lambda: find_blocks(model, names))
    wishes = {
        "training.compile": training.compile,
        "training.precision": training.precision == "fp8",
        "activation_checkpointing.mode": config.activation_checkpointing.mode is not RecomputeMode.NONE,
    }
    of_blocks = [name for name, is_wished in wishes.items() if is_wished]
    if of_blocks and not found:
        raise ConfigError(f"{of_blocks[0]}: works on blocks, and the model has no nn.ModuleList; name some as blocks=")
    return lay_out(model, found, world, _prepare(config), training)


def _prepare(config: RunConfig) -> PrepareBlocks:
    training = config.training
    return partial(
        prepare_blocks,
        fp8=config.fp8 if training.precision == "fp8" else None,
        recompute=config.activation_checkpointing,
        compile_blocks=training.compile,
    )


def _sum_losses(config: RunConfig, loss: Criterion | None) -> SumLosses:
    if loss is not None:
        return partial(own_loss_sums, criterion=loss)
    return partial(training_loss_sums, config=config.loss)
