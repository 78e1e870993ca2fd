"""What several commands need: the core, a chip by name, a console."""

from __future__ import annotations

from typing import Any

from .errors import UserFault


def core() -> Any:
    try:
        import opentrn._core as module
    except ImportError as error:
        raise UserFault(
            f"the core cannot be loaded ({error}): build it with `make build`, or reinstall the wheel"
        ) from None
    return module


def find_chip(name: str | None, default: str = "trn2") -> Any:
    module = core()
    name = name or default
    names = module.chip_names()
    if name not in names:
        raise UserFault(f"unknown chip {name!r}: this version models {', '.join(names)}")
    try:
        return module.chip(name)
    except ValueError as error:
        raise UserFault(str(error)) from None


def check_lnc(chip: Any, lnc: int | None) -> int:
    if lnc is None:
        return chip.lnc_default
    if lnc not in chip.lnc_allowed:
        allowed = ", ".join(map(str, chip.lnc_allowed))
        raise UserFault(f"--lnc {lnc} is not possible on {chip.name}: allowed are {allowed}")
    return lnc


def console(stderr: bool = False, plain_width: int = 130):
    """Text for a terminal; a pipe or file gets plain text of `plain_width` columns."""
    import sys

    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else plain_width, highlight=False)


def time_text(ps: float) -> str:
    ns = ps / 1000
    if ns >= 1e6:
        return f"{ns / 1e6:.4g} ms"
    return f"{ns / 1e3:.4g} µs" if ns >= 1e3 else f"{ns:.4g} ns"


def engine_table(time: dict[str, Any]):
    """Busy time per engine and core of a program's time."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for name, justify in (
        ("", "left"),
        ("busy", "right"),
        ("", "right"),
        ("waiting", "right"),
        ("instructions", "right"),
    ):
        table.add_column(name, justify=justify)
    total = time["total_ps"] or 1
    for number, core in enumerate(time["cores"]):
        prefix = f"core {number} " if len(time["cores"]) > 1 else ""
        for engine, use in core["engines"].items():
            if use["instructions"]:
                table.add_row(
                    f"{prefix}{engine}",
                    time_text(use["busy_ps"]),
                    f"{use['busy_ps'] / total:.0%}",
                    time_text(use["wait_ps"]),
                    f"{use['instructions']:,}",
                )
        if core["dma_transfers"]:
            moved = core["hbm_read_bytes"] + core["hbm_write_bytes"]
            table.add_row(
                f"{prefix}DMA",
                time_text(core["dma_active_ps"]),
                f"{core['dma_active_ps'] / total:.0%}",
                "",
                f"{core['dma_transfers']:,} transfers, {moved:,} bytes of HBM",
            )
    return table


def load_program(path, name: str = "program") -> Any:
    """A program file in text or binary form."""
    module = core()
    if not path.exists():
        raise UserFault(f"there is no {name} {path}")
    if path.is_dir():
        raise UserFault(f"{path} is a folder, not a program and not a profile (a profile has manifest.json)")
    data = path.read_bytes()
    try:
        if b"\0" in data[:64]:
            return module.Program.deserialize(data)
        return module.Program.parse(data.decode())
    except UnicodeDecodeError:
        raise UserFault(f"{path} is neither a program's text nor its binary form") from None
    except ValueError as error:
        raise UserFault(f"{path}: {error}") from None
