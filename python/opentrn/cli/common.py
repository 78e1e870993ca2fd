"""What several commands need: the core, a chip by name, a console."""

from __future__ import annotations

from typing import Any

from .errors import UserFault


def core() -> Any:
    try:
        import opentrn._core as module
    except ImportError as error:
        raise UserFault(f"the core cannot be loaded ({error}): build it with `make build`, or reinstall the wheel") from None
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


def console(stderr: bool = False):
    import sys

    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # A pipe or file gets wide plain text instead of being wrapped at 80 columns.
    return Console(stderr=stderr, width=None if stream.isatty() else 130, highlight=False)
