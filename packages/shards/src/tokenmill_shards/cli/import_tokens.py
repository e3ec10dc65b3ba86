"""`prep import-tokens`."""

from typing import Any

import click

from tokenmill_core.cli.options import nest, run_stage_command, stage_options
from tokenmill_shards.importing.layouts import TokenFormat
from tokenmill_shards.importing.stage import STAGE as IMPORT_TOKENS


@click.command("import-tokens")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--format",
    type=click.Choice([format.value for format in TokenFormat]),
    required=True,
    help="Which tool wrote the files.",
)
@click.option("--tokenizer", required=True, help="The tokenizer they were made with: a dataset, or a tokenizer.json.")
@click.option("--end-of-document", metavar="TOKEN", help="Token between documents. [default: the tokenizer's]")
@click.option(
    "--dtype",
    type=click.Choice(["uint16", "uint32"]),
    help="Type of the tokens where the files do not say. [default: the narrowest for the tokenizer]",
)
@stage_options
def import_tokens(paths: tuple[str, ...], **options: Any) -> None:
    """Make a tokens dataset of token files that another tool wrote, without copying their tokens where that can be.

    PATH is a token file (x.ds, x.npy, x.bin), a folder of them, or a glob. What lies beside them is found:
    x.ds.index and x.ds.loss, x.csv.gz, x.idx.

    The shards are hard links: the same files under a second name. What changes one changes the other.

    \b
    Examples:
      prep import-tokens tokenized/ --format datatrove --tokenizer gpt2/tokenizer.json --out data/tokens
      prep import-tokens 'part-*.npy' --format olmo --dtype uint32 --tokenizer dolma.json --out data/tokens
      prep import-tokens fineweb_train_*.bin --format llmc --tokenizer gpt2/tokenizer.json --out data/tokens
      prep import-tokens corpus_text_document.bin --format megatron --tokenizer data/tokenizer --out data/tokens
    """
    own = {name: options.pop(name) for name in ("format", "tokenizer", "end_of_document", "dtype")}
    run_stage_command(IMPORT_TOKENS, paths, nest(own, options), options)
