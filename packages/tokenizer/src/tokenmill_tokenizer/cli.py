"""`prep train-tokenizer`."""

from enum import StrEnum
from typing import Any

import click

from tokenmill_core.cli.options import nest, reader_options, run_stage_command, stage_options
from tokenmill_core.sizes import parse_bytes
from tokenmill_tokenizer.splits import Split
from tokenmill_tokenizer.train import STAGE
from tokenmill_tokenizer.train_config import Trainer
from tokenmill_tokenizer.training.special_tokens import ChatFormat


def _one_of(values: type[StrEnum]) -> click.Choice[str]:
    return click.Choice([value.value for value in values])


@click.command("train-tokenizer")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@reader_options
@click.option("--vocab-size", type=int, help="Number of ids wanted, bytes and special tokens included.")
@click.option(
    "--split",
    type=_one_of(Split),
    help="How text is cut before merging. [default: cl100k]",
)
@click.option("--pattern", metavar="REGEX", help="A regular expression in place of --split.")
@click.option("--digit-group", type=int, metavar="N", help="Cut numbers into groups of at most N digits.")
@click.option("--end-of-document", metavar="TOKEN", help="Token that closes a document. [default: <|endoftext|>]")
@click.option("--beginning-of-document", metavar="TOKEN", help="Token that opens one. [default: none]")
@click.option("--padding", metavar="TOKEN", help="Token that fills up short sequences. [default: none]")
@click.option("--chat", type=_one_of(ChatFormat), help="Tokens and template for conversations.")
@click.option("--fill-in-the-middle", is_flag=True, default=None, help="Tokens for filling in a text's middle.")
@click.option("--special", "specials", multiple=True, metavar="TOKEN", help="A further special token; repeatable.")
@click.option("--reserved", type=int, metavar="N", help="Special tokens kept for later.")
@click.option("--sample-bytes", metavar="SIZE", help="Text to train on, such as 10GB. [default: all]")
@click.option("--seed", type=int, help="Which documents are in the sample. [default: 0]")
@click.option("--trainer", type=_one_of(Trainer), help="What learns the merges. [default: native]")
@stage_options
def train_tokenizer(
    inputs: tuple[str, ...],
    specials: tuple[str, ...],
    reserved: int | None,
    sample_bytes: str | None,
    vocab_size: int | None,
    split: str | None,
    pattern: str | None,
    digit_group: int | None,
    end_of_document: str | None,
    beginning_of_document: str | None,
    padding: str | None,
    chat: str | None,
    fill_in_the_middle: bool | None,
    seed: int | None,
    trainer: str | None,
    **options: Any,
) -> None:
    """Train a byte-level BPE tokenizer on the documents of every INPUT.

    INPUT is a file, a folder, a glob, an fsspec URL, or a documents dataset; NAME=INPUT:WEIGHT names it and says how
    much of the sample it makes up. Writes a tokenizer.json that `tokenizers` and `transformers` load, and ranks for
    tiktoken.

    \b
    Examples:
      prep train-tokenizer data/clean --vocab-size 32000 --out data/tokenizer
      prep train-tokenizer corpus.jsonl.zst --vocab-size 8000 --split gpt2 --padding '<|pad|>' --out data/tokenizer
      prep train-tokenizer web=data/web:0.7 code=data/code:0.3 --sample-bytes 10GB --vocab-size 64000 \\
          --split o200k --chat chatml --reserved 64 --out data/tokenizer
    """
    if pattern is not None and split is not None:
        raise click.UsageError("--pattern stands in place of --split: give one of them")
    flat = {
        "vocab_size": vocab_size,
        "split": split,
        "pattern": pattern,
        "digit_group": digit_group,
        "end_of_document": end_of_document,
        "beginning_of_document": beginning_of_document,
        "padding": padding,
        "chat": chat,
        "fill_in_the_middle": fill_in_the_middle,
        "special_tokens": specials,
        "reserved_tokens": reserved,
        "sample_bytes": None if sample_bytes is None else parse_bytes(sample_bytes, "--sample-bytes"),
        "seed": seed,
        "trainer": trainer,
    }
    run_stage_command(STAGE, inputs, nest(flat, options), options)
