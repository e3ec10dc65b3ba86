"""Batches: which samples a step has, and how they reach this rank."""
