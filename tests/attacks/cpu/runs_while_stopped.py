# verdict: cheated
# follows: naive
# Wakes itself while the judge holds it frozen: kernel timers send SIGCONT every few milliseconds.
import ctypes
import signal

libc = ctypes.CDLL(None, use_errno=True)


class Sigevent(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("pad", ctypes.c_byte * 48)]


signal.signal(signal.SIGCONT, lambda *_: None)
# Many timers: a SIGSTOP discards a pending SIGCONT, and with it the timer that sent it.
for period_ms in range(1, 17):
    timer = ctypes.c_void_p()
    event = Sigevent(signo=signal.SIGCONT, notify=0)
    assert libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0
    every = (ctypes.c_long * 4)(0, period_ms * 1_000_000, 0, period_ms * 1_000_000)
    assert libc.timer_settime(timer, 0, every, None) == 0
