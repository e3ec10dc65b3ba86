"""One layer: attention and feed-forward, each added to the residual stream, with norms where `norm_placement` says.

    pre        x + branch(norm(x))
    post       x + norm(branch(x))            OLMo 2
    sandwich   x + norm(branch(norm(x)))      Gemma 2

Norms have the names that `transformers` gives them, which depend on the placement.
"""

from torch import Tensor, nn

from tokenmill_trainer.model.attention import Attention
from tokenmill_trainer.model.config import ModelConfig
from tokenmill_trainer.model.feed_forward import FeedForward
from tokenmill_trainer.model.kv_cache import KeyValueCache
from tokenmill_trainer.model.latent_attention import LatentAttention
from tokenmill_trainer.model.masks import Mask
from tokenmill_trainer.model.moe import MoE
from tokenmill_trainer.model.norms import make_norm
from tokenmill_trainer.model.rotary import Rope
from tokenmill_trainer.model.router import RouterReport

NORM_NAMES = {
    "pre": ("input_layernorm", None, "post_attention_layernorm", None),
    "post": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "sandwich": (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
}
"""Norms before and after attention, before and after the feed-forward."""


class DecoderBlock(nn.Module):
    """Attention and feed-forward on the residual stream."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.norm_names = NORM_NAMES[config.norm_placement]
        before_attention, after_attention, before_mlp, after_mlp = self.norm_names
        self._add_norm(before_attention, config)
        self.self_attn = _attention(config)
        self._add_norm(after_attention, config)
        self._add_norm(before_mlp, config)
        self.mlp = _feed_forward(config, layer)
        self._add_norm(after_mlp, config)

    def _add_norm(self, name: str | None, config: ModelConfig) -> None:
        if name is not None:
            self.add_module(name, make_norm(config))

    def _normed(self, name: str | None, x: Tensor) -> Tensor:
        return x if name is None else getattr(self, name)(x)

    def forward(
        self,
        x_BLD: Tensor,
        rope: Rope | None = None,
        mask: Mask | None = None,
        cache: KeyValueCache | None = None,
        layer: int = 0,
    ) -> tuple[Tensor, RouterReport | None]:
        """(B, L, D) to (B, L, D), and what the router of a layer with experts has to tell.

        `mask` is that of the layer's window, `layer` this block's place in the cache.
        """
        before_attention, after_attention, before_mlp, after_mlp = self.norm_names
        attended = self.self_attn(self._normed(before_attention, x_BLD), rope, mask, cache, layer)
        x_BLD = x_BLD + self._normed(after_attention, attended)
        report, fed = None, self.mlp(self._normed(before_mlp, x_BLD))
        if isinstance(self.mlp, MoE):
            fed, report = fed
        return x_BLD + self._normed(after_mlp, fed), report


def _attention(config: ModelConfig) -> nn.Module:
    if config.attention == "mla":
        return LatentAttention(config)
    return Attention(config)


def _feed_forward(config: ModelConfig, layer: int) -> nn.Module:
    if config.is_sparse(layer):
        return MoE(config)
    return FeedForward(config)
