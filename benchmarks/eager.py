"""Eager mode beside PyTorch's CPU: same process, same two threads, medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from . import Row, bench


def _torch():
    import torch

    torch.set_num_threads(2)
    return torch


def median_s(run: Callable[[], None], repetitions: int = 7) -> float:
    run()
    times = []
    for _ in range(repetitions):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


@bench("eager.overhead_us", "eager.overhead_cpu_us")
def overhead():
    """Host time per operator in a chain of small adds, launching only."""
    torch = _torch()
    count = 1000
    result = {}
    for device in ("neuron", "cpu"):
        x = torch.ones(8, 8, device=device)

        def chain(x=x):
            y = x
            for _ in range(count):
                y = y + x
            return y

        times = []
        for _ in range(9):
            if device == "neuron":
                torch.neuron.synchronize()
            started = time.perf_counter()
            chain()
            times.append((time.perf_counter() - started) / count * 1e6)
        result[device] = statistics.median(times)
    yield Row("eager.overhead_us", result["neuron"], "µs", "<= 3", result["neuron"] <= 3, f"cpu {result['cpu']:.2f} µs")


@bench("eager.vs_cpu.mm*", "eager.vs_cpu.add*", "eager.vs_cpu.softmax*", "eager.vs_cpu.layer_norm*")
def versus_cpu():
    torch = _torch()
    F = torch.nn.functional
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        cases = {}
        for size in (1024, 2048):
            cases[f"mm_{size}"] = ((size, size), lambda a, b, out: torch.mm(a, b))
        shape = (4096, 1024)
        cases["add"] = (shape, lambda a, b, out: a + b)
        cases["add_out"] = (shape, lambda a, b, out: torch.add(a, b, out=out))
        cases["softmax"] = (shape, lambda a, b, out: torch.softmax(a, -1))
        cases["layer_norm"] = (shape, lambda a, b, out: F.layer_norm(a, (1024,)))
        for case, (shape, function) in cases.items():
            seconds = {}
            generator = torch.Generator().manual_seed(0)
            host = [torch.randn(shape, generator=generator).to(dtype) for _ in range(2)]
            for device in ("cpu", "neuron"):
                a, b = (x.to(device) for x in host)
                out = torch.empty_like(a)

                def run(a=a, b=b, out=out, function=function, device=device):
                    function(a, b, out)
                    if device == "neuron":
                        torch.neuron.synchronize()

                seconds[device] = median_s(run)
            ratio = seconds["neuron"] / seconds["cpu"]
            yield Row(
                f"eager.vs_cpu.{case}_{name}",
                ratio,
                "ratio",
                "",
                None,
                f"neuron {seconds['neuron'] * 1e3:.2f} ms, cpu {seconds['cpu'] * 1e3:.2f} ms",
            )
