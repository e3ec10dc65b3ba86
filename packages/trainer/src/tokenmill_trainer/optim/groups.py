"""Which parameters are trained how: groups with one learning-rate factor and one decay each.

    parameters by name ─ first rule of [[optimizer.groups]] that matches, else the defaults ─▶ groups

By default matrices decay and vectors (norms, biases) do not. Which rates muP wants is the model's business: its
`lr_scale(name)`, where it has one, is a factor on top.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator
from torch import Tensor, nn

from tokenmill_core.errors import ConfigError
from tokenmill_core.manifest import Frozen

HEAD = "lm_head.weight"


class GroupConfig(Frozen):
    """A rule for some of the parameters; the first that matches a name decides."""

    model_config = ConfigDict(allow_inf_nan=False)

    match: str
    """Regular expression that is found in the parameter's name, such as `norm` or `^layers\\.0\\.`."""
    lr_scale: float = Field(default=1.0, ge=0)
    """The learning rate is multiplied by this; 0 freezes."""
    weight_decay: float | None = Field(default=None, ge=0)
    """Decay in place of the default; none: the default."""
    method: Literal["adamw"] | None = None
    """`adamw` keeps these from muon; none: the default."""

    @field_validator("match")
    @classmethod
    def _is_an_expression(cls, match: str) -> str:
        try:
            re.compile(match)
        except re.error as error:
            raise ValueError(f"{match!r} is not a regular expression: {error}") from error
        return match


def parameter_groups(
    model: nn.Module,
    rules: Sequence[GroupConfig],
    *,
    weight_decay: float,
    decay_embeddings: bool,
    for_muon: Callable[[str, Tensor], bool] | None = None,
) -> list[dict[str, Any]]:
    """Groups for a `torch.optim` optimizer, of those parameters of `model` that need a gradient.

    Each has `params`, `weight_decay`, `lr_scale` and, with `for_muon`, which says whom of the rest it takes, `muon`.
    Decaying matrices come first, then what does not decay.

    Errors: `ConfigError` where a rule matches no parameter.
    """
    scale_of = getattr(model, "lr_scale", lambda name: 1.0)
    embeddings = embedding_names(model)
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    unused = list(rules)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        rule = next((rule for rule in rules if re.search(rule.match, name)), GroupConfig(match=""))
        unused = [other for other in unused if other is not rule]
        decays = parameter.ndim >= 2 and (decay_embeddings or name not in embeddings)
        settings: dict[str, Any] = {
            "weight_decay": (weight_decay if decays else 0.0) if rule.weight_decay is None else rule.weight_decay,
            "lr_scale": rule.lr_scale * scale_of(name),
        }
        if for_muon is not None:
            settings["muon"] = rule.method != "adamw" and for_muon(name, parameter)
        groups.setdefault(tuple(settings.values()), {"params": [], **settings})["params"].append(parameter)
    if unused:
        raise ConfigError(
            f"optimizer.groups: match {unused[0].match!r} decides for no parameter: none has such a name, or an "
            f"earlier rule takes them all; names are such as {next(iter(dict(model.named_parameters())))!r}"
        )
    return sorted(groups.values(), key=lambda group: group["weight_decay"] == 0)


def embedding_names(model: nn.Module) -> set[str]:
    """Names of the weights of embeddings; a tied head is one."""
    modules = ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Embedding))
    return {f"{name}.weight" if name else "weight" for name, _ in modules}
