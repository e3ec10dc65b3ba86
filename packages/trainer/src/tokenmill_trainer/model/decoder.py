"""The decoder: one transformer, assembled by its config.

    tokens (B, L) ─ embed ─▶ (B, L, D) ─ block × layers ─ norm ─▶ features (B, L, D) ─ head ─▶ logits (B, L, V)

Parameter names are those of the Hugging Face Llama without its leading `model.`, so most exports only rename.
Legend: B batch, L length, D hidden size, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.model.balance import count_loads
from tokenmill_trainer.model.block import DecoderBlock
from tokenmill_trainer.model.config import ModelConfig
from tokenmill_trainer.model.kv_cache import KeyValueCache
from tokenmill_trainer.model.linear import Embedding, Linear, linear
from tokenmill_trainer.model.masks import masks_by_window
from tokenmill_trainer.model.moe import MoE
from tokenmill_trainer.model.mup import lr_scale
from tokenmill_trainer.model.norms import make_norm
from tokenmill_trainer.model.rotary import Rope, RotaryTable
from tokenmill_trainer.model.router import Router, RouterReport


class Decoder(nn.Module):
    """Token ids to logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = Embedding(config.vocabulary, config.hidden_size)
        self.embed_positions, self.rotary = None, None
        if config.position == "learned":
            assert config.max_positions is not None, "the config has checked it"
            self.embed_positions = Embedding(config.max_positions, config.hidden_size)
        else:
            self.rotary = RotaryTable(config.rotary_size, config.rope_theta, config.rope_scaling)
        self.layers = nn.ModuleList(DecoderBlock(config, layer) for layer in range(config.num_layers))
        self.norm = make_norm(config)
        self.lm_head = None if config.tied_embeddings else Linear(config.hidden_size, config.vocabulary, bias=False)
        self._router_reports: list[RouterReport] = []

    def forward(
        self,
        tokens_BL: Tensor,
        cache: KeyValueCache | None = None,
        positions_BL: Tensor | None = None,
        head: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Logits (B, L, V) for ids (B, L); with `head`, what it makes of the features in their place.

        A loss that reads the head's weight is such a `head`: sharded weights are whole only while `forward` runs.

        With a cache, `tokens_BL` goes on where the cache ends. `positions_BL`, int32 and 0 where a document begins,
        keeps the documents of a row apart: none attends to another.

        Errors: `ConfigError` where there are fewer learned positions than tokens.
        """
        features_BLD = self.features(tokens_BL, cache, positions_BL)
        return self.logits(features_BLD) if head is None else head(features_BLD)

    def features(
        self, tokens_BL: Tensor, cache: KeyValueCache | None = None, positions_BL: Tensor | None = None
    ) -> Tensor:
        """What the head reads, (B, L, D): `logits` of it, whole or in pieces, are the model's."""
        assert cache is None or positions_BL is None, "documents are kept apart in training alone"
        start = cache.length if cache is not None else 0
        x_BLD = self._embed(tokens_BL, start, positions_BL)
        rope = self._rope(tokens_BL, start, positions_BL)
        masks = masks_by_window(self.config, tokens_BL.shape[1], tokens_BL.device, start, positions_BL)
        reports: list[RouterReport | None] = []
        for layer, block in enumerate(self.layers):
            x_BLD, report = block(x_BLD, rope, masks[self.config.window_of(layer)], cache, layer)
            reports.append(report)
        self._take_reports(reports)
        return self.norm(x_BLD)  # type: ignore[no-any-return]

    def logits(self, features: Tensor) -> Tensor:
        """(…, D) to (…, V)."""
        logits = linear(features, self.head_weight)
        if self.config.width_ratio != 1:
            logits = logits / self.config.width_ratio
        cap = self.config.logit_soft_cap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    @property
    def head_weight(self) -> Tensor:
        """(V, D), the embedding's own where they are tied."""
        return self.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    def auxiliary_loss(self) -> Tensor | None:
        """The routers' own losses in the last forward, weighted and summed over layers: the mean over its tokens, fp32.

        Every token that was read has part in it, whether its label counts or not. None where no layer has experts.
        """
        losses = [report.loss for report in self._router_reports]
        return torch.stack(losses).sum() if losses else None

    @property
    def routers(self) -> list[Router]:
        """Of the layers with experts, in their order."""
        return [block.mlp.gate for block in self.layers if isinstance(block.mlp, MoE)]

    def _take_reports(self, reports: list[RouterReport | None]) -> None:
        self._router_reports = [report for report in reports if report is not None]
        if torch.is_grad_enabled():
            count_loads(self.routers, self._router_reports)

    def lr_scale(self, name: str) -> float:
        """What the learning rate of parameter `name` is to be multiplied by: muP's factor, 1 without muP."""
        return lr_scale(self.config, name)

    def _embed(self, tokens_BL: Tensor, start: int, positions_BL: Tensor | None) -> Tensor:
        x_BLD: Tensor = self.embed_tokens(tokens_BL)
        if self.config.embedding_scale is not None:
            x_BLD = x_BLD * self.config.embedding_scale
        if self.embed_positions is None:
            return x_BLD
        end, known = start + tokens_BL.shape[1], self.embed_positions.num_embeddings
        if end > known:
            raise ConfigError(
                f"model.max_positions: {known} learned positions for {end} tokens; raise it, or read fewer"
            )
        places = torch.arange(start, end, device=tokens_BL.device) if positions_BL is None else positions_BL
        return x_BLD + self.embed_positions(places)  # type: ignore[no-any-return]

    def _rope(self, tokens_BL: Tensor, start: int, positions_BL: Tensor | None) -> Rope | None:
        if self.rotary is None:
            return None
        if positions_BL is not None:
            return self.rotary.at(positions_BL)
        return self.rotary(start, tokens_BL.shape[1], tokens_BL.device)


def build_on_meta(config: ModelConfig) -> Decoder:
    """The decoder without memory: shapes and names alone."""
    with torch.device("meta"):
        return Decoder(config)


def num_parameters(model: nn.Module) -> int:
    """Scalars in the model's state, counted once each: parameters, and buffers that are saved with them."""
    return sum(tensor.numel() for tensor in model.state_dict().values())
