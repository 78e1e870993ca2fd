"""opentrn: an open, software Trainium.

PyTorch loads the device `neuron` by itself (entry point `torch.backends`); a script imports nothing from here. What may
be imported: programs and chips (`chip`, `chip_names`, `Program`, `Graph`), and the errors.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "Chip",
    "Graph",
    "InternalError",
    "OutOfMemory",
    "Program",
    "Unsupported",
    "UserError",
    "__version__",
    "chip",
    "chip_names",
]


def __getattr__(name: str) -> Any:
    if name in __all__:  # from the extension module, loaded at first use: `import opentrn` itself costs nothing
        return getattr(importlib.import_module("opentrn._core"), name)
    raise AttributeError(f"module 'opentrn' has no attribute {name!r}")
