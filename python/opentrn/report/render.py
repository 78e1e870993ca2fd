"""The report as text: a few lines of figures, each with what it means; plain when the output is no terminal."""

from __future__ import annotations

import io
import pathlib
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_BARS = "▁▂▃▄▅▆▇█"


def time_text(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:.3g} s"
    if us >= 1e3:
        return f"{us / 1e3:.3g} ms"
    return f"{us:.3g} µs"


def bytes_text(count: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{100 * share:.2g} %" if share < 0.0995 else f"{100 * share:.0f} %"


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def sparkline(values: list[float], width: int = 40) -> str:
    if len(values) > width:
        values = [values[i * (len(values) - 1) // (width - 1)] for i in range(width)]
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0
    return "".join(_BARS[round((v - low) * scale)] for v in values)


def _bar(share: float, width: int = 5) -> str:
    filled = min(round(share * width), width)
    return "█" * filled + "░" * (width - filled)


def _rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    chip, rows = report["chip"], []
    steps, figures = report["steps"], report["step"] or report.get("whole_run")
    losses = [v for v in report["losses"].values() if v is not None]
    what = "Step" if report["step"] else "Run"

    if steps:
        text = count_text(len(steps), "step")
        if losses:
            text += f", loss {losses[0]:.4f} → {losses[-1]:.4f}  {sparkline(losses)}"
        if report["first_bad_loss_step"]:
            text += f"  [bold red]the loss is not a number from step {report['first_bad_loss_step']} on[/]"
        rows.append(("Training", text))
        host = f"{report['host_s_per_step']:.3g} s per step on this machine"
        if report.get("compare") and report["compare"]["slowdown"]:
            host += f" (cpu {report['compare']['host_s_per_step']:.3g} s, {report['compare']['slowdown']:.2g}×)"
        rows.append(("Host time", host + ", median"))
    else:
        rows.append(("Host time", f"{report['wall_s']:.3g} s for the whole run; no optimizer stepped"))
    if not figures:
        rows.append(("Device", "the script did no work on the neuron device"))
        return rows

    low, dispatch, high = chip["dispatch_us"]
    rows.append(
        (
            f"{what} time, modelled",
            f"[bold]{time_text(figures['modelled_us'])}[/] = {time_text(figures['device_us'])} the device works "
            f"+ {time_text(figures['host_part_us'])} it waits for the host",
        )
    )
    rows.append(
        (
            "Host dispatch",
            f"{figures['dispatches']:,} operators, {time_text(figures['dispatch_us'])}: {dispatch:g} µs each on the real stack "
            f"({low:g}–{high:g}), an input of the chip file, not a result",
        )
    )
    peak = f"{chip['peak_tflops'] * chip['lnc']:.1f} TFLOPS bf16"
    if chip["lnc"] > 1:
        peak += f" ({chip['lnc']} cores × {chip['peak_tflops']:g})"
    rows.append(
        (
            "MFU, HFU",
            f"{percent(figures['mfu_device'])}, {percent(figures['hfu_device'])} of device time; "
            f"{percent(figures['mfu_step'])}, {percent(figures['hfu_step'])} of {what.lower()} time; peak {peak}",
        )
    )
    busy = "  ".join(
        f"{name} {_bar(share)} {percent(share)}" for name, share in figures["busy"].items() if name != "sync"
    )
    rows.append(("Busy of device time", busy))
    rows.append(("Bound", figures["bound"]["sentence"]))
    rate = figures["hbm_bytes"] / (figures["device_us"] * 1e3) if figures["device_us"] else 0
    peak_bytes = report["memory_peak_bytes"] or 0
    rows.append(
        (
            "HBM",
            f"peak {bytes_text(peak_bytes)} of {chip['hbm_gib']:g} GiB; {bytes_text(figures['hbm_bytes'])} moved per "
            f"{what.lower()}, {rate:.0f} GB/s while the device works",
        )
    )
    cache = report["cache"] or {}
    if cache:
        text = f"{count_text(cache['compiled'], 'program')} compiled in {cache['compile_ms'] / 1e3:.2g} s"
        if cache.get("plans"):
            text += f", {count_text(cache['plans'], 'host plan')} made in {cache['plan_ms'] / 1e3:.2g} s"
        text += f", {cache['disk_hits']:,} from the disk cache, {report['cache_hits']:,} launches of programs in memory"
        rows.append(("Programs", text))
    fallbacks = report["fallbacks"]
    if fallbacks:
        total = sum(f["count"] for f in fallbacks)
        lines = [
            f"[bold yellow]{count_text(len(fallbacks), 'operator')} ran on the CPU, {count_text(total, 'call')}[/]"
        ]
        for fallback in sorted(fallbacks, key=lambda f: -f["count"])[:8]:
            where = ", ".join(line for line, _ in fallback["lines"][:3])
            lines.append(f"{fallback['op']} × {fallback['count']:,}" + (f"  {where}" if where else ""))
        rows.append(("Fell back", "\n".join(lines)))
    else:
        rows.append(("Fell back", "no operator ran on the CPU"))
    return rows


def _compare_table(compare: dict[str, Any]) -> Table:
    rows = compare["rows"]
    picked = sorted({0, len(rows) - 1} | {i * (len(rows) - 1) // 5 for i in range(6)})
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("loss at step", style="dim")
    for index in picked:
        table.add_column(str(rows[index]["step"]), justify="right")
    table.add_row("neuron", *(f"{rows[i]['neuron']:.5f}" for i in picked))
    table.add_row("cpu", *(f"{rows[i]['cpu']:.5f}" for i in picked))
    table.add_row("relative difference", *(f"{rows[i]['rel_diff']:.1e}" for i in picked))
    return table


def render(report: dict[str, Any], console: Console) -> None:
    chip = report["chip"]
    title = f"opentrn · {pathlib.Path(report['script']).name} · {chip['name']}, LNC={chip['lnc']}, {report['mode']}"
    console.print()
    console.rule(title, style="dim", align="left")
    if report["stopped"]:
        console.print(Text(f"stopped: {report['stopped']}; the report covers the finished steps", style="bold red"))
    elif report["status"] == 130:
        console.print(Text("interrupted before the script began", style="bold red"))
    elif report["status"] and report["status"] > 0:
        console.print(Text(f"the script ended with status {report['status']}", style="bold red"))
    elif report["status"] and report["status"] < 0:
        console.print(
            Text(f"the script was ended by signal {-report['status']}; no profile could be written", style="bold red")
        )
    if report.get("device_error"):
        console.print(Text(f"device error: {report['device_error']}", style="bold red"))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _rows(report):
        table.add_row(name, Text.from_markup(text))
    compare = report.get("compare")
    if compare:
        table.add_row(
            "neuron and cpu",
            f"largest relative difference of the loss {compare['max_rel_diff']:.1e}, at step {compare['max_rel_diff_step']}",
        )
    elif report.get("compare_error"):
        table.add_row("neuron and cpu", Text(report["compare_error"], style="yellow"))
    for name, path in report["files"].items():
        table.add_row(name, Text(str(path)))
    console.print(table)
    if compare:
        console.print()
        console.print(_compare_table(compare))
    console.print()
    grades = ", ".join(f"{count} {grade}" for grade, count in chip["grades"].items())
    console.print(
        Text(
            f"Modelled time comes from a software model of {chip['title']} ({grades} numbers), not from AWS software; it was "
            "never measured by us on a Trainium. Values are computed by this machine. docs/accuracy.md has the model's errors.",
            style="dim",
        )
    )


def to_text(report: dict[str, Any], width: int = 110) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    render(report, console)
    return console.file.getvalue()
