"""The chip model beside public laws and measurements."""

from __future__ import annotations

import json
import pathlib

import opentrn._core as core

from . import Row, bench
from .graphs import matmul, pointwise_add, softmax

HERE = pathlib.Path(__file__).parent
PROGRAMS = HERE.parent / "tests" / "text" / "programs"


@bench("chip.cost.*")
def instruction_costs():
    """Isolated instructions, model / law, on the chips that have public laws."""
    for name in ("trn2", "trn1"):
        for case in core.instruction_conformance(core.chip(name)):
            ratio = case["model_ns"] / case["law_ns"]
            label = case["name"] if name == "trn2" else case["name"].replace("chip.cost.", "chip.cost.trn1.")
            note = f"{case['source']} {case['law_ns']:.0f} ns" + (f"; {case['note']}" if case["note"] else "")
            yield Row(label, ratio, "ratio", "0.95..1.05", abs(ratio - 1) <= 0.05, note)


@bench("chip.dma.*")
def dma_curve():
    for case in core.dma_conformance(core.chip("trn2")):
        ratio = case["model_ns"] / case["law_ns"]
        yield Row(case["name"], ratio, "ratio", "0.9..1.1", abs(ratio - 1) <= 0.1, f"law {case['law_ns']:.0f} ns")


@bench("chip.kernel.*")
def published_kernels():
    """The two published 4096^3 bf16 matmul kernels, written by hand as programs."""
    chip = core.chip("trn2")
    measured = json.loads((HERE / "measured" / "matmul-trn2.json").read_text())["cases"]
    for case in measured:
        slug = case["name"].replace(" ", "_")
        time = core.Program.parse((PROGRAMS / f"matmul_4096_{slug}.trn").read_text()).time(chip)
        one = time["cores"][0]
        model = {
            "total": time["total_ps"] / 1e6,
            "dma_active": one["dma_active_ps"] / 1e6,
            "tensor_active": one["engines"]["tensor"]["busy_ps"] / 1e6,
            "vector_active": one["engines"]["vector"]["busy_ps"] / 1e6,
        }
        for what, us in model.items():
            ratio = us / case["us"][what]
            yield Row(
                f"chip.kernel.{slug}.{what}",
                ratio,
                "ratio",
                "0.9..1.1",
                abs(ratio - 1) <= 0.1,
                f"model {us:,.0f} µs, measured {case['us'][what]:,} µs, launch cost {chip.launch_us:g} µs not included",
            )


@bench("chip.op.*")
def published_operators():
    """Operators measured on one logical core (LNC=2), host dispatch and launch included."""
    chip = core.chip("trn2")
    measured = json.loads((HERE / "measured" / "operators-trn2.json").read_text())["cases"]
    names = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
    for case in measured:
        if case["op"] == "gemm":
            graph = matmul(*case["shape"], names[case["dtype"]])
        elif case["op"] == "add" and "shape" in case:
            graph = pointwise_add(*case["shape"], names[case["dtype"]])
        elif case["op"] == "softmax":
            graph = softmax(*case["shape"], names[case["dtype"]])
        else:
            continue
        program_us = graph.compile(chip, lnc=2).time(chip)["total_ps"] / 1e6
        device_us = program_us + chip.launch_us
        us = chip.dispatch_eager_us + device_us  # one call, from its dispatch to its result
        stream_us = max(device_us, chip.dispatch_eager_us)  # one of many calls, dispatched while others run
        ratio = us / case["us"]
        gemm = case["op"] == "gemm"
        yield Row(
            f"chip.op.{case['op']}_{case['dtype']}",
            ratio,
            "ratio",
            "0.85..1.15" if gemm else "",
            abs(ratio - 1) <= 0.15 if gemm else None,
            f"model {us:,.1f} µs (program {program_us:,.1f}; in a stream of calls {stream_us:,.1f}), measured {case['us']:g} µs",
        )
