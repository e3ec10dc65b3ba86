"""Runs as one HTML page: their curves, settings, data and where it came from."""
