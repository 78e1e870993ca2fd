"""Memory of `torch.neuron`: statistics in TorchNeuron's nested and in CUDA's flat key style."""

from typing import Any

from opentrn import _torch as _bridge

_COUNTERS = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "allocation", "segment", "active")


def _index(device: Any) -> int:
    from opentrn.device import _get_device_index

    return _get_device_index(device, optional=True)


def memory_stats(device: Any = None) -> dict[str, Any]:
    """`stats["allocated_bytes"]["current"]` and `stats["allocated_bytes.all.current"]` both work."""
    raw = _bridge.memory_stats(_index(device))
    stats: dict[str, Any] = {}
    for name in _COUNTERS:
        counter = raw[name]
        stats[name] = counter
        for pool in ("all",):
            for key, value in counter.items():
                stats[f"{name}.{pool}.{key}"] = value
    stats["num_alloc_retries"] = raw["num_alloc_retries"]
    stats["num_ooms"] = raw["num_ooms"]
    stats["num_tensor_frees"] = raw["allocation"]["freed"]
    stats["allocation_requests"] = raw["allocation"]["allocated"]
    return stats


def memory_allocated(device: Any = None) -> int:
    return _bridge.memory_stats(_index(device))["allocated_bytes"]["current"]


def max_memory_allocated(device: Any = None) -> int:
    return _bridge.memory_stats(_index(device))["allocated_bytes"]["peak"]


def memory_reserved(device: Any = None) -> int:
    return _bridge.memory_stats(_index(device))["reserved_bytes"]["current"]


def max_memory_reserved(device: Any = None) -> int:
    return _bridge.memory_stats(_index(device))["reserved_bytes"]["peak"]


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes."""
    raw = _bridge.memory_stats(_index(device))
    return raw["capacity_bytes"] - raw["allocated_bytes"]["current"], raw["capacity_bytes"]


def reset_peak_memory_stats(device: Any = None) -> None:
    _bridge.reset_peak_memory_stats(_index(device))


def reset_max_memory_allocated(device: Any = None) -> None:
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    _bridge.reset_accumulated_memory_stats(_index(device))


def empty_cache() -> None:
    """Gives unused pages back to the system."""
    _bridge.empty_cache()


def _size(n: int) -> str:
    value = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{n} B"


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of the statistics; unless abbreviated, with the largest live tensors and where they were made."""
    index = _index(device)
    raw = _bridge.memory_stats(index)
    lines = [
        f"neuron:{index}, {_size(raw['capacity_bytes'])} of HBM, {raw['num_ooms']} out-of-memory errors",
        f"{'':18}{'current':>14}{'peak':>14}{'allocated':>14}{'freed':>14}",
    ]
    for name in _COUNTERS:
        counter = raw[name]
        show = _size if name.endswith("bytes") else str
        row = "".join(f"{show(counter[key]):>14}" for key in ("current", "peak", "allocated", "freed"))
        lines.append(f"{name:18}{row}")
    if not abbreviated:
        lines.append("largest tensors:")
        lines += [f"  {_size(n):>12}  {_bridge.describe_origin(o)}" for _, n, o in _bridge.memory_holders(index, 10)]
    return "\n".join(lines)
