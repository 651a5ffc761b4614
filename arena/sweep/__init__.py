"""A grid of cells: what its trials still need, read from the run folders alone, and the processes that do it."""
