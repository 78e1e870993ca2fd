"""The loss curve as a PNG: the device's, the CPU's beside it when there is one, and their relative difference."""

from __future__ import annotations

import pathlib
from typing import Any


def draw(report: dict[str, Any], path: pathlib.Path) -> bool:
    """False when there is no loss to draw."""
    losses = [(int(step), value) for step, value in report["losses"].items() if value is not None]
    if not losses:
        return False
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    compare = report.get("compare")
    rows = 2 if compare else 1
    figure, axes = plt.subplots(
        rows,
        1,
        figsize=(7, 4.2 if rows == 1 else 5.2),
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": [3, 1][:rows]},
        layout="constrained",
    )
    top = axes[0][0]
    steps, values = zip(*losses, strict=True)
    if compare:
        top.plot(
            [r["step"] for r in compare["rows"]],
            [r["cpu"] for r in compare["rows"]],
            color="#c8c8c8",
            lw=5,
            label="cpu",
        )
    top.plot(steps, values, color="#c1440e", lw=1.6, label=f"neuron ({report['chip']['name']} model)")
    top.set_ylabel("loss")
    top.set_title(f"{pathlib.Path(report['script']).name}: {len(report['steps'])} steps", fontsize=11, loc="left")
    top.legend(frameon=False)
    if compare:
        below = axes[1][0]
        floor = 1e-9
        below.semilogy(
            [r["step"] for r in compare["rows"]],
            [max(r["rel_diff"], floor) for r in compare["rows"]],
            color="#444",
            lw=1,
            marker=".",
            ms=4,
        )
        below.set_ylabel("relative\ndifference")
    axes[-1][0].set_xlabel("optimizer step")
    axes[-1][0].xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in axes[:, 0]:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True
