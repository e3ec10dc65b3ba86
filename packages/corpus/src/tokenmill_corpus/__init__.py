"""Raw files to clean documents: filters, deduplication, and an account of everything dropped."""

from tokenmill_corpus.clean import STAGE, CleanStage
from tokenmill_corpus.config import CleanConfig

__all__ = ["STAGE", "CleanConfig", "CleanStage"]
__version__ = "0.1.0"
