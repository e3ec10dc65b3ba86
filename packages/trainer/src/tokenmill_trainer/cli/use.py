"""`pretrain sample`, `pretrain export` and `pretrain import`."""

import json
from pathlib import Path

import click

from tokenmill_core.cli.options import json_option
from tokenmill_core.manifest import ModelManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_trainer.cli.arguments import Place, check_text

run_argument = click.argument("run_path", metavar="RUN", type=Place(path_type=Path))


def tell(text: str) -> None:
    """One line on standard error."""
    click.echo(text, err=True)


@click.command()
@click.argument("path", metavar="RUN|MODEL", type=Place(path_type=Path))
@click.option("--prompt", required=True, help="Text to go on from.")
@click.option("--tokens", default=200, show_default=True, help="Tokens to generate at most.")
@click.option("--temperature", default=0.8, show_default=True, help="0 always takes the likeliest token.")
@click.option("--top-k", default=0, show_default=True, help="Draw from the k likeliest tokens only; 0: from all.")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same text.")
@click.option("--ema", is_flag=True, help="The averaged weights (ema.decay) of RUN in place of the last.")
def sample(path: Path, prompt: str, tokens: int, temperature: float, top_k: int, seed: int, ema: bool) -> None:
    """Print PROMPT and how the model goes on: that of RUN's newest checkpoint, or an exported MODEL.

    \b
    Examples:
      pretrain sample runs/first --prompt "Once upon a time"
      pretrain sample models/first --prompt "def main" --tokens 50 --temperature 0
    """
    from tokenmill_core.config import validate_config
    from tokenmill_trainer.evaluation.evaluated_model import load_evaluated
    from tokenmill_trainer.generation import SampleConfig
    from tokenmill_trainer.sample import generate

    check_text("--prompt", prompt)
    values = {"num_tokens": tokens, "temperature": temperature, "top_k": top_k, "seed": seed}
    config = validate_config(SampleConfig, values, "sample")
    click.echo(prompt + generate(load_evaluated(path, tell, average=ema), prompt, config))


@click.command()
@run_argument
@click.option("--out", required=True, type=Place(path_type=Path), help="Folder for the model.")
@click.option("--ema", is_flag=True, help="The averaged weights (ema.decay) in place of the last.")
@json_option
def export(run_path: Path, out: Path, ema: bool, as_json: bool) -> None:
    """Write the model of RUN in the Hugging Face layout, checked against transformers.

    \b
    Examples:
      pretrain export runs/first --out models/first
      pretrain export runs/first --out models/averaged --ema
    """
    from tokenmill_trainer.hf.export import export as export_model
    from tokenmill_trainer.run_folder import RunFolder
    from tokenmill_trainer.trained_model import load_trained

    tell_model(export_model(load_trained(RunFolder(run_path), tell, average=ema), out), out, as_json)


@click.command("import")
@click.argument("source", metavar="FOLDER", type=Place(path_type=Path, exists=True, file_okay=False))
@click.option("--out", required=True, type=Place(path_type=Path), help="Folder for the model.")
@json_option
def import_(source: Path, out: Path, as_json: bool) -> None:
    """Copy a model that transformers saved, checked against it, to start a run from: safetensors alone.

    \b
    Examples:
      pretrain import downloads/SmolLM2-135M --out models/smollm
      pretrain run --config run.toml --init-from models/smollm --out runs/continued
    """
    from tokenmill_trainer.hf.adopting import import_model

    tell_model(import_model(source, out), out, as_json)


def tell_model(loaded: LoadedManifest[ModelManifest], out: Path, as_json: bool) -> None:
    """What was written, as a line or as its manifest."""
    manifest = loaded.manifest
    if as_json:
        click.echo(json.dumps(manifest.model_dump(mode="json")))
    else:
        click.echo(
            f"model {manifest.name}: {manifest.parameters:,} parameters, logits within "
            f"{manifest.max_logit_difference:.1e} of transformers -> {out}"
        )
