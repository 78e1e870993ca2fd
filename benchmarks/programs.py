"""The compiler's programs: share of the peak, compile time, and what happens when one instruction is damaged."""

from __future__ import annotations

import math
import random
import statistics
import time

import numpy as np
import opentrn._core as core

from . import Row, bench
from .chip import PROGRAMS
from .graphs import matmul, pointwise_add, reduce_sum, softmax


def peak_share(m: int, k: int, n: int) -> tuple[float, float, float]:
    """Modelled TFLOPS of a bf16 matmul on one physical core over the peak; its µs; the tile-padded bound's share."""
    chip = core.chip("trn2")
    us = matmul(m, k, n).compile(chip, lnc=1).time(chip)["total_ps"] / 1e6
    peak = chip.peak_tflops["bf16"] * 1e6  # FLOPs per µs
    padded = 2 * math.ceil(m / 128) * 128 * math.ceil(k / 128) * 128 * n
    return 2 * m * k * n / us / peak, us, padded / us / peak


@bench("matmul.peak_share.*")
def matmul_peak():
    launch = core.chip("trn2").launch_us
    for size, reach in ((4096, 0.95), (2048, 0.9), (2560, 0.9), (3072, 0.9), (5120, 0.9), (8192, 0.9), (1024, 0.7)):
        share, us, _ = peak_share(size, size, size)
        yield Row(
            f"matmul.peak_share.{size}",
            share,
            "of 78.6 TF",
            f">= {reach:.2f}",
            share >= reach,
            f"{us:,.0f} µs + launch {launch:g}",
        )
    share, us, _ = peak_share(4096, 12288, 5120)
    yield Row(
        "matmul.peak_share.4096x12288x5120",
        share,
        "of 78.6 TF",
        ">= 0.90",
        share >= 0.9,
        f"{us:,.0f} µs + launch {launch:g}",
    )
    rng = random.Random(2026)
    shapes = [(2049, 2049, 2049), (3000, 2500, 4097)]
    shapes += [tuple(rng.randint(700, 4500) for _ in range(3)) for _ in range(20)]
    for m, k, n in shapes:
        try:
            _, us, share = peak_share(m, k, n)
        except core.UserError as error:
            yield Row(
                f"matmul.peak_share.{m}x{k}x{n}",
                None,
                "of padded",
                ">= 0.90",
                False,
                str(error).splitlines()[-1].strip(),
            )
            continue
        yield Row(
            f"matmul.peak_share.{m}x{k}x{n}",
            share,
            "of padded",
            ">= 0.90",
            share >= 0.9,
            f"{us:,.0f} µs + launch {launch:g}",
        )


@bench("compile.ms.*")
def compile_time():
    """Graph to verified program; the same graph is never compiled twice."""
    chip = core.chip("trn2")
    cases = {
        "elementwise": (
            [
                pointwise_add(m, 512 + 64 * i, d)
                for i, (m, d) in enumerate([(4096, "f32"), (1024, "bf16"), (100, "f32"), (7, "f32"), (3000, "f16")])
            ],
            1,
        ),
        "reductions": (
            [softmax(1024, 512 + 64 * i) for i in range(4)] + [reduce_sum(4096, 700 + i) for i in range(3)],
            5,
        ),
        "matmul": (
            [matmul(512 + 64 * i, 1024, 768, d) for i, d in enumerate(["bf16", "f32", "f16", "bf16", "f32"])],
            5,
        ),
    }
    for name, (graphs, reach) in cases.items():
        times = []
        for graph in graphs:
            started = time.perf_counter()
            graph.compile(chip, lnc=2)
            times.append((time.perf_counter() - started) * 1e3)
        median = statistics.median(times)
        yield Row(
            f"compile.ms.{name}",
            median,
            "ms",
            f"<= {reach}",
            median <= reach,
            f"worst {max(times):.2f} ms, {len(times)} graphs, LNC=2",
        )


@bench("timing.minstr_per_s", "timing.skipped_share")
def timing_speed():
    """Events that the timing model schedules one by one, per second; loops that are skipped ahead are told apart."""
    chip = core.chip("trn2")
    program = core.Program.parse((PROGRAMS / "matmul_4096_tile_loads.trn").read_text())
    rates = []
    for _ in range(5):
        started = time.perf_counter()
        _, timeline = program.timeline(chip, 0)
        rates.append(int(timeline["dropped"]) / (time.perf_counter() - started) / 1e6)
    rate = statistics.median(rates)
    yield Row("timing.minstr_per_s", rate, "M/s", ">= 10", rate >= 10, f"{int(timeline['dropped']):,} events")
    t = program.time(chip)
    yield Row(
        "timing.skipped_share",
        t["skipped_events"] / max(t["events"] + t["skipped_events"], 1),
        "share",
        "",
        None,
        f"{t['events']:,} one by one, {t['skipped_events']:,} skipped ahead",
    )


def _run(program, chip, seed: int) -> list[bytes] | None:
    """The outputs' bytes; None when the run fails."""
    rng = np.random.default_rng(seed)
    arrays, outputs, by_index = [], [], {}
    for index, buffer in enumerate(program.buffers):
        if buffer["kind"] not in ("input", "output"):
            continue
        if buffer["alias"] >= 0:
            array = by_index[buffer["alias"]]
        elif buffer["dtype"] in ("f32", "bf16", "f16"):
            size = 4 if buffer["dtype"] == "f32" else 2
            values = rng.standard_normal(buffer["bytes"] // size).astype(np.float32)
            if buffer["dtype"] == "f16":
                array = values.astype(np.float16).view(np.uint8)
            elif buffer["dtype"] == "bf16":
                array = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
            else:
                array = values.view(np.uint8)
            arrays.append(array)
        else:
            # Moved as bits (bf16 loaded in pairs as u32): bf16 numbers, so that no two elements are alike.
            values = rng.standard_normal(buffer["bytes"] // 2 + 1).astype(np.float32)
            array = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)[: buffer["bytes"]].copy()
            arrays.append(array)
        by_index[index] = array
        if buffer["kind"] == "output":
            array[:] = 0x5A if buffer["alias"] < 0 else array
            outputs.append(array)
    scalars = [1.5 if dtype.startswith("f") else 3 for _, dtype in program.scalars]
    try:
        program.run(chip, arrays, scalars)
    except Exception:
        return None
    return [o.tobytes() for o in outputs]


@bench("program.mutation_caught")
def mutation_caught():
    """Each small damage to a compiled program is found by the verifier or changes the outputs."""
    chip = core.chip("trn2")
    graphs = [
        pointwise_add(200, 300),
        softmax(130, 257),
        reduce_sum(300, 200),
        matmul(200, 300, 520),
        matmul(64, 128, 64, "f32"),
        softmax(64, 512, "bf16"),
    ]
    caught = total = 0
    survivors = []
    for graph in graphs:
        for lnc in (1, 2):
            program = graph.compile(chip, lnc=lnc)
            reference = _run(program, chip, 1)
            for which in range(program.mutations):
                mutant, what = program.mutated(which)
                total += 1
                if mutant.check(chip) or _run(mutant, chip, 1) != reference:
                    caught += 1
                else:
                    survivors.append(f"{graph.name}, LNC={lnc}: {what}")
    share = caught / total
    for survivor in survivors[:20]:
        print(f"    survived: {survivor}")
    yield Row(
        "program.mutation_caught", share, "share", ">= 0.99", share >= 0.99, f"{total - caught} of {total} survived"
    )
