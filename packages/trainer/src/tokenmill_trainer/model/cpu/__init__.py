"""What PyTorch does slowly on CPUs, done faster: products by oneDNN, the rest in one pass each, compiled by Numba."""
