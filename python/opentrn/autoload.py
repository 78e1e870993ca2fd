"""Entry point of the group `torch.backends`: `import torch` calls `_autoload`, which registers the device `neuron`.

It stays away where it would hijack a machine: beside AWS's own package or with a real Neuron device, unless OPENTRN=1.
"""

import contextlib
import glob
import importlib.metadata
import json
import os
import pathlib
import sys


def refusal() -> str | None:
    """Why the device must not be registered here, in one line; None when it may."""
    if os.environ.get("OPENTRN_AUTOLOAD") == "0":
        return "OPENTRN_AUTOLOAD=0"
    if os.environ.get("OPENTRN") == "1":
        return None
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version("torch-neuronx")
        return (
            f"AWS's package torch-neuronx {version} is installed; set OPENTRN=1 to use opentrn's software model instead"
        )
    if glob.glob("/dev/neuron*"):
        return "this machine has a Neuron device; set OPENTRN=1 to use opentrn's software model instead"
    return None


def mismatch() -> str | None:
    """Whether the bridge was built for another torch than the one that is running, in one line."""
    import torch

    try:
        built = json.loads((pathlib.Path(__file__).parent / "_torch_build.json").read_text())["torch"]
    except (OSError, ValueError, KeyError):
        return "opentrn was installed without its PyTorch bridge; reinstall with `pip install . --no-build-isolation`"
    if built != torch.__version__:
        return (
            f"opentrn's bridge was built for torch {built} but torch {torch.__version__} is running; "
            "rebuild it (`make` in the source tree, or `pip install --force-reinstall --no-build-isolation .`)"
        )
    return None


def _autoload() -> None:
    reason = refusal()
    if reason is None:
        reason = mismatch()
    if reason is None:
        from opentrn.device import register

        register.register()
    elif reason != "OPENTRN_AUTOLOAD=0":
        print(f"opentrn: the device 'neuron' is not available: {reason}", file=sys.stderr)
