"""Arena: how well does a coding agent write GPU kernels, measured so that the number can be trusted."""

__version__ = "0.1.0"
