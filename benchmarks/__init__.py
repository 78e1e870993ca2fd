"""Benchmarks: each file registers functions that yield rows with stable names; `make bench` runs and prints them.

    @bench("eager.overhead_us")            # the names it may yield, as globs
    def overhead():
        yield Row("eager.overhead_us", value, "µs", "<= 3", value <= 3)

`reach` says what is aimed for, `ok` whether it was reached (None: nothing is aimed for).
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Iterator


@dataclasses.dataclass
class Row:
    name: str
    value: float | None
    unit: str
    reach: str = ""
    ok: bool | None = None
    note: str = ""


@dataclasses.dataclass
class Benchmark:
    patterns: tuple[str, ...]
    function: Callable[[], Iterator[Row]]

    def selected(self, only: str) -> bool:
        return any(fnmatch.fnmatch(p, only) or fnmatch.fnmatch(only, p) for p in self.patterns)


REGISTERED: list[Benchmark] = []


def bench(*patterns: str):
    def register(function: Callable[[], Iterator[Row]]):
        REGISTERED.append(Benchmark(patterns, function))
        return function

    return register
