"""The commands and their options; the work is in the file of each command."""

from __future__ import annotations

import pathlib

import typer

app = typer.Typer(
    name="opentrn",
    help="An open, software Trainium: runs PyTorch scripts on the device `neuron`, and says how long the chip would take.",
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Options come before SCRIPT; everything after it belongs to the script.
SCRIPT_SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": False}
CHIP_HELP = "Chip to model: trn1, trn2 or trn3 (`opentrn chips`)."
LNC_HELP = "Physical cores per logical core; the chip's default."


def _version(show: bool) -> None:
    if show:
        from opentrn import __version__

        print(f"opentrn {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


@app.command(
    context_settings=SCRIPT_SETTINGS,
    epilog="[bold]Example[/]: opentrn run --compare cpu examples/train_qwen3.py --steps 20",
)
def run(
    script: str = typer.Argument(None, help="Python script; its arguments follow it.", show_default=False),
    args: list[str] = typer.Argument(None, help="The script's own arguments.", show_default=False),
    module: str = typer.Option(None, "-m", "--module", help="Run a module, as `python -m` does.", metavar="MODULE"),
    compare: str = typer.Option(
        None, help="Run again with `neuron` mapped to `cpu` and compare the losses.", metavar="cpu"
    ),
    chip: str = typer.Option(None, help=CHIP_HELP),
    lnc: int = typer.Option(None, help=LNC_HELP),
    mode: str = typer.Option(None, help="simulate: values and time; predict: time only, without memory for values."),
    clock: str = typer.Option(
        "host", help="host, or modelled: the script's own time functions read the modelled clock."
    ),
    profile: str = typer.Option("last", help="last: the last 3 steps; all; off."),
    json: pathlib.Path = typer.Option(None, "--json", help="Write the report as JSON.", metavar="FILE"),
    out: pathlib.Path = typer.Option(None, help="Output folder; default: opentrn-out/NAME-N.", metavar="FOLDER"),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="No report on the terminal."),
    nproc_per_node: str = typer.Option(
        None, "--nproc-per-node", "--nproc_per_node", help="As torchrun; 1 in this version."
    ),
    nnodes: str = typer.Option(None, "--nnodes", help="As torchrun; 1 in this version."),
    node_rank: int = typer.Option(None, "--node-rank", "--node_rank", hidden=True),
    master_addr: str = typer.Option(None, "--master-addr", "--master_addr", hidden=True),
    master_port: int = typer.Option(None, "--master-port", "--master_port", hidden=True),
    standalone: bool = typer.Option(False, "--standalone", hidden=True),
    rdzv_backend: str = typer.Option(None, "--rdzv-backend", "--rdzv_backend", hidden=True),
    rdzv_endpoint: str = typer.Option(None, "--rdzv-endpoint", "--rdzv_endpoint", hidden=True),
    rdzv_id: str = typer.Option(None, "--rdzv-id", "--rdzv_id", hidden=True),
) -> int:
    """Run a training script and report each step: time on the chip, what bounds it, memory, programs, fallbacks.

    A step is what an optimizer's step() ends; the loss is the scalar on which backward() is called. The script's output,
    traceback and exit status pass through; the report goes to stderr.
    """
    from . import run as command

    torchrun = command.Torchrun(nproc_per_node, nnodes, node_rank, master_addr, master_port, standalone, rdzv_endpoint)
    arguments = list(args or [])
    if module is not None and script is not None:
        arguments = [script, *arguments]
    return command.run(
        command.Options(
            module or script, module is not None, arguments, compare, chip, lnc, mode, clock, profile, json, out, quiet
        ),
        torchrun,
    )


@app.command(epilog="[bold]Example[/]: opentrn chips trn2")
def chips(
    name: str = typer.Argument(
        None, help="Show every number of this chip with its source and grade.", show_default=False
    ),
) -> None:
    """List the chips, or all numbers of one with unit, grade and source."""
    from . import chips as command

    command.chips(name)


@app.command(epilog="[bold]Example[/]: opentrn show opentrn-out/train_qwen3-1/profile --program 3")
def show(
    path: pathlib.Path = typer.Argument(
        help="A program file (text or binary) or a profile folder.", show_default=False
    ),
    program: int = typer.Option(None, help="In a profile: print this program's instructions."),
    step: int = typer.Option(None, help="In a profile: only the launches of this step."),
    top: int = typer.Option(12, help="In a profile: programs listed."),
    chip: str = typer.Option(None, help="For a program file: chip to check and time it on; default: the program's."),
    plan: bool = typer.Option(
        False, "--plan", help="How this machine executes the program, instead of its instructions."
    ),
) -> None:
    """Print a program's instructions, or what a profile holds: programs by time, engines, steps."""
    from . import show as command

    command.show(path, program, step, top, chip, plan)


@app.command(
    "exec",
    epilog="[bold]Example[/]: opentrn exec add.trn --input a=rand:128x512:bf16 --input b=ones:128x512:bf16 --print",
)
def execute(
    file: pathlib.Path = typer.Argument(help="A program in text form.", show_default=False),
    input: list[str] = typer.Option(
        [],
        "--input",
        "-i",
        metavar="NAME=SPEC",
        help="Value of an input: rand|randn|zeros|ones|arange, :shape, :dtype; or a .npy file. Seeded: the same every time.",
    ),
    scalar: list[str] = typer.Option([], "--scalar", "-s", metavar="NAME=VALUE", help="Value of a launch-time scalar."),
    output: list[str] = typer.Option(
        [],
        "--output",
        "-o",
        metavar="NAME=SHAPE:DTYPE|FILE.npy",
        help="Shape and dtype to print an output with, or a file.",
    ),
    chip: str = typer.Option(None, help="Chip to run on; default: the program's."),
    lnc: int = typer.Option(None, help="Must equal the number of cores of the program."),
    print_: bool = typer.Option(False, "--print", help="Print the outputs."),
    timeline: bool = typer.Option(False, "--timeline", help="Print each instruction's start and duration."),
    no_run: bool = typer.Option(False, "--no-run", help="Verify and time only."),
) -> int:
    """Verify, run and time a hand-written program."""
    from . import execute as command

    return command.execute(file, input, scalar, output, chip, lnc, print_, timeline, not no_run)


@app.command(epilog="[bold]Example[/]: opentrn trace opentrn-out/train_qwen3-1/profile -o trace.json")
def trace(
    profile: pathlib.Path = typer.Argument(help="A profile folder.", show_default=False),
    output: pathlib.Path = typer.Option("trace.json", "-o", "--output", help="File to write; .gz compresses it."),
    step: int = typer.Option(None, help="Only this step; default: the last one."),
    events: int = typer.Option(500_000, help="At most so many instruction events; launches are always all there."),
) -> None:
    """Export a profile as a Chrome trace, for chrome://tracing or ui.perfetto.dev."""
    from . import trace as command

    command.trace(profile, output, step, events)


@app.command(epilog="[bold]Example[/]: opentrn doctor")
def doctor() -> int:
    """Say what is installed and built for which torch, check the cache, and run a small program as a self-check."""
    from . import doctor as command

    return command.doctor()
