"""The decoder's shape: every setting that decides what the model computes, and which of them go together."""

import math
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from tokenmill_core.config import merge
from tokenmill_core.manifest import Frozen
from tokenmill_trainer.model.presets import PRESETS
from tokenmill_trainer.model.rotary import RopeScaling

MAX_WIDTH, MAX_ROWS, MAX_LAYERS = 10**6, 10**9, 10**4
"""Far above what there is: beyond, a tensor's bytes cannot be counted, or naming the parts takes forever."""


class LatentConfig(Frozen):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values come from one small vector."""

    q_rank: int | None = Field(default=None, gt=0, le=MAX_WIDTH)
    """Size that queries are compressed to; none: they are projected directly."""
    kv_rank: int = Field(default=512, gt=0, le=MAX_WIDTH)
    """Size that keys and values are compressed to, and cached in."""
    nope_head_dim: int = Field(default=128, gt=0, le=MAX_WIDTH)
    """Part of a query's and key's head without positions."""
    rope_head_dim: int = Field(default=64, gt=0, le=MAX_WIDTH)
    """Part of a query's and key's head that rotary positions turn; the key's is shared by all heads."""
    v_head_dim: int = Field(default=128, gt=0, le=MAX_WIDTH)
    """Size of a value's head."""


class MoEConfig(Frozen):
    """Mixture of experts in place of the feed-forward: each token takes the few experts its router scores highest."""

    model_config = ConfigDict(allow_inf_nan=False)

    num_experts: int = Field(default=8, gt=0, le=MAX_WIDTH)
    """Routed experts of a layer."""
    experts_per_token: int = Field(default=2, gt=0)
    """Routed experts that a token takes."""
    expert_intermediate_size: int = Field(default=704, gt=0, le=MAX_WIDTH)
    """Width inside one expert."""
    num_shared_experts: int = Field(default=0, ge=0, le=MAX_WIDTH)
    """Experts that every token takes besides, computed as one of their joint width."""
    num_dense_layers: int = Field(default=0, ge=0)
    """First layers that keep a plain feed-forward, of `intermediate_size`."""
    router: Literal["softmax", "sigmoid"] = "softmax"
    """What makes scores of the router's logits."""
    normalise_gates: bool = True
    """Whether the gates of a token's experts are divided by their sum."""
    gate_scale: float = Field(default=1.0, gt=0)
    """The gates are multiplied by this."""
    num_groups: int = Field(default=1, gt=0)
    """Equal groups the experts are in; above 1 a token first chooses groups."""
    groups_per_token: int = Field(default=1, gt=0)
    """Groups a token may take experts from."""
    aux_loss: float = Field(default=0.0, ge=0)
    """Weight of the load-balancing loss (Switch Transformer, arXiv:2101.03961)."""
    aux_loss_over: Literal["sequence", "micro_batch"] = "sequence"
    """The tokens whose loads it balances: each sequence's (DeepSeek-V2), which is the same for any split into ranks and
    micro-batches, or those of a rank's whole micro-batch."""
    z_loss: float = Field(default=0.0, ge=0)
    """Weight of the router's z-loss (ST-MoE, arXiv:2202.08906)."""
    bias_update_rate: float | None = Field(default=None, ge=0)
    """Change of an expert's selection bias a step, towards equal loads (DeepSeek-V3, arXiv:2412.19437); 0: biases stay
    as they are; none: there are none."""

    @model_validator(mode="after")
    def _choice_is_possible(self) -> "MoEConfig":
        if self.num_experts % self.num_groups:
            raise ValueError(f"num_groups: {self.num_groups} must divide num_experts {self.num_experts}")
        if self.groups_per_token > self.num_groups:
            raise ValueError(f"groups_per_token: {self.groups_per_token} is more than num_groups {self.num_groups}")
        group_size = self.num_experts // self.num_groups
        if self.experts_per_token > self.groups_per_token * group_size:
            raise ValueError(
                f"experts_per_token: {self.experts_per_token} are more than the {self.groups_per_token * group_size} "
                "a token can choose from; lower it, or raise groups_per_token"
            )
        if self.router == "sigmoid" and self.num_groups > 1 and group_size < 2:
            raise ValueError(
                f"num_groups: {self.num_groups} of one expert each, but a group's score is the sum of its best two; "
                "lower num_groups"
            )
        return self


class ModelConfig(Frozen):
    """The decoder's shape. The defaults give a Llama."""

    model_config = ConfigDict(allow_inf_nan=False)

    preset: str | None = None
    """Name of a published shape that fills in what is not given here: `gpt2` (`-medium`, `-large`, `-xl`),
    `llama-2-7b`, `llama-3-8b`, `llama-3-70b`, `llama-3.1-8b`, `llama-3.1-405b`, `llama-3.2-1b`, `mistral-7b`,
    `qwen3-0.6b`, `qwen3-8b`, `olmo-2-7b`, `gemma-2-9b`, `mixtral-8x7b`, `qwen3-30b-a3b`, `deepseek-v2-lite`,
    `deepseek-v3`, `tiny`."""
    vocab_size: int | None = Field(default=None, gt=0, le=MAX_ROWS)
    """Rows of the embedding; none: the `padded_vocab_size` of the mixture's tokenizer."""
    hidden_size: int = Field(default=256, gt=0, le=MAX_WIDTH)
    """Width of the residual stream."""
    intermediate_size: int = Field(default=704, gt=0, le=MAX_WIDTH)
    """Width inside the feed-forward."""
    num_layers: int = Field(default=6, gt=0, le=MAX_LAYERS)
    """Decoder blocks."""
    num_heads: int = Field(default=8, gt=0, le=MAX_WIDTH)
    """Query heads."""
    num_kv_heads: int | None = Field(default=None, gt=0, le=MAX_WIDTH)
    """Key/value heads; none: as many as query heads."""
    head_dim: int | None = Field(default=None, gt=0, le=MAX_WIDTH)
    """Size of a head; none: hidden_size / num_heads."""

    attention: Literal["gqa", "mla"] = "gqa"
    """Grouped-query attention (which has multi-head and multi-query as its ends), or latent attention (see `mla`)."""
    mla: LatentConfig | None = None
    """Sizes of latent attention."""
    qk_norm: Literal["none", "head", "full"] = "none"
    """RMSNorm of queries and keys before their positions: of each head's vector (Qwen3), or of all heads' at once
    (OLMo 2)."""
    attention_scale: float | None = Field(default=None, gt=0)
    """Scores are multiplied by this; none: 1 / sqrt(head size), or 1 / head size under muP."""
    attention_soft_cap: float | None = Field(default=None, gt=0)
    """Scores s become cap · tanh(s / cap) (Gemma 2)."""
    attention_bias: Literal["none", "qkv", "all"] = "none"
    """Which projections of attention add a bias: none, those to queries, keys and values, or the output's too."""
    sliding_window: int | None = Field(default=None, gt=0)
    """Positions that a token attends to, itself included; none: all before it."""
    global_every: int | None = Field(default=None, gt=1)
    """One layer in so many ignores the window (2: the second, the fourth, …, as in Gemma 2); none: no layer does."""

    position: Literal["rope", "learned"] = "rope"
    """Rotary phases in every layer (arXiv:2104.09864), or a learned vector added to each embedding."""
    max_positions: int | None = Field(default=None, gt=0, le=MAX_ROWS)
    """Learned positions there are."""
    rope_theta: float = Field(default=10_000.0, gt=0)
    """Base of the rotary frequencies."""
    rope_fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of each head, from its start, that positions turn."""
    rope_scaling: RopeScaling | None = None
    """How frequencies are changed for contexts longer than those of pretraining; none: not at all. Its `kind` is
    `llama3` (with `factor`, `low_freq_factor`, `high_freq_factor`, `original_positions`) or `yarn` (with `factor`,
    `original_positions`, `beta_fast`, `beta_slow`, `mscale`, `mscale_all_dim`)."""

    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    """RMSNorm (arXiv:1910.07467), or LayerNorm with a bias."""
    norm_eps: float = Field(default=1e-5, gt=0)
    """Added to the mean square, or the variance."""
    norm_placement: Literal["pre", "post", "sandwich"] = "pre"
    """Norm of what a branch reads, of what it adds to the stream (OLMo 2), or both (Gemma 2)."""
    norm_offset: bool = False
    """Whether RMSNorm multiplies by 1 + weight, and weights start from 0 (Gemma)."""

    activation: Literal["swiglu", "geglu", "gelu", "relu2"] = "swiglu"
    """Feed-forward: gated by SiLU or GELU (arXiv:2002.05202), or plain with GELU or squared ReLU. GELU is the tanh
    form."""
    mlp_bias: bool = False
    """Whether the feed-forward's projections add a bias."""
    moe: MoEConfig | None = None
    """Mixture of experts in place of the feed-forward; none: dense."""

    tied_embeddings: bool = False
    """Whether the head is the embedding itself."""
    embedding_scale: float | None = Field(default=None, gt=0)
    """Embeddings are multiplied by this (Gemma: sqrt(hidden_size)); none: 1."""
    logit_soft_cap: float | None = Field(default=None, gt=0)
    """Logits z become cap · tanh(z / cap)."""

    init: Literal["gpt2", "truncated"] = "gpt2"
    """Start weights: normal, or normal without what lies beyond 3 standard deviations."""
    init_std: float = Field(default=0.02, gt=0)
    """Standard deviation of the start weights."""
    residual_scaling: bool = True
    """Whether residual outputs start smaller, by 1 / sqrt(2 · num_layers)."""
    mup_base_width: int | None = Field(default=None, gt=0)
    """The `hidden_size` that rate and start weights were tuned at, to be carried over by muP; none: no muP."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, values: Any) -> Any:
        name = values.get("preset") if isinstance(values, dict) else None
        if name is None:
            return values
        if name not in PRESETS:
            raise ValueError(f"preset: no preset is called {name!r}; there are {', '.join(PRESETS)}")
        return merge(PRESETS[name], values)

    @model_validator(mode="after")
    def _heads_fit(self) -> "ModelConfig":
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"num_heads: {self.num_heads} must divide hidden_size {self.hidden_size}, with head_dim given too, "
                "or the model could not be exported as a Llama; choose a divisor"
            )
        if self.num_heads % self.kv_heads:
            raise ValueError(f"num_kv_heads: {self.kv_heads} must divide num_heads {self.num_heads}")
        if self.position == "rope" and self.head_size % 2:
            raise ValueError(f"head_dim: {self.head_size} is odd, but rotary positions turn pairs; make it even")
        if self.position == "rope" and not (self.rotary_size and self.rotary_size % 2 == 0):
            raise ValueError(
                f"rope_fraction: {self.rope_fraction} of a head of {self.head_size} is {self.rotary_size} numbers, "
                "but rotary positions turn pairs; make it an even number"
            )
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> "ModelConfig":
        if self.position == "learned" and self.max_positions is None:
            raise ValueError("max_positions: learned positions need their number; set it to the sequence length")
        if (self.attention == "mla") != (self.mla is not None):
            raise ValueError(
                f"mla: {self.mla} with attention {self.attention!r}; set attention = 'mla' and mla, or none"
            )
        if self.mla is not None and (self.qk_norm, self.attention_bias, self.position) != ("none", "none", "rope"):
            raise ValueError(
                f"mla: latent attention has no qk_norm ({self.qk_norm}), no attention_bias ({self.attention_bias}) and "
                f"no {self.position} positions; leave these settings out"
            )
        if self.moe is not None and (self.mlp_bias or self.activation not in ("swiglu", "geglu")):
            raise ValueError(
                f"moe: experts are gated and have no biases, but activation is {self.activation!r} and mlp_bias "
                f"{self.mlp_bias}; choose 'swiglu' or 'geglu', and no mlp_bias"
            )
        if self.global_every is not None and self.sliding_window is None:
            raise ValueError(f"global_every: {self.global_every} without a sliding_window: set that too, or neither")
        if self.norm_offset and self.norm == "layernorm":
            raise ValueError("norm_offset: goes with norm = 'rmsnorm' alone; leave it out")
        return self

    @property
    def kv_heads(self) -> int:
        """Key/value heads, resolved."""
        return self.num_kv_heads or self.num_heads

    @property
    def head_size(self) -> int:
        """Size of a query's and key's head, resolved."""
        if self.mla is not None:
            return self.mla.nope_head_dim + self.mla.rope_head_dim
        return self.head_dim or self.hidden_size // self.num_heads

    @property
    def value_size(self) -> int:
        """Size of a value's head, resolved."""
        return self.mla.v_head_dim if self.mla is not None else self.head_size

    @property
    def rotary_size(self) -> int:
        """How many numbers of a head positions turn."""
        return self.mla.rope_head_dim if self.mla is not None else int(self.head_size * self.rope_fraction)

    @property
    def softmax_scale(self) -> float:
        """What scores are multiplied by, resolved."""
        default = 1 / (math.sqrt(self.head_size) if self.mup_base_width is None else self.head_size)
        scale = self.attention_scale or default
        return scale if self.rope_scaling is None else scale * self.rope_scaling.softmax_factor

    @property
    def width_ratio(self) -> float:
        """The r of muP, hidden_size / mup_base_width; 1 without muP."""
        return self.hidden_size / (self.mup_base_width or self.hidden_size)

    @property
    def vocabulary(self) -> int:
        """`vocab_size`, which must have been resolved by now."""
        assert self.vocab_size is not None, "vocab_size is resolved against the mixture before a model is built"
        return self.vocab_size

    def window_of(self, layer: int) -> int | None:
        """The sliding window of layer `layer`, from 0; none where it attends to all before it."""
        is_global = self.global_every is not None and (layer + 1) % self.global_every == 0
        return None if is_global else self.sliding_window

    def is_sparse(self, layer: int) -> bool:
        """Whether layer `layer`, from 0, has experts."""
        return self.moe is not None and layer >= self.moe.num_dense_layers
