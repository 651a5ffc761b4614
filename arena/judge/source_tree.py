"""The syntax tree of a submission's source, also where several threads read submissions."""

import ast
import threading

ONE_AT_A_TIME = threading.RLock()
"""Early versions of CPython count how deep they are in a tree once for all threads. Where two threads make trees at once,
`ast.parse` raises SystemError there (seen on 3.11.7; https://github.com/python/cpython/issues/106905). It may collect garbage,
and what that calls may parse in the same thread: that ends with the same error, where a plain lock would wait for ever."""


def parse(source: str) -> ast.Module:
    """The tree; raises what `ast.parse` raises for a source that is not Python.

    Python 3.11 takes quadratic time for one f-string of very many parts: some 75 s for 1 MiB.
    """
    with ONE_AT_A_TIME:
        return ast.parse(source)
