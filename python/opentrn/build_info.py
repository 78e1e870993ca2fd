"""What this build was made for: build_info.json, which CMake writes beside the extension modules."""

from __future__ import annotations

import importlib.util
import json
import pathlib
from typing import Any


def build_info() -> dict[str, Any]:
    """{"torch", "python", "compiler", "build_type"}; empty when the package was not built."""
    spec = importlib.util.find_spec("opentrn._core")
    if spec is None or spec.origin is None:
        return {}
    path = pathlib.Path(spec.origin).parent / "build_info.json"
    return json.loads(path.read_text()) if path.exists() else {}
