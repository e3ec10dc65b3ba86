"""fastText classifiers: models as the library writes them (.bin, .ftz), applied to whole batches by compiled code."""

from tokenmill_corpus.fasttext.model import LABEL_PREFIX, FastText, load_fasttext

__all__ = ["LABEL_PREFIX", "FastText", "load_fasttext"]
