"""Registers the device `neuron` with PyTorch; the order matters and is done once per process."""

import os
import sys

import torch

_done = False


def registered() -> bool:
    return _done


def register() -> None:
    """Loads the bridge, renames PrivateUse1 to `neuron` and installs `torch.neuron`."""
    global _done
    if _done:
        return
    _done = True
    from opentrn import _torch as bridge

    # Frames in these folders are not the user's lines.
    folders = [os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    for folder in folders:
        bridge.add_library_folder(folder + os.sep)

    torch.utils.rename_privateuse1_backend("neuron")
    from opentrn import device
    from opentrn.device import distributed, environment, memory, patches

    torch._register_device_module("neuron", device)
    sys.modules["torch.neuron.memory"] = memory
    torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=True)
    torch.set_autocast_dtype("neuron", torch.bfloat16)
    patches.install()
    distributed.register_backend()
    environment.warn_about_unknown()
