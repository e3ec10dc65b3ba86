"""Which source, and which of its windows, a sample is: pure functions, no files."""
