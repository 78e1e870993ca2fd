"""What recording costs: bytes per launch on disk and in memory, and the demo's time with the default profile."""

from __future__ import annotations

import pathlib
import statistics
import tempfile
import time

from . import Row, bench
from .demo import run_demo

LAUNCHES = 2000  # the first so many pay for the program's timeline as well
REPEATS = 2  # of the demo, with and without a profile in turn


@bench("trace.bytes_per_launch")
def bytes_per_launch():
    """What each further launch of a known program adds to the profile; and what it takes in memory until then."""
    import opentrn._core as core
    from opentrn.profile.write import write_profile

    import torch

    x = torch.ones(8, 8, device="neuron")
    y = x + x
    core.set_recording(core.Recording.all)
    sizes = []
    try:
        for _ in range(2):
            for _ in range(LAUNCHES):
                y = y + x
            torch.neuron.synchronize()
            with tempfile.TemporaryDirectory() as folder:
                write_profile(core, folder, script="benchmark")
                sizes.append(sum(f.stat().st_size for f in pathlib.Path(folder).rglob("*") if f.is_file()))
        columns = core.launch_records().values()
    finally:
        core.set_recording(core.Recording.off)
    disk = (sizes[1] - sizes[0]) / LAUNCHES
    memory = sum(c.itemsize for c in columns)
    worst = max(disk, memory)
    yield Row(
        "trace.bytes_per_launch",
        worst,
        "bytes",
        "<= 200",
        worst <= 200,
        f"{disk:.0f} on disk, {memory} in memory",
    )


@bench("trace.slowdown")
def slowdown():
    seconds: dict[str, list[float]] = {"off": [], "last": []}
    for _ in range(REPEATS):
        for profile, times in seconds.items():
            started = time.perf_counter()
            run_demo(profile=profile)
            times.append(time.perf_counter() - started)
    off, last = (statistics.median(seconds[p]) for p in ("off", "last"))
    ratio = last / off
    yield Row(
        "trace.slowdown",
        ratio,
        "ratio",
        "<= 1.2",
        ratio <= 1.2,
        f"whole demo: {last:.1f} s with a profile, {off:.1f} s",
    )
