"""`opentrn chips`: the chip files."""

from __future__ import annotations

from .common import console, core, find_chip


def chips(name: str | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    out = console(plain_width=300)
    if name is None:
        table = Table(box=None, padding=(0, 2), pad_edge=False)
        for column in ("chip", "", "cores", "LNC", "HBM per core", "bf16 per core", "numbers"):
            table.add_column(column)
        for each in core().chip_names():
            chip = find_chip(each)
            grades = ", ".join(f"{count} {grade}" for grade, count in chip.grade_counts().items())
            lnc = "/".join(f"[bold]{n}[/]" if n == chip.lnc_default else str(n) for n in chip.lnc_allowed)
            table.add_row(
                chip.name,
                chip.title,
                str(chip.cores_per_chip),
                lnc,
                f"{chip.hbm_bytes_per_core / 2**30:g} GiB, {chip.hbm_gb_s_per_core:g} GB/s",
                f"{chip.peak_tflops.get('bf16', 0):g} TFLOPS",
                grades,
            )
        out.print(table)
        out.print(
            "\n[dim]LNC in bold is the default. `opentrn chips NAME` lists every number with unit, grade and source.[/]"
        )
        return
    chip = find_chip(name)
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for column in ("number", "value", "unit", "grade", "source"):
        table.add_column(column, overflow="fold")
    colours = {"documented": "green", "measured": "cyan", "estimated": "yellow"}
    for p in chip.parameters:
        colour = colours.get(p.grade, "white")
        source = escape(p.source + (f"; {p.note}" if p.note else ""))
        table.add_row(p.path, f"{p.value:g}", p.unit, f"[{colour}]{p.grade}[/]", source)
    out.print(f"[bold]{chip.name}[/]  {chip.title}  [dim]{chip.hash}[/]")
    out.print(table)
