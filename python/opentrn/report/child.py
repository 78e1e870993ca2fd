"""Runs the user's script with the watches installed; `python -m opentrn.report.child CONFIG` is its command line.

CONFIG is a JSON object: {"fd", "target", "module", "argv", "device": "neuron"|"cpu", "clock", "profile", "out",
"seed", "progress"}. The script's output, traceback and exit status are its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import runpy
import signal
import sys
import traceback
from typing import Any

from .channel import Sender


def _device_core():
    import opentrn._core as core

    return core


class _Progress:
    """A line that counts steps, on a terminal only."""

    def __init__(self, enabled: bool, device: str):
        self._bar = None
        if enabled:
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(f"{device}: before the first step")
            self._device = device
            self._bar.start()

    def step(self, step: int, loss: float | None) -> None:
        if self._bar:
            text = f"{self._device}: step {step}" + (f"  loss {loss:.4f}" if loss is not None else "")
            self._bar.update(self._task, description=text)

    def stop(self) -> None:
        if self._bar:
            self._bar.stop()


def _seed(seed: int) -> None:
    import numpy as np

    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _print_traceback() -> None:
    """As Python itself would print it: without the frames of this file and of runpy."""
    kind, value, trace = sys.exc_info()
    while trace is not None and (
        trace.tb_frame.f_code.co_filename == __file__ or "runpy" in trace.tb_frame.f_code.co_filename
    ):
        trace = trace.tb_next
    traceback.print_exception(kind, value, trace)


def _run(config: dict[str, Any]) -> tuple[int, str | None]:
    """Exit status and, when something stopped the script, its one-line name."""
    sys.argv = [config["target"], *config["argv"]]
    try:
        if config["module"]:
            sys.path[0] = os.getcwd()
            runpy.run_module(config["target"], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(config["target"]))
            runpy.run_path(config["target"], run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0, None
        print(stop.code, file=sys.stderr)
        return 1, str(stop.code)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _print_traceback()
        return 130, "KeyboardInterrupt"
    except BaseException as error:
        _print_traceback()
        lines = str(error).strip().splitlines()
        return 1, type(error).__name__ + (f": {lines[0]}" if lines else "")
    return 0, None


def _finish(config: dict[str, Any], sender: Sender, watch, core, stopped: str | None) -> None:
    """Everything the report needs beyond the steps. Each part may fail without losing the others."""
    from .steps import _devices, memory_peak_bytes, totals

    rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    end: dict[str, Any] = {"stopped": stopped, "device": config["device"], "host_rss_mib": rss_mib}
    devices = _devices(core) if core is not None else []
    if devices:
        for device in devices:
            try:
                core.synchronize(device)
            except Exception as error:
                end["device_error"] = str(error).splitlines()[0]
        end["totals"] = totals(core)
        end["memory_peak_bytes"] = memory_peak_bytes(core)
        end["cache"] = core.cache_stats()
        end["settings"] = core.settings()
    watch.flush_losses()
    if core is not None:
        try:
            end["fallbacks"] = fallbacks()
        except Exception as error:
            end["fallbacks_error"] = str(error)
    sender.send("end", **end)
    if devices and config["profile"] != "off":
        from ..profile.write import write_profile

        try:
            info = write_profile(core, config["out"], script=config["target"], finished_steps=watch.steps)
            sender.send("profile", **info)
        except Exception as error:
            sender.send("profile", error=str(error).splitlines()[0] if str(error) else type(error).__name__)


def fallbacks() -> list[dict[str, Any]]:
    """Operators that ran on the CPU: [{"op", "count", "reason", "lines": [[line, count], ...]}]."""
    bridge = sys.modules.get("opentrn._torch")
    if bridge is None or not hasattr(bridge, "fallbacks"):
        return []
    found = []
    for entry in bridge.fallbacks():
        entry = dict(entry) if not isinstance(entry, dict) else entry
        lines = [[str(line), int(count)] for line, count in entry.get("lines", entry.get("origins", []))]
        found.append({"op": entry["op"], "count": entry["count"], "reason": entry.get("reason", ""), "lines": lines})
    return found


def main() -> int:
    config = json.loads(sys.argv[1])
    sender = Sender(config["fd"])
    core = None
    if config["device"] == "cpu":
        from . import cpu_map

        cpu_map.install()
    else:
        import torch  # noqa: F401  loads the device

        core = _device_core()
        try:
            core.settings()
        except ValueError as error:  # an environment variable that cannot be right
            print(f"opentrn: {error}", file=sys.stderr)
            return 2
        if config["profile"] != "off":
            recording = core.Recording.all if config["profile"] == "all" else core.Recording.last_steps
            core.set_recording(recording, 3)
        if config["clock"] == "modelled":
            from . import virtual_clock

            def host_ps() -> int:
                return core.host_ps(0) if core.device_exists(0) else 0

            def advance_ps(ps: int) -> None:
                if core.device_exists(0):
                    core.advance_host_ps(0, ps)

            virtual_clock.install(host_ps, advance_ps)
    from .steps import StepWatch

    progress = _Progress(config["progress"], config["device"])
    watch = StepWatch(sender, core, progress.step)
    watch.install()
    if config["seed"] is not None:
        _seed(config["seed"])
    # A polite kill is an end like any other: the finished steps are reported.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sender.send("start", pid=os.getpid())
    status, stopped = _run(config)
    if stopped == "KeyboardInterrupt":
        sender.send("interrupted")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    progress.stop()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    _finish(config, sender, watch, core, stopped)
    return status


if __name__ == "__main__":
    try:
        status = main()
    except KeyboardInterrupt:  # before the script began, or after it ended
        status = 130
    sys.exit(status)
