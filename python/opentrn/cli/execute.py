"""`opentrn exec`: a text program, verified, timed and run."""

from __future__ import annotations

import pathlib
import zlib
from typing import Any

import numpy as np

from . import values
from .common import console, engine_table, find_chip, load_program, time_text
from .errors import UserFault


def execute(
    file: pathlib.Path,
    inputs: list[str],
    scalars: list[str],
    outputs: list[str],
    chip_name: str | None,
    lnc: int | None,
    print_values: bool,
    timeline: bool,
    run: bool,
) -> int:
    program = load_program(file)
    chip = find_chip(chip_name, program.chip)
    if lnc is not None and lnc != program.cores:
        raise UserFault(
            f"--lnc {lnc}: {program.name} is written for {program.cores} core(s), so its LNC is {program.cores}"
        )
    buffers = program.buffers
    given = dict(values.split(i, "--input") for i in inputs)
    wanted = dict(values.split(o, "--output") for o in outputs)
    numbers = dict(values.split(s, "--scalar") for s in scalars)
    _known(given, [b["name"] for b in buffers if b["kind"] == "input"], "--input", program.name)
    _known(wanted, [b["name"] for b in buffers if b["kind"] == "output"], "--output", program.name)
    _known(numbers, [name for name, _ in program.scalars], "--scalar", program.name)
    out = console()

    findings = program.check(chip)
    if findings:
        for number, instruction, message in findings[:20]:
            where = f"core {number}, instruction {instruction}: " if instruction >= 0 else ""
            out.print(f"{where}{message}", markup=False)
        raise UserFault(f"{file}: {len(findings)} finding(s) of the verifier on {chip.name}; the program was not run")
    count = sum(program.size(c) for c in range(program.cores))
    out.print(
        f"[bold]{program.name}[/]  {count:,} instructions on {program.cores} core(s): verified, no race, no deadlock"
    )

    time = program.time(chip)
    out.print(
        f"modelled time [bold]{time_text(time['total_ps'])}[/] on {chip.name}, from the first trigger to the last semaphore; "
        f"launch cost {chip.launch_us:g} µs not included"
    )
    flops = sum(c["matmul_flops"] for c in time["cores"])
    if flops and time["total_ps"]:
        peak = chip.peak_tflops["bf16"] * program.cores
        out.print(
            f"tensor engine {flops / time['total_ps']:.4g} TFLOPS, {flops / time['total_ps'] / peak:.1%} of {peak:g} (bf16)"
        )
    out.print(engine_table(time))
    if timeline:
        print_timeline(out, program, chip)
    if run:
        arrays, shown = _arrays(program, buffers, given)
        program.run(chip, arrays, _scalars(program, numbers))
        _outputs(out, shown, wanted, print_values)
    return 0


def _known(given: dict[str, str], names: list[str], option: str, program: str) -> None:
    for name in given:
        if name not in names:
            raise UserFault(f"{option} {name}: {program} has no such name; it has {', '.join(names) or 'none'}")


def _arrays(
    program, buffers: list[dict[str, Any]], given: dict[str, str]
) -> tuple[list[np.ndarray], list[tuple[Any, np.ndarray]]]:
    """The arrays to run on, and (buffer, array) of each output."""
    arrays, by_index, shown = [], {}, []
    for index, buffer in enumerate(buffers):
        if buffer["kind"] not in ("input", "output"):
            continue
        if buffer["alias"] >= 0:
            array = by_index[buffer["alias"]]
        elif buffer["kind"] == "input":
            if buffer["name"] not in given:
                raise UserFault(
                    f"input {buffer['name']} of {program.name} has no value: add --input {buffer['name']}=rand"
                )
            array = values.make(buffer["name"], given[buffer["name"]], buffer).reshape(-1).view(np.uint8)
            arrays.append(array)
        else:
            array = np.zeros(buffer["bytes"], np.uint8)
            arrays.append(array)
        by_index[index] = array
        if buffer["kind"] == "output":
            shown.append((buffer, array))
    return arrays, shown


def _scalars(program, numbers: dict[str, str]) -> list[Any]:
    result = []
    for name, dtype in program.scalars:
        if name not in numbers:
            raise UserFault(f"scalar {name} of {program.name} has no value: add --scalar {name}=NUMBER")
        try:
            result.append(float(numbers[name]) if dtype.startswith("f") else int(numbers[name], 0))
        except ValueError:
            raise UserFault(f"--scalar {name}={numbers[name]} is not a number of type {dtype}") from None
    return result


def _outputs(out, shown: list[tuple[Any, np.ndarray]], wanted: dict[str, str], print_values: bool) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for column in ("output", "dtype", "elements", "min", "max", "mean", "crc32"):
        table.add_column(column)
    printed = []
    for buffer, data in shown:
        spec = wanted.get(buffer["name"], "")
        dtype, shape = buffer["dtype"] or "u8", None
        if spec and not spec.endswith(".npy"):
            shape_text, _, dtype_text = spec.partition(":")
            shape = values.parse_shape(shape_text)
            dtype = values.dtype_name(dtype_text) if dtype_text else dtype
        numbers = values.decode(data, dtype)
        if shape is not None:
            try:
                numbers = numbers.reshape(shape)
            except ValueError:
                raise UserFault(
                    f"--output {buffer['name']}={spec}: the output has {numbers.size:,} elements of {dtype}"
                ) from None
        if spec.endswith(".npy"):
            try:
                np.save(spec, numbers)
            except OSError as error:
                raise UserFault(f"--output {buffer['name']}: {spec} cannot be written: {error.strerror}") from None
        real = numbers.astype(np.float64).reshape(-1)
        low, high, mean = (real.min(), real.max(), real.mean()) if real.size else (0, 0, 0)
        table.add_row(
            buffer["name"],
            dtype,
            f"{real.size:,}",
            f"{low:.6g}",
            f"{high:.6g}",
            f"{mean:.6g}",
            f"{zlib.crc32(data):08x}",
        )
        printed.append((buffer["name"], numbers))
    out.print(table)
    if print_values:
        for name, numbers in printed:
            out.print(f"{name} =", markup=False)
            out.print(np.array2string(numbers, threshold=200, edgeitems=4, precision=6), markup=False)


def print_timeline(out, program, chip, limit: int = 2000) -> None:
    """Each instruction and transfer by its start."""
    _, events = program.timeline(chip, limit)
    code = [program.code(c) for c in range(program.cores)]
    tracks = ["tensor", "vector", "scalar", "gpsimd", "sync"]
    out.print(f"{'start':>12} {'duration':>10} {'waited':>10}  where     instruction", style="dim")
    for i in range(len(events["start_ps"])):
        number, track = int(events["core"][i]), int(events["track"][i])
        label = tracks[track] if track < 5 else f"queue {track - 5}"
        if program.cores > 1:
            label = f"{number}.{label}"
        start, end = int(events["start_ps"][i]), int(events["end_ps"][i])
        text = code[number][int(events["instruction"][i])]["text"]
        line = f"{start / 1e3:12.1f} {(end - start) / 1e3:10.1f} {int(events['wait_ps'][i]) / 1e3:10.1f}  {label:<9} {text}"
        out.print(line, markup=False, no_wrap=True, overflow="ignore", crop=False)
    if events["dropped"]:
        out.print(f"… {events['dropped']:,} more events", style="dim")
    out.print("times in ns", style="dim")
