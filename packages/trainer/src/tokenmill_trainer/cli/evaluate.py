"""`pretrain eval`."""

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tokenmill_core.cli.options import json_option, wide_console
from tokenmill_trainer.cli.arguments import Place
from tokenmill_trainer.cli.use import tell


@click.command("eval")
@click.argument("path", metavar="RUN|MODEL", type=Place(path_type=Path))
@click.option("--tasks", required=True, metavar="A,B", help="Tasks of lm-evaluation-harness, by name.")
@click.option("--tasks-path", type=Place(path_type=Path, exists=True), help="Folder with task files of your own.")
@click.option("--limit", type=click.IntRange(min=1), help="Only so many documents of each task.")
@click.option("--num-fewshot", type=click.IntRange(min=0), help="Examples before each question; the task's own if not.")
@click.option("--batch-size", type=click.IntRange(min=1), default=8, show_default=True, help="Rows read at once.")
@click.option("--ema", is_flag=True, help="The averaged weights (ema.decay) of RUN in place of the last.")
@click.option("--out", type=Place(path_type=Path), help="JSON file for the results and what they are of.")
@json_option
def evaluate(
    path: Path,
    tasks: str,
    tasks_path: Path | None,
    limit: int | None,
    num_fewshot: int | None,
    batch_size: int,
    ema: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure RUN's newest checkpoint, or an exported MODEL, by tasks of lm-evaluation-harness.

    \b
    Examples:
      pretrain eval runs/first --tasks lambada_openai,arc_easy --limit 200
      pretrain eval models/first --tasks mine --tasks-path tasks --out results/first.json
    """
    from tokenmill_trainer.evaluation.evaluated_model import load_evaluated
    from tokenmill_trainer.evaluation.tasks import check_out, run_tasks, with_lineage, write_results

    check_out(out)
    evaluated = load_evaluated(path, tell, average=ema)
    names = [name.strip() for name in tasks.split(",") if name.strip()]
    results = run_tasks(
        evaluated, names, tasks_path=tasks_path, limit=limit, num_fewshot=num_fewshot, batch_size=batch_size
    )
    results = with_lineage(results, evaluated, out)
    if out is not None:
        write_results(results, out)
    if as_json:
        click.echo(json.dumps(results, default=str))
    else:
        _print(results)


def _print(results: dict[str, Any]) -> None:
    table = Table("task", "metric", "filter", "value", "standard error")
    for task, metrics in results["results"].items():
        for name, value in metrics.items():
            metric, _, used = name.partition(",")
            if isinstance(value, int | float) and used and not metric.endswith("_stderr"):
                error = metrics.get(f"{metric}_stderr,{used}")
                table.add_row(task, metric, used, f"{value:.4f}", f"{error:.4f}" if isinstance(error, float) else "")
    wide_console().print(table, markup=False)
