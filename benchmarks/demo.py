"""The demo: loss curves, gradients, bf16, predict mode, set-up time."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
from typing import Any

from . import Row, bench

ROOT = pathlib.Path(__file__).parent.parent
SCRIPT = ROOT / "examples" / "train_qwen3.py"


def run_demo(
    *options: str, script: tuple[str, ...] = (), profile: str = "off", threads: int | None = None
) -> dict[str, Any]:
    """The report of `opentrn run`; `script` are the demo's own arguments."""
    environment = dict(os.environ)
    if threads:
        environment |= {"OPENTRN_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [
            sys.executable,
            "-c",
            "import sys; from opentrn.cli import main; sys.exit(main())",
            "run",
            "--quiet",
            "--out",
            folder,
            "--profile",
            profile,
            "--json",
            str(report),
            *options,
            str(SCRIPT),
            *script,
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        return json.loads(report.read_text())


@functools.cache
def _report(mode: str) -> dict[str, Any]:
    return run_demo("--compare", "cpu") if mode == "simulate" else run_demo("--mode", "predict")


@bench("demo.loss_rel_diff", "eager.vs_cpu.demo_step", "demo.host_s_per_step")
def demo():
    report = _report("simulate")
    diff = report["compare"]["max_rel_diff"]
    yield Row(
        "demo.loss_rel_diff", diff, "relative", "<= 1e-5", diff <= 1e-5, f"{len(report['compare']['rows'])} steps"
    )
    ratio = report["compare"]["slowdown"]
    yield Row(
        "eager.vs_cpu.demo_step",
        ratio,
        "ratio",
        "<= 1.3",
        ratio <= 1.3,
        f"neuron {report['host_s_per_step']:.3f} s, cpu {report['compare']['host_s_per_step']:.3f} s",
    )


@bench("predict.*")
def predict():
    """The demo in predict mode gives the same nanoseconds without backing memory."""
    simulate, predicted = _report("simulate"), _report("predict")
    pairs = list(zip(simulate["steps"], predicted["steps"], strict=True))
    worst = max(abs(a["modelled_us"] - b["modelled_us"]) for a, b in pairs) * 1e3
    yield Row("predict.equals_simulate_ns", worst, "ns", "0", worst == 0, f"{len(pairs)} steps")
    rss = predicted["host_rss_mib"]
    yield Row("predict.rss_mib", rss, "MiB", "<= 1024", rss <= 1024)


def _gradients(device: str, dtype: str) -> list[Any]:
    """Gradients of the demo's first step, fp64 on the CPU."""
    import torch

    script = runpy.run_path(str(SCRIPT))
    torch.manual_seed(0)
    model = script["small_qwen3"]()
    batch = torch.randint(256, (4, 128), generator=torch.Generator().manual_seed(1))
    model, batch = model.to(device), batch.to(device)
    with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == "bf16"):
        loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    return [p.grad.cpu().double() for p in model.parameters()]


@bench("demo.grad_rel_diff", "demo.bf16_ratio")
def gradients():
    def norm(tensors) -> float:
        return sum(float(t.norm()) ** 2 for t in tensors) ** 0.5

    reference = _gradients("cpu", "fp32")
    mine = _gradients("neuron", "fp32")
    worst = max(float((a - b).norm() / b.norm()) for a, b in zip(mine, reference, strict=True))
    yield Row("demo.grad_rel_diff", worst, "relative", "<= 1e-5", worst <= 1e-5, "worst parameter at step 1, fp32")
    errors = {
        d: norm([a - b for a, b in zip(_gradients(d, "bf16"), reference, strict=True)]) / norm(reference)
        for d in ("neuron", "cpu")
    }
    ratio = errors["neuron"] / errors["cpu"]
    yield Row(
        "demo.bf16_ratio",
        ratio,
        "ratio",
        "<= 1.2",
        ratio <= 1.2,
        f"gradient error of bf16 autocast: neuron {errors['neuron']:.3g}, cpu {errors['cpu']:.3g}",
    )


@bench("scale.threads")
def threads():
    """What a second thread gains: the demo's step time."""
    seconds = {n: run_demo(script=("--steps", "20"), threads=n)["host_s_per_step"] for n in (1, 2)}
    ratio = seconds[1] / seconds[2]
    yield Row(
        "scale.threads",
        ratio,
        "ratio",
        ">= 1.6",
        ratio >= 1.6,
        f"a step of the demo: {seconds[1]:.3f} s with one thread, {seconds[2]:.3f} s with two",
    )


@bench("setup.minutes")
def setup_minutes():
    """From a fresh clone to the report; `make demo` measures it when it had everything to do."""
    file = ROOT / "build" / "setup_seconds"
    if file.exists():
        minutes = int(file.read_text().split()[-2]) / 60
        yield Row("setup.minutes", minutes, "min", "<= 12", minutes <= 12)
    else:
        yield Row("setup.minutes", None, "min", "<= 12", None, "measured by `make demo` in a fresh clone")
