"""Host plans: what making one costs, and whether they compute what the reference interpreter computes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from typing import Any

from . import Row, bench
from .demo import ROOT, SCRIPT

STEPS = 3  # of the demo; all its programs have run by then

DEMO = f"""
import json, runpy, sys
from opentrn import _torch as bridge
sys.argv = [{str(SCRIPT)!r}, "--steps", "{STEPS}"]
runpy.run_path(sys.argv[0], run_name="__main__")
kernels = [bridge.kernel(i) for i in range(bridge.kernel_count())]
print(json.dumps({{"plan_ms": [k["plan_ms"] for k in kernels if k], "cache": bridge.cache_stats()}}))
"""


def _demo(host_plan: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", "import torch" + DEMO],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OPENTRN_HOST_PLAN": host_plan},
    )
    return json.loads(done.stdout.splitlines()[-1])


@bench("plan.ms", "plan.equal")
def plans():
    """The demo with plans, then with plans that are compared with the interpreter at every launch; and what the tests
    have compared, when they have run."""
    times = _demo("on")["plan_ms"]
    yield Row(
        "plan.ms",
        statistics.median(times),
        "ms",
        note=f"median of {len(times)} programs of the demo, worst {max(times):.2f} ms",
    )
    counters = _demo("check")["cache"]
    checked, unequal = counters["plans_checked"], counters["plans_unequal"]
    note = f"{checked} plans of the demo"
    tests = ROOT / "build" / "plan_check.json"
    if tests.exists():
        counters = json.loads(tests.read_text())
        checked += counters["plans_checked"]
        unequal += counters["plans_unequal"]
        note += f", {counters['plans_checked']} of the tests"
    equal = 100 * (checked - unequal) / checked
    yield Row("plan.equal", equal, "%", "100", equal == 100, note)
