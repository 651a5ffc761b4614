"""The untrusted side of a score: programs that run inside the worker's sandbox and import nothing of arena."""
