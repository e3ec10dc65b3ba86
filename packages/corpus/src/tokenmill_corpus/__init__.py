"""Raw files to clean documents: filters, deduplication, and an account of everything dropped."""

from tokenmill_corpus.clean import STAGE, CleanConfig, CleanStage

__all__ = ["STAGE", "CleanConfig", "CleanStage"]
__version__ = "0.1.0"
