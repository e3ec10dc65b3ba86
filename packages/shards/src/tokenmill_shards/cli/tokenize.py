"""`prep tokenize` and `merge`."""

from typing import Any

import click

from tokenmill_core.cli.options import nest, reader_options, run_stage_command, stage_options
from tokenmill_core.sizes import parse_bytes
from tokenmill_shards.writing.merge import STAGE as MERGE
from tokenmill_shards.writing.tokenize import STAGE as TOKENIZE
from tokenmill_tokenizer.encoder import Engine


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@reader_options
@click.option("--tokenizer", required=True, help="A tokenizer dataset, or a tokenizer.json.")
@click.option(
    "--engine",
    type=click.Choice([engine.value for engine in Engine]),
    help="What encodes; all give the same ids. [default: auto, the fast one where it proves equal to the reference]",
)
@click.option("--allow-special", is_flag=True, default=None, help="Let special tokens' text become those tokens.")
@click.option("--end-of-document", metavar="TOKEN", help="Token that closes a document. [default: the tokenizer's]")
@click.option("--no-end-of-document", is_flag=True, help="Do not close documents.")
@click.option(
    "--beginning-of-document",
    metavar="[TOKEN]",
    is_flag=False,
    flag_value="",
    help="Open documents, with this token or the one that the tokenizer's manifest names. [default: they are not]",
)
@click.option(
    "--loss-mask",
    metavar="NAME",
    help="Field that says which text counts for the loss: [[start, end], ...] in characters, true or false.",
)
@click.option(
    "--shard-size", metavar="SIZE", help="Bytes of text after which a shard is closed, such as 1GB. [default: 256MB]"
)
@stage_options
def tokenize(
    inputs: tuple[str, ...],
    no_end_of_document: bool,
    beginning_of_document: str | None,
    shard_size: str | None,
    **options: Any,
) -> None:
    """Encode the documents of every INPUT into token shards.

    INPUT is a file, a folder, a glob, an fsspec URL, or the manifest of documents.

    \b
    Examples:
      prep tokenize data/clean --tokenizer data/tokenizer --out data/tokens
      prep tokenize 'corpus/*.jsonl.gz' --tokenizer tokenizer.json --text-field content --out data/tokens
      prep tokenize data/clean --tokenizer data/tokenizer --shard-size 1GB --workers 8 --out data/tokens
      prep tokenize chats.jsonl --tokenizer data/tokenizer --loss-mask answers --carry source --out data/chats
      prep tokenize data/clean --tokenizer llama.json --beginning-of-document '<s>' --out data/tokens
      prep tokenize data/clean --tokenizer data/tokenizer --engine tokenizers --out data/tokens
    """
    own = {name: options.pop(name) for name in ("tokenizer", "engine", "allow_special", "end_of_document", "loss_mask")}
    own |= {
        "append_end_of_document": False if no_end_of_document else None,
        "prepend_beginning_of_document": None if beginning_of_document is None else True,
        "beginning_of_document": beginning_of_document or None,
        "shard_bytes": None if shard_size is None else parse_bytes(shard_size, "--shard-size"),
    }
    run_stage_command(TOKENIZE, inputs, nest(own, options), options)


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="DIR...")
@stage_options
def merge(inputs: tuple[str, ...], **options: Any) -> None:
    """Put several tokens datasets of one tokenizer into one, in the order they are named.

    \b
    Example: prep merge data/tokens-2024 data/tokens-2025 --out data/tokens
    """
    run_stage_command(MERGE, inputs, {}, options)
