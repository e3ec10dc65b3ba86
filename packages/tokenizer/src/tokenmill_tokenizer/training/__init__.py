"""Training: documents ─▶ counts of their pieces ─▶ merges."""

from tokenmill_tokenizer.training.counting import WordTable
from tokenmill_tokenizer.training.merging import Merges, learn_merges
from tokenmill_tokenizer.training.symbols import Words
from tokenmill_tokenizer.training.word_counter import WordCounter

__all__ = ["Merges", "WordCounter", "WordTable", "Words", "learn_merges"]
