"""`opentrn doctor`: what is installed, what it was built for, and whether it works."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform
import subprocess
import sys
import time

import numpy as np

from ..build_info import build_info
from .common import console, core
from .errors import UserFault

OWN_VARIABLES = {
    "OPENTRN": "1: load beside AWS's package or a real device",
    "OPENTRN_AUTOLOAD": "0: `import torch` does not load the device",
    "OPENTRN_MODE": "simulate or predict",
    "OPENTRN_CHIP": "chip to model",
    "OPENTRN_CHIPS": "folder of chip files",
    "OPENTRN_NUM_THREADS": "threads that execute programs; torch.set_num_threads() otherwise",
    "OPENTRN_HOST_PLAN": "on, off (reference interpreter) or check (both, compared)",
    "OPENTRN_SIMD": "highest SIMD target used",
    "OPENTRN_FALLBACK": "warn, quiet or error: operators that run on the CPU",
    "OPENTRN_CACHE": "0: no program cache on disk",
    "OPENTRN_CACHE_DIR": "folder of the program cache",
    "OPENTRN_MAX_PROGRAMS": "programs kept in memory",
}

# y = 2 x + 1 over 128 rows of 256 numbers.
SELF_CHECK = """program self_check chip={chip}
buffer x input bytes=131072
buffer y output bytes=131072
core 0 {{
  pool tile sbuf offset=0 bytes=1024 depth=1
  semaphore loaded initial=0
  semaphore computed initial=0
  rotate t0 = tile
  sync.q0 dma_copy f32 tile[t0] [0:128] [1,256] <- f32 x [0:128 step 256] [1,256] post loaded+1
  vector tensor_scalar.mult.add f32 tile[t0] [0:128] [1,256] <- f32 tile[t0] [0:128] [1,256] s0=2 s1=1 wait loaded>=1 post computed+1
  sync.q0 dma_copy f32 y [0:128 step 256] [1,256] <- f32 tile[t0] [0:128] [1,256] wait computed>=1
}}
"""

DEVICE_CHECK = """
import torch
x = torch.arange(64.0).reshape(8, 8)
y = (x.to("neuron") @ x.to("neuron") + 1).cpu()
assert torch.equal(y, x @ x + 1), (y, x @ x + 1)
print(torch.neuron.get_device_properties(0).name)
"""


def doctor() -> int:
    out = console()
    problems: list[str] = []

    def line(name: str, text: str, good: bool | None = None) -> None:
        mark = {True: "[green]ok[/]  ", False: "[red]bad[/] ", None: "    "}[good]
        out.print(f"{mark} [dim]{name:<18}[/]{text}")
        if good is False:
            problems.append(name)

    module, built = core(), build_info()
    line("opentrn", f"{module.__version__}, {built.get('build_type', 'unknown build')}, {built.get('compiler', '')}")
    line("Python", f"{platform.python_version()} at {sys.executable}")
    try:
        torch = importlib.metadata.version("torch")
        same = (built.get("torch") or "").split("+")[0] == torch.split("+")[0]
        line(
            "torch",
            f"{torch}, bridge built for {built.get('torch') or 'none'}" + ("" if same else ": build opentrn again"),
            same,
        )
    except importlib.metadata.PackageNotFoundError:
        line("torch", "not installed: programs can be run, scripts cannot", False)
    for name in ("numpy", "transformers"):
        try:
            line(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            line(name, "not installed")
    line("processor", f"{os.cpu_count()} CPUs, SIMD target {module.simd_target()}")
    line("chips", ", ".join(module.chip_names()), bool(module.chip_names()))
    real = [str(p) for p in pathlib.Path("/dev").glob("neuron*")]
    line("real devices", ", ".join(real) + ": opentrn stays away unless OPENTRN=1" if real else "none (/dev/neuron*)")

    try:
        settings = module.settings()
        line(
            "settings",
            f"chip {settings['chip']}, LNC={settings['lnc']}, {settings['mode']}, {settings['devices']} device(s), "
            f"{settings['threads'] or 'automatic'} thread(s)",
            True,
        )
        _cache(line, settings)
    except ValueError as error:
        line("settings", str(error), False)

    _self_check(line, module)
    _device_check(line)
    _variables(out)
    if problems:
        raise UserFault(f"{len(problems)} problem(s): {', '.join(problems)}")
    return 0


def _cache(line, settings) -> None:
    if not settings["disk_cache"]:
        line("program cache", "in memory only (turned off)")
        return
    folder = pathlib.Path(settings["cache_dir"])
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not os.access(existing, os.W_OK):
        line(
            "program cache",
            f"{folder} cannot be written: programs are kept in memory only; set OPENTRN_CACHE_DIR",
            False,
        )
        return
    files = [f for f in folder.rglob("*") if f.is_file()] if folder.exists() else []
    size = sum(f.stat().st_size for f in files)
    free = os.statvfs(existing).f_bavail * os.statvfs(existing).f_frsize
    text = f"{folder}: {len(files):,} files, {size / 1e6:.1f} MB of {settings['cache_max_bytes'] / 1e6:.0f} MB"
    line("program cache", text + (f"; only {free / 1e6:.0f} MB free" if free < 200e6 else ""), free >= 20e6)


def _self_check(line, module) -> None:
    try:
        chip = module.chip("trn2")
        program = module.Program.parse(SELF_CHECK.format(chip=chip.name))
        program.verify(chip)
        x = np.linspace(-3, 3, 128 * 256, dtype=np.float32)
        y = np.empty_like(x)
        program.run(chip, [x, y])
        good = np.array_equal(y, 2 * x + 1)
        ns = program.time(chip)["total_ps"] / 1000
        line(
            "core self-check",
            f"a program verified, ran and was timed ({ns:,.0f} ns on trn2)" if good else "wrong values",
            good,
        )
    except Exception as error:
        line("core self-check", f"{type(error).__name__}: {error}", False)


def _device_check(line) -> None:
    """In a process of its own: a broken bridge must not take the doctor with it."""
    started = time.perf_counter()
    try:
        result = subprocess.run(
            [sys.executable, "-c", DEVICE_CHECK], capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        line("device self-check", "no answer for 120 s", False)
        return
    took = time.perf_counter() - started
    if result.returncode == 0:
        line(
            "device self-check",
            f"a matmul on the device {result.stdout.strip()} equals the CPU's ({took:.1f} s with import torch)",
            True,
        )
        return
    last = (result.stderr.strip().splitlines() or [f"ended with status {result.returncode}"])[-1]
    line("device self-check", last, False)


def _variables(out) -> None:
    from ..device.environment import ACCEPTED, MEANINGFUL, unknown

    out.print("\nenvironment variables with an effect (bold: set)")
    for name, meaning in OWN_VARIABLES.items():
        value = os.environ.get(name)
        out.print(f"  [bold]{name}={value}[/]  {meaning}" if value is not None else f"  [dim]{name}  {meaning}[/]")
    for name in sorted(MEANINGFUL):
        if name in os.environ:
            out.print(f"  [bold]{name}={os.environ[name]}[/]")
    for name in sorted(ACCEPTED & os.environ.keys()):
        out.print(f"  [dim]{name}: accepted, no effect here[/]")
    for name in unknown():
        out.print(f"  [yellow]{name}: unknown, no effect[/]")
