"""Streams and events of `torch.neuron`; elapsed times are modelled, not measured."""

from typing import Any

import torch
from opentrn import _torch as _bridge


def _index(device: Any) -> int:
    from opentrn.device import _get_device_index

    return _get_device_index(device, optional=True)


def _torch_device(device: Any) -> torch.device:
    return torch.device("neuron", _index(device))


class Stream(torch.Stream):
    """A queue of work of one device."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> "Stream":
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, device=_torch_device(device), priority=priority)

    def __repr__(self) -> str:
        return f"<torch.neuron.Stream device={self.device} stream_id={self.stream_id:#x}>"


ExternalStream = Stream


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "neuron"


class Event(torch.Event, metaclass=_EventType):
    """A point in a stream's work. Times between events are modelled.

    Instances are plain `torch.Event`s: `torch.Event.elapsed_time` accepts no subclass.
    """

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, device: Any = None
    ) -> torch.Event:
        return torch.Event(_torch_device(device), enable_timing=enable_timing, blocking=blocking)


def _wrap(index: int, stream_id: int) -> Stream:
    device_type = torch._C._autograd.DeviceType.PrivateUse1.value
    return Stream(stream_id=stream_id, device_index=index, device_type=device_type)


def current_stream(device: Any = None) -> Stream:
    index = _index(device)
    return _wrap(index, _bridge.current_stream(index))


def default_stream(device: Any = None) -> Stream:
    return _wrap(_index(device), 0)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` the current stream of its device, and its device the current one."""
    if stream is None:
        return
    _bridge.set_device(stream.device_index)
    _bridge.exchange_stream(stream.device_index, stream.stream_id)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    set_stream(_wrap(device_index, stream_id))


class StreamContext:
    """Context manager: the current stream (and its device) inside the block; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: tuple[int, int, int] | None = None

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            index = self.stream.device_index
            device = _bridge.exchange_device(index)
            self._previous = (device, index, _bridge.exchange_stream(index, self.stream.stream_id))
        return self.stream

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            device, index, stream = self._previous
            _bridge.exchange_stream(index, stream)
            _bridge.exchange_device(device)


def stream(stream: torch.Stream | None) -> StreamContext:
    return StreamContext(stream)


# Shorthands on the current stream.
def wait_stream(stream: torch.Stream) -> None:
    current_stream().wait_stream(stream)


def wait_event(event: torch.Event) -> None:
    current_stream().wait_event(event)


def record_event(event: torch.Event | None = None) -> torch.Event:
    if event is None:
        event = Event()
    event.record(current_stream())
    return event


def query() -> bool:
    return current_stream().query()
