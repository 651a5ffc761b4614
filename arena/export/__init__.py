"""Runs in the formats of other tools: ATIF documents, a data set, Inspect logs. Nothing here decides a score."""
