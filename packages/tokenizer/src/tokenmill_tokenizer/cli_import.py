"""`prep import-tokenizer`."""

from typing import Any

import click

from tokenmill_core.cli.options import nest, run_stage_command, stage_options
from tokenmill_tokenizer.importing.stage import STAGE
from tokenmill_tokenizer.splits import Split

_MAX_DIGITS = 100
"""Of an id as it is given. One that is too high is refused later, by what may be; int() refuses thousands of digits."""


def _special_token(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        # A token may hold the sign itself.
        token, equals, digits = value.rpartition("=")
        if not (token and equals and digits.isdecimal() and len(digits) <= _MAX_DIGITS):
            raise click.BadParameter(f"{value[:60]!r} is not TOKEN=ID, such as '<|endoftext|>=50256'")
        if token in found:
            raise click.BadParameter(f"{token!r} is given twice")
        found[token] = int(digits)
    return found


@click.command("import-tokenizer")
@click.argument("inputs", nargs=1, required=True, metavar="FILE")
@click.option(
    "--split",
    type=click.Choice([split.value for split in Split]),
    help="tiktoken ranks: how text is cut before merging. [default: by the file's name]",
)
@click.option("--pattern", metavar="REGEX", help="tiktoken ranks: a regular expression in place of --split.")
@click.option(
    "--special",
    "specials",
    multiple=True,
    metavar="TOKEN=ID",
    callback=_special_token,
    help="tiktoken ranks: a special token; repeatable. [default: by the file's name]",
)
@click.option("--end-of-document", metavar="TOKEN", help="What closes a document. [default: as its settings say]")
@click.option("--beginning-of-document", metavar="TOKEN", help="What opens one. [default: as its settings say]")
@click.option("--padding", metavar="TOKEN", help="What fills up sequences. [default: as its settings say]")
@click.option("--pad-to-multiple", type=int, metavar="N", help="Rows of a model's embedding: a multiple of N.")
@stage_options
def import_tokenizer(
    inputs: str, split: str | None, pattern: str | None, specials: dict[str, int], **options: Any
) -> None:
    """Make a tokenizer dataset of a tokenizer that exists.

    FILE is a Hugging Face tokenizer.json (or a folder with one, and transformers' settings beside it), tiktoken ranks,
    or a SentencePiece BPE model: its content says which. A tokenizer.json is kept byte for byte; of the others one is
    made that gives the same ids.

    \b
    Examples:
      prep import-tokenizer models/llama --pad-to-multiple 128 --out data/tokenizer
      prep import-tokenizer cl100k_base.tiktoken --out data/tokenizer
      prep import-tokenizer ranks.txt --split o200k --special '<|endoftext|>=200000' --out data/tokenizer
      prep import-tokenizer tokenizer.model --out data/tokenizer
    """
    roles = ("end_of_document", "beginning_of_document", "padding", "pad_to_multiple")
    given = {"split": split, "pattern": pattern, "special_tokens": specials or None}
    settings = nest(given | {role: options.pop(role) for role in roles}, options)
    run_stage_command(STAGE, [inputs], settings, options)
