# verdict: cheated
# follows: honest
# Sends the reply to an order twice: the second time it belongs to none.
import sys

_m = sys.modules["__main__"]
_pack = _m.REPLY


class _Twice:
    def pack(self, *fields):
        _m.os.write(int(sys.argv[2]), _pack.pack(*fields))
        return _pack.pack(*fields)


_m.REPLY = _Twice()
