"""`prep run`: a whole recipe, like make."""

import json
from typing import Any

import click

from tokenmill_core.build import Built
from tokenmill_core.cli.options import execution_options, make_executor, summary
from tokenmill_core.pipeline import load_recipe, run_recipe


@click.command()
@click.argument("recipe")
@click.option("--set", "overrides", multiple=True, metavar="NAME=VALUE", help="Such as steps.NAME.config.profile=code.")
@execution_options
def run(recipe: str, overrides: tuple[str, ...], force: bool, as_json: bool, **execution: Any) -> None:
    """Bring every step of the TOML file RECIPE up to date.

    A step whose inputs, settings and stage version are those of its output is skipped.

    \b
    Example: prep run pipelines/demo.toml --set steps.prose.config.filter.length.min_words=5
    """

    def tell(name: str, built: Built) -> None:
        click.echo(f"[{name}] {summary(built)}", err=as_json)

    with make_executor(execution) as executor:
        built = run_recipe(recipe, load_recipe(recipe, overrides), executor, tell, force=force)
    if as_json:
        rows = {
            name: {"up_to_date": b.up_to_date, "manifest": b.loaded.url, "digest": b.loaded.manifest.digest}
            for name, b in built.items()
        }
        click.echo(json.dumps(rows))
