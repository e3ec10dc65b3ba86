"""muP: learning rates and start weights that stay right when the width changes (arXiv:2203.03466, for Adam).

With r = hidden_size / mup_base_width, beside a model without muP:

    hidden matrices             start variance ÷ r      rate ÷ r
    embeddings, vectors         unchanged               unchanged
    head, tied or not           unchanged               unchanged       logits ÷ r
    attention                   scores · 1/d in place of 1/sqrt(d), d the size of a head

Hidden matrices are those whose sizes all grow with the width: the ones in the blocks. All their inner sizes
(intermediate, ranks of latent attention) are meant to grow along.
"""

import math

from tokenmill_trainer.model.config import ModelConfig


def is_hidden_matrix(name: str) -> bool:
    """Whether parameter `name` is a matrix from width to width."""
    return name.startswith("layers.") and not name.endswith("bias") and "norm" not in name


def init_scale(config: ModelConfig, name: str) -> float:
    """What the start standard deviation of parameter `name` is multiplied by."""
    return 1 / math.sqrt(config.width_ratio) if is_hidden_matrix(name) else 1.0


def lr_scale(config: ModelConfig, name: str) -> float:
    """What the learning rate of parameter `name` is multiplied by."""
    return 1 / config.width_ratio if is_hidden_matrix(name) else 1.0
