"""Raw files as Arrow batches of documents: JSON Lines, Parquet, plain text and source code, plain or compressed."""

from tokenmill_core.readers.formats import Format, bare_name, format_of
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.read import read_piece, read_pieces

__all__ = ["Format", "Piece", "ReadOptions", "bare_name", "format_of", "read_piece", "read_pieces"]
