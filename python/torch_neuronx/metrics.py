"""Counters of the program cache and of operators under TorchNeuron's names."""

from typing import Any

from opentrn import _torch as _bridge

_METRICS = {"compile_ms": "compiled", "plan_ms": "plans"}  # and the counter of their samples
_enabled = True


def is_enabled() -> bool:
    return _enabled


def set_enabled(enabled: bool) -> None:
    global _enabled
    _enabled = enabled


def _counters() -> dict[str, int]:
    stats = _bridge.cache_stats()
    counters = {f"cache.{name}": int(value) for name, value in stats.items() if name not in _METRICS}
    counters |= {f"op.{name}": calls for name, calls, _ in _bridge.operator_uses()}
    counters |= {f"fallback.{entry['op']}": entry["count"] for entry in _bridge.fallbacks()}
    return counters


def get_counter_names() -> list[str]:
    return sorted(_counters())


def get_counter_value(name: str) -> int | None:
    return _counters().get(name)


def get_metric_names() -> list[str]:
    return list(_METRICS)


def get_metric_data(name: str) -> tuple[int, float] | None:
    """Number of samples and their sum."""
    if name not in _METRICS:
        return None
    stats = _bridge.cache_stats()
    return int(stats[_METRICS[name]]), float(stats[name])


def get_compilation_metrics() -> dict[str, Any]:
    return dict(_bridge.cache_stats())


def report() -> str:
    return "\n".join(f"{name}: {value}" for name, value in sorted(_counters().items()))


def report_filtered(names: list[str]) -> str:
    counters = _counters()
    return "\n".join(f"{name}: {counters[name]}" for name in names if name in counters)


def clear_counters() -> None:
    _bridge.clear_operator_uses()
    _bridge.clear_fallbacks()


def clear_metrics() -> None:
    """The cache's times are kept for the report of the run."""


def clear_all() -> None:
    clear_counters()
