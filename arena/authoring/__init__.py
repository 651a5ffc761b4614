"""For authors of problems: `arena check`, degenerate answers, and library baselines."""
