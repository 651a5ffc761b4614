"""Reads and writes files strictly: YAML and JSON records, JSON lines, plain text."""
