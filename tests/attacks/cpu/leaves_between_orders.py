# verdict: crashed
# follows: naive
# Leaves right after a reply; the judge's next order finds the sandbox ended.
# ruff: noqa
import os, sys

_m = sys.modules["__main__"]
_pack = _m.REPLY
AT = 3  # 1: after `load`, 2: after `shape`, 3: after the first window


class _P:
    size = _pack.size

    def pack(self, magic, seq, status, s):
        data = _pack.pack(magic, seq, status, s)
        if seq == AT:
            os.write(int(sys.argv[2]), data)
            os._exit(0)
        return data


_m.REPLY = _P()
