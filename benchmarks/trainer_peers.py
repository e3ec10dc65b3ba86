"""The Llamas of torchtitan and litgpt in `trainer.py`: `python trainer_peers.py NAME FOLDER`.

They have an environment of their own; only their model classes are used, in the plain loop.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from trainer_loop import Job, load, plain_steps
from turns import serve


def torchtitan(job: Job) -> Iterator[Sequence[Any]]:
    """Its Llama 3, with SDPA: FlexAttention and varlen, its own choices, have no backward on CPUs."""
    from torchtitan.models.common import Embedding, Linear, RMSNorm
    from torchtitan.models.common.attention import ScaledDotProductAttention
    from torchtitan.models.common.rope import CosSinRoPE
    from torchtitan.models.llama3 import Llama3Model, _build_llama3_layers

    shape, start = job.shape, {"weight": torch.nn.init.ones_}
    vocabulary, width = shape["vocab_size"], shape["hidden_size"]
    layers = _build_llama3_layers(
        n_layers=shape["num_layers"],
        dim=width,
        n_heads=shape["num_heads"],
        n_kv_heads=shape["num_kv_heads"],
        hidden_dim=shape["intermediate_size"],
        rope=CosSinRoPE.Config(dim=width // shape["num_heads"], max_seq_len=job.length, theta=10_000.0, scaling="none"),
        attn_backend="varlen",
        fuse_qkv=False,
    )
    for layer in layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    model = Llama3Model(
        Llama3Model.Config(
            dim=width,
            vocab_size=vocabulary,
            tok_embeddings=Embedding.Config(num_embeddings=vocabulary, embedding_dim=width, param_init=start),
            norm=RMSNorm.Config(normalized_shape=width, param_init=start),
            lm_head=Linear.Config(in_features=width, out_features=vocabulary, param_init=start),
            layers=layers,
        )
    )
    model.init_states()
    names = {
        "embed_tokens": "tok_embeddings",
        "self_attn.o_proj": "attention.wo",
        "self_attn.q_proj": "attention.qkv_linear.wq",
        "self_attn.k_proj": "attention.qkv_linear.wk",
        "self_attn.v_proj": "attention.qkv_linear.wv",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.down_proj": "feed_forward.w2",
        "mlp.up_proj": "feed_forward.w3",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    return plain_steps("torchtitan", job, load(model, _renamed(job.weights(), names)), model)


def litgpt(job: Job) -> Iterator[Sequence[Any]]:
    """Its GPT as a Llama, with one matrix for queries, keys and values."""
    from litgpt.model import GPT, Config

    shape = job.shape
    config = Config(
        block_size=job.length,
        n_layer=shape["num_layers"],
        n_embd=shape["hidden_size"],
        n_head=shape["num_heads"],
        n_query_groups=shape["num_kv_heads"],
        padded_vocab_size=shape["vocab_size"],
        intermediate_size=shape["intermediate_size"],
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMLP",
        norm_eps=1e-5,
    )
    names = {
        "embed_tokens": "transformer.wte",
        "layers": "transformer.h",
        "self_attn.o_proj": "attn.proj",
        "mlp.gate_proj": "mlp.fc_1",
        "mlp.up_proj": "mlp.fc_2",
        "mlp.down_proj": "mlp.proj",
        "input_layernorm": "norm_1",
        "post_attention_layernorm": "norm_2",
        "norm.weight": "transformer.ln_f.weight",
    }
    weights = job.weights()
    for layer in range(shape["num_layers"]):
        parts = [weights.pop(f"layers.{layer}.self_attn.{part}_proj.weight") for part in "qkv"]
        weights[f"layers.{layer}.attn.qkv.weight"] = torch.cat(parts)
    model = load(GPT(config), _renamed(weights, names))
    return plain_steps("litgpt", job, model, model)


def _renamed(weights: dict[str, torch.Tensor], names: dict[str, str]) -> dict[str, torch.Tensor]:
    """`weights` under the peer's names; only what follows a dot is replaced, so `norm` is not found in `q_norm`."""
    renamed = {}
    for name, value in weights.items():
        for old, new in names.items():
            name = f".{name}".replace(f".{old}", f".{new}", 1)[1:] if f".{old}" in f".{name}" else name
        renamed[name] = value
    return renamed


CONTESTANTS = {"torchtitan": torchtitan, "litgpt": litgpt}

if __name__ == "__main__":
    serve(lambda: CONTESTANTS[sys.argv[1]](Job.read(Path(sys.argv[2]))))
