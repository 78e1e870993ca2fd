"""`--compare cpu`: makes a script that asks for `neuron` run on the CPU, so that the two can be set side by side.

Nothing of the device is loaded. `torch.device("neuron")` gives the CPU device, a device passed as a string is mapped
where PyTorch functions receive it, and `torch.neuron`, `torch_neuronx` and `torch.accelerator` answer for one CPU device.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
from typing import Any


def _is_neuron(value: Any) -> bool:
    return isinstance(value, str) and (value == "neuron" or value.startswith("neuron:"))


def _mapped(value: Any) -> Any:
    return "cpu" if _is_neuron(value) else value


def _mapping(function):
    """The same function with every argument that names the device replaced."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any):
        return function(*map(_mapped, args), **{name: _mapped(value) for name, value in kwargs.items()})

    return call


class _Nothing:
    """Streams and events of a device that has none: every method does nothing, `query` is true, times are 0."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.stream_id, self.device_index = 0, 0

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def _device_module(torch) -> types.ModuleType:
    module = types.ModuleType("torch.neuron")
    properties = types.SimpleNamespace(name="cpu", total_memory=0, major=0, minor=0)
    counters = {"allocated_bytes": {}, "reserved_bytes": {}, "active_bytes": {}}

    def zero(*args: Any, **kwargs: Any) -> int:
        return 0

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    names = dict(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 1,
        current_device=zero,
        init=nothing,
        set_device=nothing,
        synchronize=nothing,
        empty_cache=nothing,
        device=lambda *_: contextlib.nullcontext(),
        get_device_name=lambda *_: "cpu",
        get_device_properties=lambda *_: properties,
        Stream=_Nothing,
        Event=_Nothing,
        stream=lambda *_: contextlib.nullcontext(),
        current_stream=_Nothing,
        default_stream=_Nothing,
        set_stream=nothing,
        manual_seed=torch.manual_seed,
        manual_seed_all=torch.manual_seed,
        seed=torch.seed,
        seed_all=torch.seed,
        initial_seed=torch.initial_seed,
        get_rng_state=lambda *_: torch.get_rng_state(),
        set_rng_state=lambda state, *_: torch.set_rng_state(state),
        get_rng_state_all=lambda: [torch.get_rng_state()],
        set_rng_state_all=lambda states: torch.set_rng_state(states[0]),
        memory_stats=lambda *_: counters,
        memory_allocated=zero,
        max_memory_allocated=zero,
        memory_reserved=zero,
        max_memory_reserved=zero,
        reset_peak_memory_stats=nothing,
        reset_accumulated_memory_stats=nothing,
        memory_summary=lambda *_, **__: "",
        get_amp_supported_dtype=lambda: [torch.float32, torch.float16, torch.bfloat16],
        is_bf16_supported=lambda: True,
        get_fallback_ops=lambda: [],
        get_executed_ops=lambda: [],
        clear_op_tracking=nothing,
        get_dynamo_metrics=lambda: [],
        reset_dynamo_metrics=nothing,
        OutOfMemoryError=RuntimeError,
        is_neuron_runtime_initialized=lambda: True,
    )
    for name, value in names.items():
        setattr(module, name, value)
    return module


def install() -> None:
    # Autoloading off: neither this package nor another one may register the device.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    from torch.overrides import TorchFunctionMode

    import torch

    real_device = torch.device

    class _DeviceType(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, real_device)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, real_device)

    class device(metaclass=_DeviceType):  # noqa: N801  stands in for torch.device
        def __new__(cls, *args: Any, **kwargs: Any):
            if _is_neuron(args[0] if args else kwargs.get("type", kwargs.get("device"))):
                return real_device("cpu")
            return real_device(*args, **kwargs)

    torch.device = device

    class ToCpu(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*map(_mapped, args), **{k: _mapped(v) for k, v in (kwargs or {}).items()})

    ToCpu().__enter__()

    module_to = torch.nn.Module.to
    torch.nn.Module.to = _mapping(module_to)
    torch.Tensor.neuron = lambda self, *_, **__: self
    torch.Tensor.is_neuron = property(lambda self: False)
    torch.nn.Module.neuron = lambda self, *_: self
    torch.load = _mapping(torch.load)
    torch.set_default_device = _mapping(torch.set_default_device)
    torch.compile = _compile(torch.compile)
    for cls in (torch.autocast, torch.amp.GradScaler):
        cls.__init__ = _mapping(cls.__init__)
    generator = torch.Generator

    class _GeneratorType(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, generator)

    class Generator(metaclass=_GeneratorType):
        def __new__(cls, device: Any = "cpu"):
            return generator(device=_mapped(device))

    torch.Generator = Generator

    torch.neuron = _device_module(torch)
    package = _device_module(torch)
    package.__name__ = "torch_neuronx"
    package.neuron = torch.neuron
    sys.modules["torch.neuron"] = torch.neuron
    sys.modules["torch_neuronx"] = package

    accelerator = torch.accelerator
    accelerator.is_available = lambda: True
    accelerator.device_count = lambda: 1
    accelerator.current_accelerator = lambda *_, **__: real_device("cpu")
    for name in ("synchronize", "set_device_index", "set_device_idx", "empty_cache", "reset_peak_memory_stats"):
        setattr(accelerator, name, lambda *_, **__: None)
    for name in ("current_device_index", "current_device_idx", "memory_allocated", "max_memory_allocated"):
        setattr(accelerator, name, lambda *_, **__: 0)

    if torch.distributed.is_available():
        init = torch.distributed.init_process_group

        @functools.wraps(init)
        def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any):
            return init("gloo" if backend is None or "neuron" in str(backend) else backend, *args, **kwargs)

        torch.distributed.init_process_group = init_process_group


def _compile(compile):
    """torch.compile(backend="neuron") runs the graph eagerly: the comparison is about values."""

    @functools.wraps(compile)
    def call(*args: Any, **kwargs: Any):
        if kwargs.get("backend") == "neuron":
            kwargs = {**kwargs, "backend": "eager"}
            kwargs.pop("options", None)
        return compile(*args, **kwargs)

    return call
