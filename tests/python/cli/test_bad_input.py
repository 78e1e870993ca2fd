"""Bad input: one clear line on stderr, exit status 2."""

import json
import pathlib
import shutil

import pytest
from command import ROOT

SCALED_ADD = str(ROOT / "tests" / "text" / "scaled_add.trn")
SCRIPT = str(ROOT / "examples" / "train_qwen3.py")

CASES = {
    "unknown command": (["fly"], "fly"),
    "unknown option": (["run", "--fast", SCRIPT], "--fast"),
    "no script": (["run"], "nothing to run"),
    "missing script": (["run", "missing.py"], "there is no script missing.py"),
    "script is a folder": (["run", str(ROOT / "examples")], "folder without __main__.py"),
    "unknown chip": (["run", "--chip", "trn9", SCRIPT], "unknown chip 'trn9': this version models trn1, trn2, trn3"),
    "unknown chip of chips": (["chips", "trn9"], "unknown chip"),
    "impossible LNC": (["run", "--chip", "trn2", "--lnc", "3", SCRIPT], "allowed are 1, 2"),
    "impossible LNC of trn1": (["run", "--chip", "trn1", "--lnc", "2", SCRIPT], "allowed are 1"),
    "comparison with what": (["run", "--compare", "cuda", SCRIPT], "allowed is cpu"),
    "unknown mode": (["run", "--mode", "guess", SCRIPT], "simulate or predict"),
    "unknown clock": (["run", "--clock", "sun", SCRIPT], "host or modelled"),
    "unknown profile": (["run", "--profile", "some", SCRIPT], "last or all or off"),
    "several ranks": (["run", "--nproc-per-node", "4", SCRIPT], "this version runs one rank"),
    "several nodes": (["run", "--nnodes=2", SCRIPT], "this version runs one rank"),
    "ranks that are no number": (["run", "--nproc_per_node", "many", SCRIPT], "not a number of processes"),
    "output nowhere": (["run", "--out", "/proc/opentrn", SCRIPT], "cannot be written"),
    "missing program": (["exec", "missing.trn"], "there is no program missing.trn"),
    "program is a folder": (["exec", "/"], "folder"),
    "not a program": (["exec", SCRIPT], "line 1"),
    "input without a value": (["exec", SCALED_ADD, "-i", "a=rand"], "input b of scaled_add has no value"),
    "unknown input": (["exec", SCALED_ADD, "-i", "z=rand"], "scaled_add has no such name; it has a, b"),
    "input of the wrong size": (["exec", SCALED_ADD, "-i", "a=rand:5"], "gives 20 bytes"),
    "input of what": (["exec", SCALED_ADD, "-i", "a=noise"], "unknown value 'noise'"),
    "input without =": (["exec", SCALED_ADD, "-i", "a"], "--input NAME=VALUE"),
    "scalar without a value": (["exec", SCALED_ADD, "-i", "a=rand", "-i", "b=rand"], "scalar alpha"),
    "scalar that is no number": (["exec", SCALED_ADD, "-i", "a=rand", "-i", "b=rand", "-s", "alpha=x"], "not a number"),
    "LNC of a program": (["exec", SCALED_ADD, "--lnc", "2"], "written for 1 core"),
    "missing profile": (["show", "missing"], "there is no program or profile missing"),
    "folder that is no profile": (["show", str(ROOT / "docs")], "is not a profile"),
    "trace of a program": (["trace", SCALED_ADD], "is not a profile"),
}


@pytest.mark.parametrize("arguments, message", CASES.values(), ids=CASES.keys())
def test_one_line_and_status_2(opentrn, arguments, message):
    outcome = opentrn(*arguments)
    lines = [line for line in outcome.err.splitlines() if line.startswith("opentrn: ")]
    assert outcome.status == 2
    assert message in outcome.err
    assert len(lines) == 1 and "Traceback" not in outcome.err


def test_unsound_program_is_not_run(opentrn, tmp_path):
    text = pathlib.Path(SCALED_ADD).read_text().replace(" wait a_ready>=1, b_ready>=1", "")
    (tmp_path / "racy.trn").write_text(text)
    outcome = opentrn("exec", str(tmp_path / "racy.trn"), "-i", "a=rand", "-i", "b=rand", "-s", "alpha=2")
    assert outcome.status == 2
    assert "race" in outcome.out and "the program was not run" in outcome.err


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    """A profile without launches is enough for what the reader checks."""
    import numpy as np
    from opentrn.profile import schema

    folder = tmp_path_factory.mktemp("profile")
    tables = {}
    for name, columns in schema.TABLES.items():
        described = {}
        for column, (dtype, unit, _) in columns.items():
            stored = "int32" if dtype == "strings" else dtype
            file = f"{name}.{column}.npy"
            np.save(folder / file, np.zeros(0, stored))
            described[column] = {"dtype": stored, "unit": unit, "file": file}
            if dtype == "strings":
                described[column]["strings"] = f"{name}.{column}.json"
                (folder / f"{name}.{column}.json").write_text("[]")
        tables[name] = {"rows": 0, "columns": described}
    manifest = {
        "format": "opentrn-profile",
        "version": 1,
        "steps": [],
        "tables": tables,
        "script": "s",
        "mode": "simulate",
        "lnc": 1,
        "created": "",
        "about": "",
        "dropped_instructions": 0,
        "chip": {"name": "trn2"},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


DAMAGES = {
    "manifest cut off": (lambda f: (f / "manifest.json").write_text('{"format": "opentrn'), "is damaged"),
    "another tool's": (
        lambda f: (f / "manifest.json").write_text('{"format": "perf", "version": 1}'),
        "not an opentrn profile",
    ),
    "another version": (
        lambda f: (f / "manifest.json").write_text('{"format": "opentrn-profile", "version": 99}'),
        "profile version 99",
    ),
    "column missing": (lambda f: (f / "Launch.step.npy").unlink(), "damaged or missing"),
    "column cut off": (lambda f: (f / "Launch.step.npy").write_bytes(b"\x93NUMPY"), "damaged or missing"),
}


@pytest.mark.parametrize("damage, message", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_profile(opentrn, profile, tmp_path, damage, message):
    folder = tmp_path / "profile"
    shutil.copytree(profile, folder)
    damage(folder)
    outcome = opentrn("show", str(folder))
    assert outcome.status == 2
    assert message in outcome.err and "Traceback" not in outcome.err
