"""opentrn: an open, software Trainium.

PyTorch loads the device `neuron` by itself (entry point `torch.backends`); a script imports nothing from here. What may
be imported: programs and chips (`chip`, `chip_names`, `Program`, `Graph`), and the errors.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

# Names that come from the extension module, loaded at first use: `import opentrn` itself costs nothing.
_CORE = ("chip", "chip_names", "Chip", "Program", "Graph", "UserError", "InternalError", "Unsupported", "OutOfMemory")

__all__ = ["__version__", *_CORE]


def __getattr__(name: str) -> Any:
    if name in _CORE:
        return getattr(importlib.import_module("opentrn._core"), name)
    raise AttributeError(f"module 'opentrn' has no attribute {name!r}")
