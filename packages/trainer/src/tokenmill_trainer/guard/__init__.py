"""What keeps a run from harm: signals, and values that are no numbers."""
