"""Places in PyTorch 2.13 that know their devices by name and have no registration for others."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch


def install() -> None:
    _fix_dlpack_device()
    _share_through_cpu()
    _when_imported("torch.nn.attention.flex_attention", _allow_flex_attention)


# ---- FlexAttention accepts a fixed set of device types ------------------------------------------
def _allow_flex_attention(module: ModuleType) -> None:
    original = getattr(module, "_validate_device", None)
    if original is None:
        return

    def _validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "neuron":
            original(query, key, value)

    module._validate_device = _validate_device


# ---- Tensor.__dlpack_device__ compares with "privateuse1", the name before the renaming ----------
def _fix_dlpack_device() -> None:
    original = torch.Tensor.__dlpack_device__

    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:  # noqa: N807
        if self.device.type == "neuron":
            from torch.utils.dlpack import DLDeviceType

            return (DLDeviceType.kDLExtDev, self.device.index or 0)
        return original(self)

    torch.Tensor.__dlpack_device__ = __dlpack_device__


# ---- torch.multiprocessing shares device memory on CUDA only: others travel through CPU memory ---
def _rebuild(cls: type, data: torch.Tensor, device: str, requires_grad: bool) -> torch.Tensor:
    moved = data.to(device)
    if issubclass(cls, torch.nn.Parameter):
        return torch.nn.Parameter(moved, requires_grad)
    return moved.requires_grad_(requires_grad)


def _share_through_cpu() -> None:
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    def reduce_tensor(tensor: torch.Tensor) -> Any:
        if tensor.device.type != "neuron":
            return reductions.reduce_tensor(tensor)
        if tensor.requires_grad and not tensor.is_leaf:
            raise RuntimeError(
                "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
                "crossing process boundaries. If you just want to transfer the data, call detach() on the tensor "
                "before serializing (e.g., putting it on the queue)."
            )
        return _rebuild, (type(tensor), tensor.detach().cpu(), str(tensor.device), tensor.requires_grad)

    for kind in (*torch._tensor_classes, torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, reduce_tensor)


# ---- patching a module that may not have been imported yet ---------------------------------------
class _PatchingLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, patch: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._patch(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _PatchingFinder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, patch: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._patch = patch
        self._busy = False

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name or self._busy:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._busy = False
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader, self._patch)
            sys.meta_path.remove(self)
        return spec


def _when_imported(name: str, patch: Callable[[ModuleType], None]) -> None:
    """Calls `patch(module)` now, or when the module is imported."""
    if name in sys.modules:
        patch(sys.modules[name])
    else:
        sys.meta_path.insert(0, _PatchingFinder(name, patch))
