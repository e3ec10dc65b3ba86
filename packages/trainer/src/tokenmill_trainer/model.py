"""The decoder: a Llama-style transformer.

    tokens (B, L) ─ embed ─▶ (B, L, D) ─ [norm ─ attention ─ + ─ norm ─ SwiGLU ─ +] × layers ─ norm ─ head ─▶ (B, L, V)

Parameter names are those of the Hugging Face Llama without its leading `model.`, so export only renames.
Legend: B batch, L length, D hidden size, H heads, K key/value heads, d head size, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from pydantic import ConfigDict, Field, model_validator
from torch import Tensor, nn

from tokenmill_core.manifest import Frozen
from tokenmill_trainer.attention import attend, document_mask
from tokenmill_trainer.kv_cache import KeyValueCache
from tokenmill_trainer.presets import PRESETS
from tokenmill_trainer.rotary import RotaryTable, rotate


class ModelConfig(Frozen):
    """The decoder's shape."""

    model_config = ConfigDict(allow_inf_nan=False)

    preset: str | None = None
    """Name of a published shape that fills in what is not given here; see `presets.py`."""
    vocab_size: int | None = Field(default=None, gt=0)
    """Rows of the embedding; none: the `padded_vocab_size` of the mixture's tokenizer."""
    hidden_size: int = Field(default=256, gt=0)
    """Width of the residual stream."""
    intermediate_size: int = Field(default=704, gt=0)
    """Width inside the SwiGLU."""
    num_layers: int = Field(default=6, gt=0)
    """Decoder blocks."""
    num_heads: int = Field(default=8, gt=0)
    """Query heads."""
    num_kv_heads: int | None = Field(default=None, gt=0)
    """Key/value heads; none: as many as query heads."""
    head_dim: int | None = Field(default=None, gt=0)
    """Size of a head; none: hidden_size / num_heads."""
    rope_theta: float = Field(default=10_000.0, gt=0)
    """Base of the rotary frequencies."""
    norm_eps: float = Field(default=1e-5, gt=0)
    """Added to the mean square in RMSNorm."""
    tied_embeddings: bool = False
    """Whether the head is the embedding itself."""
    init_std: float = Field(default=0.02, gt=0)
    """Standard deviation of the start weights; residual outputs get it divided by sqrt(2 · num_layers)."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, values: Any) -> Any:
        name = values.get("preset") if isinstance(values, dict) else None
        if name is None:
            return values
        if name not in PRESETS:
            raise ValueError(f"preset: no preset is called {name!r}; there are {', '.join(PRESETS)}")
        return {**PRESETS[name], **values}

    @model_validator(mode="after")
    def _heads_fit(self) -> "ModelConfig":
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"num_heads: {self.num_heads} must divide hidden_size {self.hidden_size}, with head_dim given too, "
                "or the model could not be exported as a Llama; choose a divisor"
            )
        if self.num_heads % self.kv_heads:
            raise ValueError(f"num_kv_heads: {self.kv_heads} must divide num_heads {self.num_heads}")
        if self.head_size % 2:
            raise ValueError(f"head_dim: {self.head_size} is odd, but rotary positions turn pairs; make it even")
        return self

    @property
    def kv_heads(self) -> int:
        """Key/value heads, resolved."""
        return self.num_kv_heads or self.num_heads

    @property
    def head_size(self) -> int:
        """Size of a head, resolved."""
        return self.head_dim or self.hidden_size // self.num_heads

    @property
    def vocabulary(self) -> int:
        """`vocab_size`, which must have been resolved by now."""
        assert self.vocab_size is not None, "vocab_size is resolved against the mixture before a model is built"
        return self.vocab_size


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight, with the mean taken in fp32 (arXiv:1910.07467)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Attention(nn.Module):
    """Projections around `attend`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_size = config.head_size
        query_size, kv_size = config.num_heads * config.head_size, config.kv_heads * config.head_size
        self.q_proj = nn.Linear(config.hidden_size, query_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.o_proj = nn.Linear(query_size, config.hidden_size, bias=False)

    def forward(
        self,
        x_BLD: Tensor,
        cos: Tensor,
        sin: Tensor,
        documents: Tensor | None,
        cache: KeyValueCache | None,
        layer: int,
    ) -> Tensor:
        """(B, L, D) to (B, L, D). With a cache the L new positions also see the earlier ones."""
        q_BHLd = rotate(self._heads(self.q_proj(x_BLD)), cos, sin)
        k_BKLd = rotate(self._heads(self.k_proj(x_BLD)), cos, sin)
        v_BKLd = self._heads(self.v_proj(x_BLD))
        if cache is not None:
            k_BKLd, v_BKLd = cache.append(layer, k_BKLd, v_BKLd)
        y_BHLd = attend(q_BHLd, k_BKLd, v_BKLd, documents)
        return self.o_proj(y_BHLd.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], -1, self.head_size).transpose(1, 2)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x)) (arXiv:2002.05202)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, D) to (B, L, D)."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class DecoderBlock(nn.Module):
    """Attention and SwiGLU, each behind a norm and added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = SwiGLU(config)

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        documents: Tensor | None = None,
        cache: KeyValueCache | None = None,
        layer: int = 0,
    ) -> Tensor:
        """(B, L, D) to (B, L, D); cos and sin are fp32, (L, d/2) or (B, 1, L, d/2)."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, documents, cache, layer)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Token ids to logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocabulary, config.hidden_size)
        self.layers = nn.ModuleList(DecoderBlock(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.lm_head = None if config.tied_embeddings else nn.Linear(config.hidden_size, config.vocabulary, bias=False)
        self.rotary = RotaryTable(config.head_size, config.rope_theta)

    def forward(
        self, tokens_BL: Tensor, cache: KeyValueCache | None = None, positions_BL: Tensor | None = None
    ) -> Tensor:
        """Logits (B, L, V) for ids (B, L).

        With a cache, `tokens_BL` goes on where the cache ends. `positions_BL`, int32 and 0 where a document begins,
        keeps the documents of a row apart: none attends to another.
        """
        if positions_BL is None:
            start = cache.length if cache is not None else 0
            cos, sin = self.rotary(start, tokens_BL.shape[1], tokens_BL.device)
            documents = None
        else:
            assert cache is None, "documents are kept apart in training alone"
            cos, sin = self.rotary.at(positions_BL)
            documents = document_mask(positions_BL)
        x_BLD = self.embed_tokens(tokens_BL)
        for index, block in enumerate(self.layers):
            x_BLD = block(x_BLD, cos, sin, documents, cache, index)
        head = self.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return F.linear(self.norm(x_BLD), head)


def build_on_meta(config: ModelConfig) -> Decoder:
    """The decoder without memory: shapes and names alone."""
    with torch.device("meta"):
        return Decoder(config)


def num_parameters(model: nn.Module) -> int:
    """Scalars in the model; a tied head counts once."""
    return sum(parameter.numel() for parameter in model.parameters())
