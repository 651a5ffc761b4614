"""Strict reading and atomic writing of files: YAML and JSON records, JSON lines, text."""
