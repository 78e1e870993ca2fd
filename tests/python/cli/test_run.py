"""`opentrn run`: the script's own behaviour passes through, and every ending gives a report."""

import json
import os
import signal
import subprocess
import time

import pytest
from command import COMMAND

TRAIN = """
import sys
import torch

torch.manual_seed(0)
device = torch.device("neuron")
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x, y = torch.randn(16, 32).to(device), torch.randint(8, (16,)).to(device)
for step in range({steps}):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {each}
{end}
"""


def script(steps: int = 5, each: str = "pass", end: str = "") -> str:
    return TRAIN.format(steps=steps, each=each, end=end)


def report(tmp_path) -> dict:
    return json.loads((tmp_path / "report.json").read_text())


def test_report(run, tmp_path):
    outcome = run(script(end="print('bye', sys.argv[1:])"), "--compare", "cpu", script_args=("--lr", "1", "--chip"))
    assert outcome.status == 0, outcome.err
    assert outcome.out == "bye ['--lr', '1', '--chip']\n"
    r = report(tmp_path)
    assert len(r["steps"]) == 5 and r["chip"]["name"] == "trn2" and r["chip"]["lnc"] == 2
    step = r["step"]
    assert step["modelled_us"] == pytest.approx(step["device_us"] + step["host_part_us"])
    assert step["dispatch_us"] == pytest.approx(step["dispatches"] * r["chip"]["dispatch_us"][1])
    assert step["model_flops"] > 0 and step["hbm_bytes"] > 0
    assert r["memory_peak_bytes"] > 0 and r["fallbacks"] == []
    assert r["compare"]["max_rel_diff"] < 1e-5 and len(r["compare"]["rows"]) == 5
    assert r["losses"]["1"] > r["losses"]["5"]
    assert (tmp_path / r["files"]["Loss curve"]).read_bytes().startswith(b"\x89PNG")
    for text in (
        "modelled",
        "peak 157.2 TFLOPS bf16 (2 cores × 78.6)",
        "no operator ran on the CPU",
        "not from AWS software",
    ):
        assert text in " ".join(outcome.err.split())


def test_profile_is_read_by_show_and_trace(run, tmp_path, opentrn):
    outcome = run(script())
    assert outcome.status == 0, outcome.err
    r = report(tmp_path)
    folder = str(tmp_path / r["profile"]["path"])
    assert r["profile"]["bytes"] < 256e6 and r["profile"]["steps"] == "3–5"
    shown = opentrn("show", folder)
    assert shown.status == 0 and "step 5" in shown.out and "script.py:" in shown.out
    from opentrn.profile.read import Profile

    profile = Profile(folder)
    assert profile.rows("Instruction") > 0 and profile.rows("DmaPacketAggregated") > 0 and profile.rows("Flow") > 0
    assert (profile.column("Instruction", "duration_ns") >= 0).all()
    program = int(profile.column("Program", "id")[0])
    assert "program" in opentrn("show", folder, "--program", str(program)).out
    traced = opentrn("trace", folder, "-o", str(tmp_path / "trace.json"))
    assert traced.status == 0, traced.err
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["ph"] for e in events} == {"X", "M"}
    assert opentrn("trace", folder, "--step", "99").status == 2


def test_modelled_times_are_the_same_every_time_and_in_predict_mode(run, tmp_path):
    times = []
    for options in ([], [], ["--mode", "predict"]):
        outcome = run(script(steps=4), "--profile", "off", *options)
        assert outcome.status == 0, outcome.err
        times.append([s["modelled_us"] for s in report(tmp_path)["steps"]])
    assert times[0] == times[1] == times[2]


def test_chip_and_lnc(run, tmp_path):
    run(script(steps=2), "--lnc", "1", "--profile", "off")
    r = report(tmp_path)
    assert r["chip"]["lnc"] == 1 and r["chip"]["hbm_gib"] == 12


def test_exit_status_passes_through(run, tmp_path):
    assert run(script(steps=2, end="sys.exit(7)"), "--profile", "off").status == 7
    assert len(report(tmp_path)["steps"]) == 2


def test_exception_keeps_the_finished_steps_and_the_traceback(run, tmp_path):
    outcome = run(script(each="if step == 2: raise ValueError('no more data')"))
    assert outcome.status == 1
    assert 'File "script.py"' in outcome.err and "ValueError: no more data" in outcome.err
    assert "report/child.py" not in outcome.err and "runpy" not in outcome.err
    r = report(tmp_path)
    assert len(r["steps"]) == 3 and r["stopped"] == "ValueError: no more data" and r["profile"]["launches"] > 0


def test_nan_loss_is_named(run, tmp_path):
    outcome = run(script(each="if step == 1: model[0].weight.data.fill_(float('nan'))"), "--profile", "off")
    assert outcome.status == 0
    assert report(tmp_path)["first_bad_loss_step"] == 3
    assert "not a number from step 3 on" in " ".join(outcome.err.split())


def test_out_of_memory_keeps_the_finished_steps(run, tmp_path):
    outcome = run(script(each="if step == 1: torch.empty(1 << 36, device=device)"), "--profile", "off")
    assert outcome.status == 1
    r = report(tmp_path)
    assert len(r["steps"]) == 2 and "OutOfMemory" in r["stopped"]


def test_crash_keeps_the_finished_steps(run, tmp_path):
    outcome = run(script(steps=2, end="import os; os.abort()"))
    assert outcome.status == 128 + 6
    assert len(report(tmp_path)["steps"]) == 2
    assert "ended by signal 6" in outcome.err


def test_interrupt(tmp_path):
    (tmp_path / "script.py").write_text(script(steps=10_000, each="import time; time.sleep(0.05)"))
    process = subprocess.Popen(
        [*COMMAND, "run", "--json", "report.json", "--profile", "off", "script.py"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(0.5)
    deadline = time.time() + 120
    while time.time() < deadline and not list(tmp_path.glob("opentrn-out/script-1/.lock")):
        time.sleep(0.1)
    time.sleep(15 if os.cpu_count() == 1 else 8)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "KeyboardInterrupt" in errors or "interrupted before the script began" in errors
    assert (tmp_path / "report.json").exists()


def test_script_without_steps(run, tmp_path):
    outcome = run(
        "import torch\nx = torch.ones(64, 64, device='neuron')\nprint(float((x @ x).sum()))\n", "--profile", "off"
    )
    assert outcome.status == 0 and outcome.out == "262144.0\n"
    r = report(tmp_path)
    assert r["steps"] == [] and r["whole_run"]["launches"] > 0
    assert "no optimizer stepped" in outcome.err


def test_script_that_does_not_use_the_device(run, tmp_path):
    outcome = run("print('hello')\n")
    assert outcome.status == 0 and outcome.out == "hello\n"
    assert "did no work on the neuron device" in outcome.err


def test_modelled_clock(run, tmp_path):
    code = script(
        end="""
torch.neuron.synchronize()
import time
before = time.perf_counter()
z = x
for _ in range(100):
    z = z + x
torch.neuron.synchronize()
print(time.perf_counter() - before)
"""
    )
    seconds = [float(run(code, "--clock", "modelled", "--profile", "off").out) for _ in range(2)]
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-6)
    assert 100 * 45e-6 < seconds[0] < 100 * 200e-6


def test_torchrun_arguments_and_modules(tmp_path):
    (tmp_path / "tool.py").write_text("import os, sys\nprint(os.environ['WORLD_SIZE'], sys.argv[1:])\n")
    done = subprocess.run(
        [*COMMAND, "run", "--nproc-per-node=1", "--standalone", "-m", "tool", "-n", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout == "1 ['-n', '3']\n" and done.returncode == 0, done.stderr


def test_two_runs_do_not_write_one_folder(run, tmp_path):
    import fcntl

    (tmp_path / "out").mkdir()
    with open(tmp_path / "out" / ".lock", "a") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        outcome = run(script(), "--out", "out")
    assert outcome.status == 2
    assert "is writing out: wait for it, or use another --out" in outcome.err


@pytest.mark.parametrize(
    "variable, value", [("OPENTRN_MODE", "guess"), ("NEURON_LOGICAL_NC_CONFIG", "3"), ("OPENTRN_CHIP", "trn9")]
)
def test_impossible_environment(run, variable, value):
    outcome = run("print('never')", env={variable: value})
    assert outcome.status == 2 and outcome.out == ""
    assert value in outcome.err and "Traceback" not in outcome.err


def test_torch_upgraded_under_the_bridge(opentrn, monkeypatch, tmp_path):
    from opentrn import build_info

    (tmp_path / "s.py").write_text("")
    monkeypatch.setattr(build_info, "build_info", lambda: {"torch": "1.0.0"})
    outcome = opentrn("run", str(tmp_path / "s.py"))
    assert outcome.status == 2 and "opentrn was built for torch 1.0.0" in outcome.err
