"""Checks that every include and import points where the layer table allows.

A folder under src/ or python/ is a layer; ALLOWED names the layers each one may know. Run by `make lint` and CI.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# base (dtypes, errors, containers) is open to every layer.
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "spec": set(),
    "graph": set(),
    "isa": {"spec"},
    "cost": {"isa", "spec"},
    "exec": {"isa", "spec"},
    "compiler": {"graph", "isa", "cost", "spec"},
    "profile": {"isa", "cost", "spec"},
    "runtime": {"compiler", "cost", "exec", "profile", "graph", "isa", "spec"},
    "aten": {"graph"},
    "python": {"spec", "isa", "graph", "cost", "exec", "compiler", "profile", "runtime", "aten"},
    "torch": {"spec", "isa", "graph", "cost", "exec", "compiler", "profile", "runtime", "aten"},
}
# No torch or Python below the two extension modules.
FOREIGN = re.compile(r'#\s*include\s*[<"](torch|ATen|c10|pybind11|Python|nanobind)[/.]')
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

# The user's side: what each part of python/ may import of this project.
PYTHON_ALLOWED: dict[str, set[str]] = {
    "torch_neuronx": {"opentrn"},
    "examples": set(),  # plain PyTorch: nothing of ours
}


def check_cxx() -> list[str]:
    problems = []
    for path in sorted(ROOT.glob("src/*/**/*")):
        if path.suffix not in {".h", ".cc", ".cpp", ".inc"}:
            continue
        layer = path.relative_to(ROOT / "src").parts[0]
        where = path.relative_to(ROOT)
        if layer not in ALLOWED:
            problems.append(f"{where}: the folder {layer} is not in the layer table (tools/check_layers.py)")
            continue
        text = path.read_text(errors="replace")
        for include in INCLUDE.findall(text):
            target = include.split("/")[0]
            if "/" not in include or target not in ALLOWED:
                continue
            if target not in ALLOWED[layer] | {layer, "base"}:
                allowed = ", ".join(sorted(ALLOWED[layer] | {"base"})) or "nothing"
                problems.append(f'{where}: includes "{include}", but {layer} may only know {allowed}')
        if layer not in {"python", "torch"} and FOREIGN.search(text):
            problems.append(f"{where}: the core knows nothing of PyTorch or Python")
    return problems


def imports(path: pathlib.Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def check_python() -> list[str]:
    problems = []
    ours = {"opentrn", "torch_neuronx"}
    for folder, allowed in PYTHON_ALLOWED.items():
        base = ROOT / folder if folder == "examples" else ROOT / "python" / folder
        for path in sorted(base.rglob("*.py")):
            for name in sorted((imports(path) & ours) - allowed - {folder}):
                problems.append(f"{path.relative_to(ROOT)}: imports {name}")
    return problems


def main() -> int:
    problems = check_cxx() + check_python()
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"layers: {len(problems)} problem(s)" if problems else "layers: as the table allows")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
