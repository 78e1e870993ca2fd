"""`opentrn show`: a program's instructions, or a profile's summary."""

from __future__ import annotations

import pathlib

import numpy as np

from ..profile.read import Profile, ProfileError
from .common import console, core, engine_table, find_chip, load_program, time_text
from .errors import UserFault


def show(
    path: pathlib.Path, program: int | None, step: int | None, top: int, chip: str | None, plan: bool = False
) -> None:
    if not path.exists():
        raise UserFault(f"there is no program or profile {path}")
    if path.is_dir():
        try:
            profile = Profile(path)
            if program is not None:
                _program_of(profile, program, plan)
            else:
                _summary(profile, step, top)
        except ProfileError as error:
            raise UserFault(str(error)) from None
        return
    _program(load_program(path), chip, plan)


def _program(program, chip_name: str | None, plan: bool) -> None:
    out = console()
    if plan:
        out.print(program.host_plan(), markup=False, soft_wrap=True, end="")
        return
    chip = find_chip(chip_name, program.chip)
    out.print(program.text(), markup=False, soft_wrap=True)
    findings = program.check(chip)
    for number, instruction, message in findings[:20]:
        out.print(f"[red]core {number}, instruction {instruction}[/]: ", end="")
        out.print(message, markup=False)
    if findings:
        out.print(f"{len(findings)} finding(s) of the verifier on {chip.name}", style="red")
        return
    time = program.time(chip)
    out.print(
        f"modelled time [bold]{time_text(time['total_ps'])}[/] on {chip.name}, launch cost {chip.launch_us:g} µs not included"
    )
    out.print(engine_table(time))


def _program_of(profile: Profile, id: int, plan: bool) -> None:
    ids = profile.column("Program", "id").tolist()
    if id not in ids:
        raise UserFault(f"program {id} is not in this profile: it has {', '.join(map(str, sorted(ids)[:40]))}")
    data = profile.program_bytes(id)
    if data is None:
        raise UserFault(f"the code of program {id} was too large to be kept in this profile")
    index = ids.index(id)
    out = console()
    out.print(f"program {id}: {profile.texts('Program', 'name')[index]}", style="bold", markup=False)
    try:
        program = core().Program.deserialize(data)
    except ValueError as error:
        raise UserFault(f"{profile.path}/programs/{id}.trnp: {error}") from None
    _program(program, profile.manifest["chip"]["name"], plan)


def _short_origin(origin: str) -> str:
    """The file's name and its folder are enough to recognise a line; the profile keeps the whole path."""
    path, separator, rest = origin.partition(" in ")
    return "/".join(path.split("/")[-1:]) + separator + rest


def _summary(profile: Profile, step: int | None, top: int) -> None:
    from rich.markup import escape
    from rich.table import Table

    out, manifest = console(), profile.manifest
    steps = profile.column("Launch", "step")
    chosen = np.ones(len(steps), bool) if step is None else np.asarray(steps == step)
    if step is not None and not chosen.any():
        raise UserFault(f"step {step} is not in this profile: it has {', '.join(map(str, manifest['steps']))}")
    chip = manifest["chip"]
    out.print(
        f"[bold]{escape(str(manifest['script']))}[/]  {chip['name']}, LNC={manifest['lnc']}, {manifest['mode']}, "
        f"{manifest['created']}  [dim]{manifest['about']}[/]"
    )
    for number, start, end, launches in zip(
        *(profile.column("Step", c).tolist() for c in ("step", "start_ts", "end_ts", "launches")), strict=True
    ):
        if step is None or number == step:
            out.print(f"step {number}: {launches:,} launches in {time_text((end - start) * 1e3)}")

    duration = np.asarray(profile.column("Launch", "end_ts")) - np.asarray(profile.column("Launch", "start_ts"))
    program_ids = np.asarray(profile.column("Launch", "program_id"))
    kinds = profile.column("Launch", "kind")
    names = profile.strings("Launch", "kind")
    origins, origin_names = np.asarray(profile.column("Launch", "origin")), profile.strings("Launch", "origin")
    is_program = np.array([names[k] == "program" for k in kinds], bool) & chosen
    total = max(int(duration[is_program].sum()), 1)
    column = {
        c: profile.column("Program", c).tolist()
        for c in (
            "id",
            "duration_ns",
            "tensor_busy_ns",
            "vector_busy_ns",
            "scalar_busy_ns",
            "gpsimd_busy_ns",
            "dma_busy_ns",
            "cores",
            "instructions",
            "dropped",
        )
    }
    labels = profile.texts("Program", "name")
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for name, justify in (
        ("program", "right"),
        ("launches", "right"),
        ("each", "right"),
        ("time", "right"),
        ("share", "right"),
        ("busiest", "left"),
        ("name, and where it is called most often", "left"),
    ):
        table.add_column(name, justify=justify, overflow="fold", no_wrap=not name.startswith("name"))
    order = []
    for index, id in enumerate(column["id"]):
        mine = is_program & (program_ids == id)
        order.append((int(duration[mine].sum()), index, mine))
    order.sort(key=lambda item: -item[0])
    for spent, index, mine in order[:top]:
        if not mine.any():
            continue
        core_ns = max(column["duration_ns"][index] * column["cores"][index], 1)
        codes, counts = np.unique(origins[mine], return_counts=True)
        units = {e: column[f"{e}_busy_ns"][index] / core_ns for e in ("tensor", "vector", "scalar", "gpsimd", "dma")}
        busiest = max(units, key=units.get)
        origin = origin_names[codes[counts.argmax()]]
        table.add_row(
            str(column["id"][index]),
            f"{int(mine.sum()):,}",
            time_text(column["duration_ns"][index] * 1e3),
            time_text(spent * 1e3),
            f"{spent / total:.1%}",
            f"{'DMA' if busiest == 'dma' else busiest} {units[busiest]:.0%}",
            escape(labels[index]) + (f"  [dim]{escape(origin)}[/]" if origin else ""),
        )
    out.print(table)
    if len(order) > top:
        out.print(f"[dim]… {len(order) - top} more programs (--top {len(order)} lists all); --program N prints one[/]")
    moved = chosen & ~is_program
    if moved.any():
        sizes = np.asarray(profile.column("Launch", "bytes"))
        for code, name in enumerate(names):
            mine = moved & (np.asarray(kinds) == code)
            if mine.any():
                out.print(
                    f"{name}: {int(mine.sum()):,} copies, {int(sizes[mine].sum()):,} bytes, {time_text(int(duration[mine].sum()) * 1e3)}"
                )
    if manifest["dropped_instructions"]:
        out.print(f"[dim]{manifest['dropped_instructions']:,} instructions were left out to keep the profile small[/]")
