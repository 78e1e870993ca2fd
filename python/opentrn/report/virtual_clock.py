"""`--clock modelled`: the script's `time` functions read the modelled clock instead of the host's.

The virtual clock starts at the real time and advances with the host hand of the model: by the dispatch cost of each
operator and by waiting for the device. Time that the script spends in Python or on the CPU does not count. The
standard library's own timers keep the real clock, or waiting would never end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_REAL = {name: getattr(time, name) for name in ("time", "perf_counter", "monotonic", "sleep")}
_KEEP_REAL = (
    "asyncio",
    "concurrent",
    "multiprocessing",
    "threading",
    "selectors",
    "subprocess",
    "socket",
    "opentrn",
    "rich",
    "queue",
    "torch.utils.data",
)


def install(host_ps: Callable[[], int], advance_ps: Callable[[int], None]) -> None:
    """`host_ps` reads the model's host hand, `advance_ps` moves it (0 and nothing before a device exists)."""

    def real(frame) -> bool:
        name = frame.f_globals.get("__name__", "")
        return any(name == keep or name.startswith(keep + ".") for keep in _KEEP_REAL)

    def clock(name: str) -> tuple[Callable[[], float], Callable[[], int]]:
        read, start = _REAL[name], _REAL[name]()
        start_ns = int(start * 1e9)

        def seconds() -> float:
            if real(sys._getframe(1)):
                return read()
            return start + host_ps() * 1e-12

        def nanoseconds() -> int:
            if real(sys._getframe(1)):
                return int(read() * 1e9)
            return start_ns + host_ps() // 1000

        return seconds, nanoseconds

    def sleep(seconds: float) -> None:
        _REAL["sleep"](seconds)
        advance_ps(int(seconds * 1e12))

    for name in ("time", "perf_counter", "monotonic"):
        seconds, nanoseconds = clock(name)
        setattr(time, name, seconds)
        setattr(time, name + "_ns", nanoseconds)
    time.sleep = sleep


def real_perf_counter() -> float:
    return _REAL["perf_counter"]()
