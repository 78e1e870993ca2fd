"""Turns a run's messages into the report's numbers: one dictionary, which `--json` writes as it is."""

from __future__ import annotations

import math
from typing import Any

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")


class Run:
    """What one child said: its steps, its end, its exit status."""

    def __init__(self, device: str):
        self.device = device
        self.steps: list[dict[str, Any]] = []
        self.losses: dict[int, float] = {}
        self.end: dict[str, Any] | None = None
        self.profile: dict[str, Any] | None = None
        self.started = False  # the script itself began
        self.interrupted = False
        self.status: int | None = None
        self.wall_s = 0.0

    def add(self, message: dict[str, Any]) -> None:
        kind = message.get("kind")
        if kind == "step":
            self.steps.append(message)
        elif kind == "loss":
            self.losses[message["step"]] = message["value"]
        elif kind == "end":
            self.end = message
        elif kind == "profile":
            self.profile = message
        elif kind == "start":
            self.started = True
        elif kind == "interrupted":
            self.interrupted = True


_COUNTERS = (
    "device_ps",
    "dma_busy_ps",
    "hbm_bytes",
    "model_flops",
    "hardware_flops",
    "host_transfer_bytes",
    "host_transfer_ps",
    "dispatches",
    "dispatch_ps",
    "launches",
)


def _delta(after: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Modelled time and work between two snapshots of the totals."""
    if before is None:
        before = {name: 0 for name in _COUNTERS} | {"busy_ps": dict.fromkeys(ENGINES, 0), "host_ps": 0, "core_ps": 0}
    delta = {name: after[name] - before[name] for name in _COUNTERS}
    delta["busy_ps"] = {engine: after["busy_ps"][engine] - before["busy_ps"][engine] for engine in ENGINES}
    delta["modelled_ps"] = max(after["host_ps"], after["core_ps"]) - max(before["host_ps"], before["core_ps"])
    return delta


def _figures(work: dict[str, Any], host_s: float, peak_flops: float, cores: int) -> dict[str, Any]:
    """The report's figures of one step, or of a whole run."""
    step_s, device_s = work["modelled_ps"] * 1e-12, work["device_ps"] * 1e-12

    def share(flops: float, seconds: float) -> float | None:
        return flops / (seconds * peak_flops) if seconds > 0 and peak_flops else None

    return {
        "host_s": host_s,
        "modelled_us": step_s * 1e6,
        "device_us": device_s * 1e6,
        "host_part_us": max(step_s - device_s, 0.0) * 1e6,
        "dispatch_us": work["dispatch_ps"] * 1e-6,
        "dispatches": work["dispatches"],
        "launches": work["launches"],
        "model_flops": work["model_flops"],
        "hardware_flops": work["hardware_flops"],
        "hbm_bytes": work["hbm_bytes"],
        "host_transfer_bytes": work["host_transfer_bytes"],
        "host_transfer_us": work["host_transfer_ps"] * 1e-6,
        "mfu_device": share(work["model_flops"], device_s),
        "hfu_device": share(work["hardware_flops"], device_s),
        "mfu_step": share(work["model_flops"], step_s),
        "hfu_step": share(work["hardware_flops"], step_s),
        "busy": {e: ps / (work["device_ps"] * cores) if work["device_ps"] else 0.0 for e, ps in work["busy_ps"].items()}
        | {"dma": work["dma_busy_ps"] / (work["device_ps"] * cores) if work["device_ps"] else 0.0},
        "bound": _bound(work, cores),
    }


def _bound(work: dict[str, Any], cores: int) -> dict[str, Any]:
    import opentrn._core as core

    limit, share, sentence = core.bound(
        step_ps=work["modelled_ps"],
        device_ps=work["device_ps"],
        dispatch_ps=work["dispatch_ps"],
        transfer_ps=work["host_transfer_ps"],
        launches=work["launches"],
        cores=cores,
        engine_busy_ps=[work["busy_ps"][engine] for engine in ENGINES],
        dma_busy_ps=work["dma_busy_ps"],
    )
    return {"limit": limit, "share": share, "sentence": sentence}


def summarise(run: Run, chip: dict[str, Any]) -> dict[str, Any]:
    """`chip`: {"name", "title", "lnc", "peak_tflops" (per core), "dispatch_us": [low, value, high], "grades", ...}."""
    cores = chip["lnc"]
    peak = chip["peak_tflops"] * 1e12 * cores
    report: dict[str, Any] = {
        "device": run.device,
        "status": run.status,
        "stopped": (run.end or {}).get("stopped"),
        "wall_s": run.wall_s,
        "losses": {str(step): _finite(value) for step, value in sorted(run.losses.items())},
        "steps": [],
    }
    nan = [step for step, value in sorted(run.losses.items()) if not math.isfinite(value)]
    report["first_bad_loss_step"] = nan[0] if nan else None
    before = None
    for step in run.steps:
        entry: dict[str, Any] = {
            "step": step["step"],
            "host_s": step["host_s"],
            "loss": _finite(run.losses.get(step["step"])),
        }
        if step["totals"]:
            entry |= _figures(_delta(step["totals"], before), step["host_s"], peak, cores)
            before = step["totals"]
        report["steps"].append(entry)
    # The first step holds what happens once: building the model, compiling, allocating. With more steps it is left out.
    typical = report["steps"][1:] if len(report["steps"]) > 1 else report["steps"]
    modelled = sorted((s for s in typical if "modelled_us" in s), key=lambda s: s["modelled_us"])
    host = sorted(s["host_s"] for s in typical)
    report["host_s_per_step"] = host[(len(host) - 1) // 2] if host else None
    # The figures of the median step, so that its parts add up.
    report["step"] = modelled[(len(modelled) - 1) // 2] if modelled else None
    end = run.end or {}
    if end.get("totals"):
        report["whole_run"] = _figures(_delta(end["totals"], None), run.wall_s, peak, cores)
    report["host_rss_mib"] = end.get("host_rss_mib")
    report["memory_peak_bytes"] = end.get("memory_peak_bytes")
    report["cache"] = end.get("cache")
    if report["cache"]:
        made = report["cache"]["compiled"] + report["cache"]["disk_hits"]
        report["cache_hits"] = max(report.get("whole_run", {}).get("launches", 0) - made, 0)
    report["fallbacks"] = end.get("fallbacks")
    report["device_error"] = end.get("device_error")
    report["profile"] = {k: v for k, v in run.profile.items() if k != "kind"} if run.profile else None
    return report


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def compare(report: dict[str, Any], other: dict[str, Any]) -> dict[str, Any] | None:
    """Loss curves side by side; None when there is nothing to compare."""
    mine, theirs = report["losses"], other["losses"]
    rows = []
    for step, a in mine.items():
        b = theirs.get(step)
        if a is not None and b is not None:
            rows.append({"step": int(step), "neuron": a, "cpu": b, "rel_diff": abs(a - b) / max(abs(b), 1e-30)})
    if not rows:
        return None
    worst = max(rows, key=lambda row: row["rel_diff"])
    return {
        "rows": rows,
        "max_rel_diff": worst["rel_diff"],
        "max_rel_diff_step": worst["step"],
        "last_rel_diff": rows[-1]["rel_diff"],
        "host_s_per_step": other["host_s_per_step"],
        "slowdown": report["host_s_per_step"] / other["host_s_per_step"] if other["host_s_per_step"] else None,
    }
