"""`prep train-tokenizer`."""

from typing import Any

import click

from tokenmill_core.cli.options import nest, reader_options, run_stage_command, stage_options
from tokenmill_tokenizer.splits import Split
from tokenmill_tokenizer.train import STAGE


@click.command("train-tokenizer")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@reader_options
@click.option("--vocab-size", type=int, help="Number of ids wanted, bytes and special tokens included.")
@click.option(
    "--split",
    type=click.Choice([split.value for split in Split]),
    help="How text is cut before merging. [default: cl100k]",
)
@click.option("--special", "specials", multiple=True, metavar="TOKEN", help="A further special token; repeatable.")
@stage_options
def train_tokenizer(
    inputs: tuple[str, ...], vocab_size: int | None, split: str | None, specials: tuple[str, ...], **options: Any
) -> None:
    """Train a byte-level BPE tokenizer on the documents of every INPUT.

    Writes a tokenizer.json that `tokenizers` and `transformers` load.

    \b
    Examples:
      prep train-tokenizer data/clean --vocab-size 32000 --out data/tokenizer
      prep train-tokenizer corpus.jsonl.zst --vocab-size 8000 --split gpt2 --special '<|pad|>' --out data/tokenizer
    """
    settings = nest({"vocab_size": vocab_size, "split": split, "special_tokens": specials}, options)
    run_stage_command(STAGE, inputs, settings, options)
