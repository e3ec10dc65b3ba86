"""Tokenizers of other people as tokenizer datasets: Hugging Face, tiktoken, SentencePiece BPE."""
