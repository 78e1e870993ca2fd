"""Eager mode beside PyTorch's CPU: same process, same two threads, medians of alternating measurements."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator

from . import Row, bench

ROWS, COLUMNS = 4096, 1024  # of the memory-bound cases
AHEAD = 8  # calls in a row before the host waits
BUDGET_S = (
    1.5  # for one case on one device; slow calls (bf16 without the host's instructions) are measured once or twice
)


def _torch():
    import torch

    torch.set_num_threads(2)
    return torch


@bench("eager.overhead_us", "eager.overhead_cpu_us")
def overhead():
    """Host time per operator in a chain of small adds, launching only, origins captured as by default."""
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
        for _ in range(15):
            if device == "neuron":
                torch.neuron.synchronize()
            started = time.perf_counter()
            chain()
            times.append((time.perf_counter() - started) / count * 1e6)
        result[device] = statistics.median(times)
    yield Row("eager.overhead_us", result["neuron"], "µs", "<= 3", result["neuron"] <= 3, f"cpu {result['cpu']:.2f} µs")
    yield Row("eager.overhead_cpu_us", result["cpu"], "µs")


def _cases(torch, dtype) -> Iterator[tuple[str, Callable[[str], Callable[[], object]]]]:
    """(name, function from a device to the call that is timed); inputs are the same on both devices."""
    F = torch.nn.functional
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    for size in (1024, 2048):

        def mm(device, a=normal(size, size), b=normal(size, size)):
            a, b = a.to(device), b.to(device)
            return lambda: torch.mm(a, b)

        yield f"mm_{size}", mm

    x, y = normal(ROWS, COLUMNS), normal(ROWS, COLUMNS)

    def of_x(function):
        def make(device):
            a = x.to(device)
            return lambda: function(a)

        return make

    def add(device):
        a, b = x.to(device), y.to(device)
        return lambda: a + b

    def add_out(device):
        a, b = x.to(device), y.to(device)
        out = torch.empty_like(a)
        return lambda: torch.add(a, b, out=out)

    yield "add", add
    yield "add_out", add_out
    yield "softmax", of_x(lambda a: torch.softmax(a, -1))
    yield "layer_norm", of_x(lambda a: F.layer_norm(a, (COLUMNS,)))
    yield "gelu", of_x(F.gelu)
    yield "sum_dim0", of_x(lambda a: a.sum(0))
    yield "sum_dim1", of_x(lambda a: a.sum(1))
    yield "transpose_copy", of_x(lambda a: a.t().contiguous())

    index = torch.randint(ROWS, (ROWS,), generator=generator)

    def embedding(device):
        weight, at = x.to(device), index.to(device)
        return lambda: F.embedding(at, weight)

    def embedding_gradient(device):
        gradient, at = y.to(device), index.to(device)
        return lambda: torch.ops.aten.embedding_dense_backward(gradient, at, ROWS, -1, False)

    yield "embedding", embedding
    yield "embedding_gradient", embedding_gradient

    qkv = [normal(1, 8, 1024, 64) for _ in range(3)]

    def attention(device):
        q, k, v = (t.to(device) for t in qkv)
        return lambda: F.scaled_dot_product_attention(q, k, v)

    yield "attention", attention

    parameters = [normal(1000, 1000) for _ in range(10)]
    gradients = [normal(1000, 1000) for _ in range(10)]

    def adamw(device):
        mine = [torch.nn.Parameter(p.to(device)) for p in parameters]
        for p, g in zip(mine, gradients, strict=True):
            p.grad = g.to(device)
        return torch.optim.AdamW(mine, foreach=True).step

    yield "adamw", adamw


def _seconds(runs: dict[str, Callable[[], object]], calls: int) -> dict[str, float]:
    """Median seconds per call of each device's function, `calls` in a row before waiting; devices take turns."""
    import torch

    times: dict[str, list[float]] = {device: [] for device in runs}
    repetitions = dict.fromkeys(runs, 1)
    for device, run in runs.items():  # warm up, and see how often the budget allows to repeat it
        if device == "neuron":  # compiles, and the process's first operator loads what PyTorch loads late
            run()
            torch.neuron.synchronize()
        started = time.perf_counter()
        run()
        if device == "neuron":
            torch.neuron.synchronize()
        first = time.perf_counter() - started
        if first > BUDGET_S:
            times[device].append(first)
            repetitions[device] = 0
    for turn in range(4):
        for device, run in runs.items():
            if repetitions[device] == 0 or (turn >= 1 and sum(times[device]) * calls > BUDGET_S):
                continue
            for repetition in range(5):
                started = time.perf_counter()
                for _ in range(calls):
                    run()
                if device == "neuron":
                    torch.neuron.synchronize()
                # The first one of a block competes with OpenMP's threads, which still spin after the other device's turn.
                if repetition > 0:
                    times[device].append((time.perf_counter() - started) / calls)
    return {device: statistics.median(t) for device, t in times.items()}


@bench("eager.vs_cpu.*_fp32*", "eager.vs_cpu.*_bf16*", "eager.vs_cpu.geomean")
def versus_cpu():
    torch = _torch()
    ratios = []
    for suffix, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        for name, make in _cases(torch, dtype):
            runs = {device: make(device) for device in ("cpu", "neuron")}
            slow = False
            for kind, calls in (("", 1), ("_ahead", AHEAD)):
                if slow:
                    continue  # one call already takes the budget
                seconds = _seconds(runs, calls)
                slow = seconds["cpu"] > BUDGET_S
                ratio = seconds["neuron"] / seconds["cpu"]
                ratios.append(ratio)
                yield Row(
                    f"eager.vs_cpu.{name}_{suffix}{kind}",
                    ratio,
                    "ratio",
                    "<= 2",
                    ratio <= 2,
                    f"neuron {seconds['neuron'] * 1e3:.2f} ms, cpu {seconds['cpu'] * 1e3:.2f} ms",
                )
    geomean = math.exp(statistics.fmean(map(math.log, ratios)))
    yield Row("eager.vs_cpu.geomean", geomean, "ratio", "<= 1.1", geomean <= 1.1, f"{len(ratios)} rows")
