"""Watches a script's steps: an optimizer's `step()` ends one, `backward()` is called on its loss."""

from __future__ import annotations

import functools
import struct
from typing import Any

from .channel import Sender
from .virtual_clock import real_perf_counter

_FORMATS = {"torch.float32": "f", "torch.float64": "d", "torch.float16": "e"}


def _decode(data: bytes, dtype: str) -> float | None:
    if dtype == "torch.bfloat16":
        return struct.unpack("<f", b"\0\0" + data)[0]
    return struct.unpack("<" + _FORMATS[dtype], data)[0] if dtype in _FORMATS else None


class _Loss:
    """A loss whose value arrives when the device has computed it; reading it neither waits nor costs modelled time."""

    def __init__(self, tensor, core):
        self.value: float | None = None
        self._tensor = tensor.detach()
        self._dtype = str(tensor.dtype)
        self._probe = None
        if tensor.device.type == "cpu":
            self.value = float(self._tensor)
        elif (
            core is not None
            and tensor.device.type == "neuron"
            and (self._dtype in _FORMATS or "bfloat16" in self._dtype)
        ):
            self._probe = core.probe(self._tensor.data_ptr(), self._tensor.element_size())

    @property
    def pending(self) -> bool:
        if self._probe is not None and self._probe.ready:
            self.value = _decode(self._probe.bytes, self._dtype)
            self._probe = self._tensor = None
        return self._probe is not None


class StepWatch:
    """Installed before the script runs; `core` is opentrn._core, or None on the CPU."""

    def __init__(self, sender: Sender, core, on_step=None):
        self.sender = sender
        self.core = core
        self.steps = 0
        self.on_step = on_step  # called with (steps, last loss) for the progress line
        self.last_loss: float | None = None
        self._losses: list[_Loss] = []  # of the current step
        self._waiting: list[tuple[int, list[_Loss]]] = []  # of steps whose losses have not arrived
        self._started = real_perf_counter()

    def install(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        import torch

        backward = torch.autograd.backward

        @functools.wraps(backward)
        def watched(tensors, *args: Any, **kwargs: Any):
            self._saw_backward(tensors)
            return backward(tensors, *args, **kwargs)

        def hook(optimizer, args, kwargs) -> None:
            self.end_step()

        # Dynamo must not trace what only watches.
        watched._torchdynamo_disable = True
        hook._torchdynamo_disable = True
        torch.autograd.backward = watched
        register_optimizer_step_post_hook(hook)

    def _saw_backward(self, tensors) -> None:
        tensor = tensors if hasattr(tensors, "numel") else (tensors[0] if tensors else None)
        try:
            if tensor is not None and tensor.numel() == 1:
                self._losses.append(_Loss(tensor, self.core))
        except Exception:
            pass  # a tensor without storage (fake, functional): it has no value to show

    def end_step(self) -> None:
        now = real_perf_counter()
        self.steps += 1
        self.sender.send("step", step=self.steps, host_s=now - self._started, totals=totals(self.core))
        self._started = now
        if self._losses:
            self._waiting.append((self.steps, self._losses))
            self._losses = []
        self.flush_losses()
        if self.core is not None and _devices(self.core):
            self.core.mark_step()
        if self.on_step:
            self.on_step(self.steps, self.last_loss)

    def flush_losses(self) -> None:
        """Sends the losses that have arrived, in order."""
        while self._waiting:
            step, losses = self._waiting[0]
            if any([loss.pending for loss in losses]):
                return
            values = [loss.value for loss in losses if loss.value is not None]
            if values:
                self.last_loss = sum(values) / len(values)
                self.sender.send("loss", step=step, value=self.last_loss)
            self._waiting.pop(0)


def _devices(core) -> list[int]:
    return [d for d in range(core.device_count()) if core.device_exists(d)]


def totals(core) -> dict[str, Any] | None:
    """Modelled totals over the devices in use: sums, but the furthest hand of each clock. None without a device."""
    if core is None:
        return None
    total: dict[str, Any] | None = None
    for device in _devices(core):
        one = core.totals(device)
        if total is None:
            total = one
            continue
        for name, value in one.items():
            if name == "busy_ps":
                total[name] = {engine: ps + total[name][engine] for engine, ps in value.items()}
            elif name in ("host_ps", "core_ps"):
                total[name] = max(total[name], value)
            else:
                total[name] += value
    return total


def memory_peak_bytes(core) -> int | None:
    devices = _devices(core) if core is not None else []
    return max((core.memory_stats(d)["allocated_bytes"]["peak"] for d in devices), default=None)
