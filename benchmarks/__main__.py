"""python -m benchmarks [--only GLOB] [--out FILE]: runs, prints a table, writes the rows as JSON after each one."""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import os
import pathlib
import pkgutil
import sys
import time
import traceback

# Both sides of every ratio run on the same two threads; set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OPENTRN_NUM_THREADS", "2")

import benchmarks
from benchmarks import REGISTERED, Row


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def save(path: pathlib.Path, rows: dict[str, Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = [
        {"name": r.name, "value": r.value, "unit": r.unit, "reach": r.reach, "ok": r.ok}
        | ({"note": r.note} if r.note else {})
        for r in rows.values()
    ]
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(data, indent=1) + "\n")
    os.replace(temporary, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*", help="names to run, as a glob: 'eager.*'")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/bench.json"))
    args = parser.parse_args()
    for module in sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__)):
        if module != "__main__":
            importlib.import_module(f"benchmarks.{module}")
    chosen = [b for b in REGISTERED if b.selected(args.only)]
    if not chosen:
        print(f"no benchmark is called {args.only}; there are {', '.join(p for b in REGISTERED for p in b.patterns)}")
        return 2
    rows: dict[str, Row] = {}
    if args.only != "*" and args.out.exists():  # a selection replaces its own rows and keeps the others
        rows = {r["name"]: Row(**r) for r in json.loads(args.out.read_text())}
    print(f"{'name':<44} {'value':>12} {'unit':<10} {'reach':<16} ok")
    missed = failed = 0
    for benchmark in chosen:
        started = time.perf_counter()
        try:
            for row in benchmark.function():
                if not fnmatch.fnmatch(row.name, args.only):
                    continue
                rows.pop(row.name, None)
                rows[row.name] = row
                save(args.out, rows)
                mark = {True: "yes", False: "NO", None: ""}[row.ok]
                missed += row.ok is False
                print(
                    f"{row.name:<44} {number(row.value):>12} {row.unit:<10} {row.reach:<16} {mark:<4}{row.note}",
                    flush=True,
                )
        except KeyboardInterrupt:
            print("interrupted; the rows so far are kept", file=sys.stderr)
            return 130
        except Exception:
            failed += 1
            print(f"{benchmark.patterns[0]}: failed after {time.perf_counter() - started:.1f} s", file=sys.stderr)
            traceback.print_exc()
    print(f"\n{args.out}: {len(rows)} rows, {missed} not reached, {failed} benchmark(s) failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
