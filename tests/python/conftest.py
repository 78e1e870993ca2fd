"""All tests compare host plans with the reference interpreter; how many plans agreed is written to build/plan_check.json."""

import json
import os
import pathlib
import sys

import pytest

os.environ.setdefault("OPENTRN_HOST_PLAN", "check")

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "build" / "plan_check.json"
COUNTERS = ("plans", "plans_checked", "plans_unequal")
_sums = dict.fromkeys(COUNTERS, 0)


def _add(counters) -> None:
    for name in COUNTERS:
        _sums[name] += counters[name]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):  # in xdist's controller, when a worker ends
    if counters := getattr(node, "workeroutput", {}).get("plan_check"):
        _add(counters)


def pytest_sessionfinish(session):
    bridge = sys.modules.get("opentrn._torch")
    counters = bridge.cache_stats() if bridge else dict.fromkeys(COUNTERS, 0)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["plan_check"] = {name: counters[name] for name in COUNTERS}
        return
    _add(counters)
    if _sums["plans_checked"] and RESULTS.parent.is_dir():
        RESULTS.write_text(json.dumps(_sums) + "\n")
