"""What a tokenizer dataset is made of: `tokenizer.json`, and the files beside it for other libraries."""
