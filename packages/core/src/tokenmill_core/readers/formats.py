"""What a file's name says about its content. The content has the last word where it can: see `compression`."""

import posixpath
from enum import StrEnum


class Format(StrEnum):
    """How documents lie in a raw file."""

    JSONL = "jsonl"
    """One JSON object a line."""
    PARQUET = "parquet"
    """One document a row."""
    TEXT = "text"
    """Prose: the file is the document."""
    SOURCE = "source"
    """Code or markup: the file is the document."""


COMPRESSION_SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}
"""Suffix ─▶ compression it promises."""

_SOURCE_SUFFIXES = """
    .py .pyi .pyx .c .h .cc .cpp .cxx .hh .hpp .cu .cuh .rs .go .java .js .mjs .cjs .jsx .ts .tsx .vue .rb .php .cs .fs
    .swift .kt .kts .scala .sh .bash .zsh .ps1 .pl .pm .lua .r .jl .hs .ml .mli .el .lisp .clj .erl .ex .exs .dart .zig
    .nim .f90 .asm .s .m .sql .proto .html .htm .css .scss .less .xml .yaml .yml .toml .ini .cfg .cmake .tf .tex .bib
"""

FORMAT_OF_SUFFIX: dict[str, Format] = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), Format.JSONL),
    ".parquet": Format.PARQUET,
    **dict.fromkeys((".txt", ".text", ".md", ".markdown", ".rst"), Format.TEXT),
    **dict.fromkeys(_SOURCE_SUFFIXES.split(), Format.SOURCE),
}
"""Suffix, in lower case ─▶ format."""


def split_name(name: str) -> tuple[str, str, str]:
    """The last part of path `name` as (stem, data suffix, compression suffix), suffixes in lower case or empty.

    `sets/en.jsonl.zst` ─▶ `("en", ".jsonl", ".zst")`; `.gitignore` ─▶ `(".gitignore", "", "")`.
    """
    stem, suffix = posixpath.splitext(posixpath.basename(name))
    if suffix.lower() not in COMPRESSION_SUFFIXES:
        return stem, suffix.lower(), ""
    inner_stem, inner_suffix = posixpath.splitext(stem)
    return inner_stem, inner_suffix.lower(), suffix.lower()


def format_of(name: str) -> Format | None:
    """The format that the suffixes of path `name` promise, or none. Parquet compresses inside, never outside."""
    _, suffix, compression = split_name(name)
    found = FORMAT_OF_SUFFIX.get(suffix)
    return None if found is Format.PARQUET and compression else found


def bare_name(name: str) -> str:
    """The last part of path `name` without the suffixes that are known: `en.jsonl.zst` ─▶ `en`, `v1.2` ─▶ `v1.2`."""
    base = posixpath.basename(name)
    stem, suffix, compression = split_name(base)
    if suffix not in FORMAT_OF_SUFFIX:
        stem = base[: len(base) - len(compression)]
    return stem or base
