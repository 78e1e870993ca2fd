"""Checks the documentation: links lead somewhere, and files and folders named in backticks exist. Run by `make docs`."""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PATH = re.compile(r"`((?:src|python|tests|tools|chips|docs|examples|benchmarks|cmake)/[\w./*{},-]*)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def expand(path: str) -> list[str]:
    match = re.search(r"\{([^}]*)\}", path)
    if not match:
        return [path]
    return [p for part in match.group(1).split(",") for p in expand(path[: match.start()] + part + path[match.end() :])]


def main() -> int:
    problems = []
    for page in PAGES:
        text = page.read_text()
        for link in LINK.findall(text):
            if "://" not in link and not (page.parent / link).exists():
                problems.append(f"{page.relative_to(ROOT)}: the link {link} leads nowhere")
        for named in PATH.findall(text):
            for path in expand(named):
                if not any(ROOT.glob(path.rstrip("/"))):
                    problems.append(f"{page.relative_to(ROOT)}: {path} does not exist")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"docs: {len(PAGES)} pages, {len(problems)} problem(s)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
