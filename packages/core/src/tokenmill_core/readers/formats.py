"""What a file's name says about its content. The content has the last word where it can: see `compression`."""

import posixpath
from enum import StrEnum


class Format(StrEnum):
    """How documents lie in a raw file."""

    JSONL = "jsonl"
    """One JSON object a line."""
    PARQUET = "parquet"
    """One document a row."""
    ARROW = "arrow"
    """Arrow IPC, as a file (Feather) or a stream: one document a row."""
    CSV = "csv"
    """Comma-separated values under a row of column names: one document a row."""
    TSV = "tsv"
    """The same, separated by tabs."""
    TEXT = "text"
    """Prose: the file is the document, or cut as the settings say."""
    SOURCE = "source"
    """Code or markup: the file is the document."""
    HTML = "html"
    """A web page: its main text is the document."""
    WARC = "warc"
    """A web archive: the main text of each page, or in WET files the text of each record, is a document."""


COMPRESSION_SUFFIXES = {
    **dict.fromkeys((".gz", ".gzip"), "gzip"),
    **dict.fromkeys((".zst", ".zstd"), "zstd"),
    ".bz2": "bzip2",
    ".xz": "xz",
}
"""Suffix ─▶ compression it promises."""

_SOURCE_SUFFIXES = """
    .py .pyi .pyx .c .h .cc .cpp .cxx .hh .hpp .cu .cuh .rs .go .java .js .mjs .cjs .jsx .ts .tsx .vue .rb .php .cs .fs
    .swift .kt .kts .scala .sh .bash .zsh .ps1 .pl .pm .lua .r .jl .hs .ml .mli .el .lisp .clj .erl .ex .exs .dart .zig
    .nim .f90 .asm .s .m .sql .proto .html .htm .css .scss .less .xml .yaml .yml .toml .ini .cfg .cmake .tf .tex .bib
"""

FORMAT_OF_SUFFIX: dict[str, Format] = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), Format.JSONL),
    ".parquet": Format.PARQUET,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), Format.ARROW),
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    **dict.fromkeys((".warc", ".wet"), Format.WARC),
    **dict.fromkeys((".txt", ".text", ".md", ".markdown", ".rst"), Format.TEXT),
    **dict.fromkeys(_SOURCE_SUFFIXES.split(), Format.SOURCE),
}
"""Suffix, in lower case ─▶ format."""

_HTML_SUFFIXES = {".html", ".htm", ".xhtml"}
"""Files that are source code by default, and web pages where one says so."""
_COMPRESSED_INSIDE = {Format.PARQUET, Format.ARROW}


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
    """The format that the suffixes of path `name` promise, or none. Parquet and Arrow compress inside alone."""
    _, suffix, compression = split_name(name)
    found = FORMAT_OF_SUFFIX.get(suffix)
    return None if found in _COMPRESSED_INSIDE and compression else found


def is_of(name: str, format: Format | None) -> bool:
    """Whether path `name` has a suffix of `format`, or without one of any that is known."""
    if format is Format.HTML:
        return split_name(name)[1] in _HTML_SUFFIXES
    found = format_of(name)
    return found is not None and format in (None, found)


def bare_name(name: str) -> str:
    """The last part of path `name` without the suffixes that are known: `en.jsonl.zst` ─▶ `en`, `v1.2` ─▶ `v1.2`."""
    base = posixpath.basename(name)
    stem, suffix, compression = split_name(base)
    if suffix not in FORMAT_OF_SUFFIX:
        stem = base[: len(base) - len(compression)]
    return stem or base
