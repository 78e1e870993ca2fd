"""`torch.neuron`: the device module that PyTorch and users of TorchNeuron expect."""

import types
from typing import Any

from torch._utils import _get_device_index as _torch_device_index

import torch
from opentrn import _torch as _bridge
from opentrn.device import memory
from opentrn.device.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from opentrn.device.properties import DeviceProperties
from opentrn.device.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from opentrn.device.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    query,
    record_event,
    set_stream,
    stream,
    wait_event,
    wait_stream,
)

OutOfMemoryError = torch.OutOfMemoryError

__all__ = [
    "DeviceProperties", "Event", "ExternalStream", "OutOfMemoryError", "Stream", "StreamContext", "current_device",
    "current_stream", "default_generators", "default_stream", "device", "device_count", "empty_cache",
    "get_amp_supported_dtype", "get_device_capability", "get_device_name", "get_device_properties",
    "get_dynamo_metrics", "get_rng_state", "get_rng_state_all", "init", "initial_seed", "is_available",
    "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated",
    "max_memory_reserved", "mem_get_info", "memory", "memory_allocated", "memory_reserved", "memory_stats",
    "memory_summary", "query", "record_event", "reset_accumulated_memory_stats", "reset_dynamo_metrics",
    "reset_max_memory_allocated", "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_rng_state",
    "set_rng_state_all", "set_stream", "stream", "synchronize", "wait_event", "wait_stream",
]  # fmt: skip


# ---- devices ------------------------------------------------------------------------------------
def is_initialized() -> bool:
    return _bridge.initialized() and not _bridge.in_forked_child()


def init() -> None:
    """Creates the current device; otherwise its first use does."""
    _bridge.init(_bridge.current_device())


_lazy_init = init


def is_available() -> bool:
    return _bridge.device_count() > 0


def device_count() -> int:
    return _bridge.device_count()


def current_device() -> int:
    return _bridge.current_device()


def _get_device_index(device: Any, optional: bool = True, allow_cpu: bool = False) -> int:
    """Index of a device given as index, string, torch.device or None (the current one); -1 for CPU if allowed."""
    if isinstance(device, bool):
        raise ValueError(f"Invalid device specification: {device!r}")
    if device is None or isinstance(device, (int, str, torch.device)):
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device):
            if allow_cpu and device.type == "cpu":
                return -1
            if device.type != "neuron":
                raise ValueError(f"Expected neuron device, got {device.type}")
        return _torch_device_index(device, optional, allow_cpu) if not isinstance(device, int) else device
    if hasattr(device, "idx"):
        return device.idx
    raise ValueError(f"Invalid device specification: {device!r}")


def set_device(device: int | str | torch.device | None) -> None:
    """Makes `device` the current device of this thread; None and negative indices change nothing."""
    if device is None:
        return
    index = _get_device_index(device)
    if index < 0:
        return
    if index >= device_count():
        raise ValueError(f"Invalid device id: {index}. Valid range is 0 to {device_count() - 1}")
    _bridge.set_device(index)


class device:  # noqa: N801  a context manager by this name, as torch.cuda.device
    """Context manager: the current device inside the block; None or a negative index changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _bridge.exchange_device(self.idx)

    def __exit__(self, *_: object) -> bool:
        _bridge.exchange_device(self.prev_idx)
        return False


class device_of(device):  # noqa: N801
    """Context manager: the device of a tensor; does nothing for tensors elsewhere."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if getattr(obj, "is_neuron", False) else -1)


def _exchange_device(index: int) -> int:
    return _bridge.exchange_device(index)


_maybe_exchange_device = _exchange_device


class _DeviceGuard:
    def __init__(self, index: int) -> None:
        self.idx = index
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _bridge.exchange_device(self.idx)

    def __exit__(self, *_: object) -> bool:
        _bridge.exchange_device(self.prev_idx)
        return False


def get_device_name(device: Any = None) -> str:
    """The chip's name, `trn2` by default."""
    return get_device_properties(device).name


def get_device_properties(device: Any = None) -> DeviceProperties:
    index = _get_device_index(device, optional=True)
    if index < 0 or index >= device_count():
        raise ValueError(f"Invalid device id: {index}. Valid range is 0 to {device_count() - 1}")
    return DeviceProperties(**_bridge.properties(index))


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Generation of the chip: (2, 0) for trn2."""
    digits = "".join(c for c in get_device_properties(device).name if c.isdigit())
    return (int(digits or 0), 0)


def can_device_access_peer(device: Any, peer: Any) -> bool:
    return _get_device_index(device) == _get_device_index(peer)


def synchronize(device: Any = None) -> None:
    """Waits for all work of the device; raises errors of earlier asynchronous work."""
    _bridge.synchronize(_get_device_index(device, optional=True))


# ---- automatic mixed precision, compile, fork ---------------------------------------------------
def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float32, torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def is_fp16_supported() -> bool:
    return True


def get_dynamo_metrics() -> list:
    """Compilation metrics of torch.compile, one entry per graph."""
    return []


def reset_dynamo_metrics() -> None:
    pass


def _is_in_bad_fork() -> bool:
    return _bridge.in_forked_child()


def _sleep(cycles: int) -> None:
    """Accepted for compatibility; does nothing."""


def _get_generator(device: torch.device) -> torch.Generator:
    return _bridge.default_generator(-1 if device.index is None else device.index)


class _Generators:
    """The devices' default generators, as a sequence."""

    def __len__(self) -> int:
        return _bridge.device_count()

    def __getitem__(self, index: int) -> torch.Generator:
        if not 0 <= index < len(self):
            raise IndexError(f"Invalid device id: {index}. Valid range is 0 to {len(self) - 1}")
        return _bridge.default_generator(index)


default_generators = _Generators()
_utils = types.SimpleNamespace(_get_device_index=_get_device_index)


def __getattr__(name: str) -> Any:
    if name == "_initialized":  # activation checkpointing saves the random state only when this is true
        return is_initialized()
    raise AttributeError(f"module 'torch.neuron' has no attribute {name!r}")
