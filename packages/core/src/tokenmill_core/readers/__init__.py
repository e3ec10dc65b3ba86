"""Raw files as Arrow batches of documents: JSON Lines, CSV, Parquet, Arrow, text, code, web pages and archives."""

from tokenmill_core.readers.formats import Format, bare_name, format_of
from tokenmill_core.readers.options import ReadOptions, TextUnit
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.read import read_piece, read_pieces

__all__ = ["Format", "Piece", "ReadOptions", "TextUnit", "bare_name", "format_of", "read_piece", "read_pieces"]
