"""The syntax tree of a submission's source, also where several threads read submissions."""

import ast
import threading

ONE_AT_A_TIME = threading.RLock()
"""CPython 3.11 counts how deep it is in a tree once for all threads. Where another thread parses meanwhile, `ast.parse` raises
SystemError (https://github.com/python/cpython/issues/106905). Reentrant: making a tree may collect garbage, which may parse."""


def parse(source: str) -> ast.Module:
    """The tree; raises what `ast.parse` raises for a source that is not Python."""
    with ONE_AT_A_TIME:
        return ast.parse(source)
