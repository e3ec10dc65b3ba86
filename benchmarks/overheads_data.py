"""The data of `overheads.py`: text as a user has it, through `prep`.

texts ─▶ compressed JSON Lines, each file a source ─ prep train-tokenizer, tokenize, mix ─▶ mixture.json
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenizer_text import write_files


def make_mixture(folder: Path, texts: Sequence[str], vocab_size: int, sequence_length: int) -> str:
    """Write all of it into `folder`; the path of the mixture."""
    raw = write_files(texts, folder)
    tokenizer, mixture = str(folder / "tokenizer"), str(folder / "mixture.json")
    _prep("train-tokenizer", *map(str, raw), "--vocab-size", str(vocab_size), "--out", tokenizer)
    sources = []
    for number, path in enumerate(raw):
        tokens = str(folder / f"tokens-{number}")
        _prep("tokenize", str(path), "--tokenizer", tokenizer, "--out", tokens)
        sources.append(f"source-{number}={tokens}")
    _prep("mix", *sources, "--sequence-length", str(sequence_length), "--out", mixture)
    return mixture


def _prep(*arguments: str) -> None:
    prep = Path(sys.executable).with_name("prep")
    subprocess.run([prep, *arguments], check=True, stdout=subprocess.DEVNULL)
