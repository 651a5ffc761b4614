"""Prepares, starts, supervises and records one agent's session."""
