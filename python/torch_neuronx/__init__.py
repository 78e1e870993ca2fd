"""The names that scripts written for AWS's TorchNeuron import; everything is opentrn's own software model."""

from opentrn import autoload as _autoload_module

import torch

if not hasattr(torch, "neuron"):
    # Autoloading was off (TORCH_DEVICE_BACKEND_AUTOLOAD=0): the import of this module asks for the device.
    _reason = _autoload_module.refusal()
    if _reason in (None, "OPENTRN_AUTOLOAD=0"):
        _reason = _autoload_module.mismatch()
    if _reason is not None:
        raise ImportError(f"opentrn: the device 'neuron' is not available: {_reason}")
    from opentrn.device import register as _register

    _register.register()

from opentrn import _torch as _bridge
from opentrn import device as neuron
from opentrn.device import (
    Event,
    Stream,
    StreamContext,
    current_device,
    current_stream,
    default_stream,
    device,
    device_count,
    empty_cache,
    get_device_properties,
    get_dynamo_metrics,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_dynamo_metrics,
    reset_peak_memory_stats,
    set_device,
    set_stream,
    stream,
    synchronize,
)

from . import distributed, metrics, python_ops, testing
from .kernels import nki_op, wrap_nki

__version__ = "2.13.3.0+opentrn"


def is_neuron_runtime_initialized() -> bool:
    return neuron.is_initialized()


def get_fallback_ops() -> list[str]:
    """Operators that ran on the CPU since the start or the last `clear_op_tracking`."""
    return [entry["op"] for entry in _bridge.fallbacks()]


def get_fallback_report() -> list[dict]:
    """The same with reason, count and the calling lines: `{"op", "reason", "count", "lines": [(line, count)]}`."""
    return _bridge.fallbacks()


def get_executed_ops() -> list[str]:
    """Operators that ran as programs on the device."""
    return [name for name, _, _ in _bridge.operator_uses()]


def clear_op_tracking() -> None:
    _bridge.clear_fallbacks()
    _bridge.clear_operator_uses()


__all__ = [
    "Event", "Stream", "StreamContext", "clear_op_tracking", "current_device", "current_stream", "default_stream",
    "device", "device_count", "distributed", "empty_cache", "get_device_properties", "get_dynamo_metrics",
    "get_executed_ops", "get_fallback_ops", "get_fallback_report", "is_neuron_runtime_initialized",
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
    "memory_summary", "metrics", "neuron", "nki_op", "python_ops", "reset_accumulated_memory_stats",
    "reset_dynamo_metrics", "reset_peak_memory_stats", "set_device", "set_stream", "stream", "synchronize", "testing",
    "wrap_nki",
]  # fmt: skip
