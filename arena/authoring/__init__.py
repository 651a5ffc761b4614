"""Tools for authors of problems: the problem check, its contract, degenerate answers, and library baselines."""
