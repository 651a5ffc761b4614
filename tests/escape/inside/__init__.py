"""The probes that run inside a sandbox: standard library only, nothing of arena, zipped into one file.

A probe is a function that tries one forbidden thing:

- it raises `Open` when the thing worked, best when it has found the planted content itself;
- it returns a sentence, or lets the kernel's OSError pass, when it was held;
- it raises `Untried` when there is nothing here to try it on.

Its docstring says what it tries and, after two dashes, who documented it.
"""
