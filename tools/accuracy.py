"""Writes docs/accuracy.md: every public measurement that the model is held to, beside the model. Run by `make docs`.

--check fails when the file is not what would be written: the model changed and the page did not.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import opentrn._core as core  # noqa: E402

from benchmarks import chip as rows  # noqa: E402

PAGE = """# How far to trust modelled time

opentrn's modelled time comes from a software model built from public documents. It was never measured by us on a
Trainium. This page sets every public number that the model is held to beside the model, misses included; `make docs` writes
it anew. `opentrn chips NAME` lists each parameter with its source and grade.

What the model does **not** know, and what follows from it:

- **Host dispatch** ({dispatch:g} µs per eager operator, {low:g}–{high:g} reported) is an input, not a result. Most small eager
  operators are bound by it, so their modelled time is as good as that number. Reports print it separately.
- **The programs are our compiler's.** The real compiler makes other ones: a modelled operator time says what this chip would
  need for *our* program. Where AWS's program is slower or faster, the model is off by that much (see the operators below).
- **Trn3 is an extrapolation**: no public instruction timing of it exists. Start-up times are trn2's scaled by the clock.
- **Data-dependent power, refresh, HBM bank conflicts, instruction fetch and run-to-run noise** are not modelled.
- **Collectives between cores and chips** are not part of this version.

## Kernels

Two published 4096³ bf16 matmul kernels on one trn2 core, written by hand as programs (`tests/text/programs/`). The kernel fixes
the schedule, so the error is the chip model's alone. Launch cost ({launch:g} µs) not included on either side.

{kernels}

## Operators

One logical core (LNC=2) of a trn2.3xlarge, a third party's measurements of AWS's eager beta, host dispatch included. Model: one
call of our compiler's program, from its dispatch to its result; "in a stream" is the time per call when calls are dispatched
while earlier ones run. The small operators were evidently measured that way: there the serial figure is too long.

{operators}

## Instructions

Isolated instructions, model / law; several sizes each. *Measured* laws come from probes of real chips, *documented* ones from AWS's
pages; where both exist the measured one is used and the note keeps the other. The chip files' parameters were taken from these
very numbers: the table shows that the model reproduces them, it predicts nothing.

{instructions}

## DMA

A copy of 128 partitions, trn2; bytes per partition.

{dma}

## Public numbers not compared yet

| what | why |
|---|---|
| NKIBench kernels on trn1 (7 hand-written kernels with latencies) | they have to be written as programs first |
| TorchTitan Qwen3-32B on 16 Trn2 chips (23.9 % MFU eager, 30.5 % compiled) | needs several ranks and collectives |
| AWS's published trn1 training throughput | needs several ranks; sequence lengths of the older rows are uncertain |
| all-reduce and all-gather of an LNC=2 pair (105 and 91 µs) | needs collectives |
| compiled chains of small operators (97–103 µs per launch) | needs `torch.compile(backend="neuron")` |
"""


def table(header: list[str], lines: list[list[str]]) -> str:
    text = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(text + ["| " + " | ".join(line) + " |" for line in lines])


def error(ratio: float) -> str:
    percent = round((ratio - 1) * 100, 1)
    return f"{percent:+.1f} %" if percent else "0.0 %"


def kernels() -> str:
    lines = []
    for row in rows.published_kernels():
        _, _, name, what = row.name.split(".")
        model, measured = re.search(r"model ([\d,.]+) µs, measured ([\d,.]+) µs", row.note).groups()
        lines.append([name.replace("_", " "), what.replace("_", " "), measured, model, error(row.value)])
    return table(["kernel", "time", "measured µs", "model µs", "error"], lines)


def operators() -> str:
    lines = []
    shapes = {
        f"{c['op']}_{c.get('dtype')}": "×".join(map(str, c.get("shape", [])))
        for c in json.loads((rows.HERE / "measured" / "operators-trn2.json").read_text())["cases"]
    }
    for row in rows.published_operators():
        name = row.name.removeprefix("chip.op.")
        model, program, stream, measured = re.search(
            r"model ([\d,.]+) µs \(program ([\d,.]+); in a stream of calls ([\d,.]+)\), measured ([\d,.]+)", row.note
        ).groups()
        lines.append([name.replace("_", " "), shapes.get(name, ""), measured, model, error(row.value), program, stream])
    return table(["operator", "shape", "measured µs", "model µs", "error", "of it the program", "in a stream"], lines)


def instructions() -> str:
    groups: dict[tuple[str, str], list[dict]] = {}
    for name in ("trn2", "trn1"):
        for case in core.instruction_conformance(core.chip(name)):
            key = (name, re.sub(r"\.n\d+$", "", case["name"].removeprefix("chip.cost.")))
            groups.setdefault(key, []).append(case)
    lines = []
    for (chip, name), cases in groups.items():
        ratios = [c["model_ns"] / c["law_ns"] for c in cases]
        sizes = [re.search(r"\.n(\d+)$", c["name"]) for c in cases]
        sizes = ", ".join(s.group(1) for s in sizes if s)
        worst = max(ratios, key=lambda r: abs(r - 1))
        lines.append([chip, f"`{name}`", sizes, cases[0]["source"], error(worst), cases[0]["note"].replace("|", "/")])
    return table(["chip", "instruction", "elements per partition", "law", "worst error", "other sources"], lines)


def dma() -> str:
    lines = []
    for case in core.dma_conformance(core.chip("trn2")):
        lines.append(
            [
                case["name"].split(".")[-1],
                f"{case['law_ns']:,.0f}",
                f"{case['model_ns']:,.0f}",
                error(case["model_ns"] / case["law_ns"]),
            ]
        )
    return table(["bytes", "documented ns", "model ns", "error"], lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    chip = core.chip("trn2")
    text = PAGE.format(
        dispatch=chip.dispatch_eager_us,
        low=chip.dispatch_eager_min_us,
        high=chip.dispatch_eager_max_us,
        launch=chip.launch_us,
        kernels=kernels(),
        operators=operators(),
        instructions=instructions(),
        dma=dma(),
    )
    page = ROOT / "docs" / "accuracy.md"
    if args.check:
        if not page.exists() or page.read_text() != text:
            print("docs/accuracy.md is out of date: run `make docs`", file=sys.stderr)
            return 1
        return 0
    page.write_text(text)
    print(f"{page.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
