"""`opentrn run`: starts the script in a child process, listens to it, and reports."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from ..report.channel import receive
from ..report.summary import Run, compare, summarise
from .common import check_lnc, console, core, find_chip
from .errors import UserFault


@dataclasses.dataclass
class Options:
    target: str | None
    module: bool
    args: list[str]
    compare: str | None
    chip: str | None
    lnc: int | None
    mode: str | None
    clock: str
    profile: str
    json: pathlib.Path | None
    out: pathlib.Path | None
    quiet: bool


@dataclasses.dataclass
class Torchrun:
    """torchrun's arguments: accepted, so that a command line can be kept; one rank is what this version runs."""

    nproc_per_node: str | None
    nnodes: str | None
    node_rank: int | None
    master_addr: str | None
    master_port: int | None
    standalone: bool
    rdzv_endpoint: str | None

    def environment(self) -> dict[str, str]:
        for name, value in (("--nproc-per-node", self.nproc_per_node), ("--nnodes", self.nnodes)):
            count = (value or "1").split(":")[-1]
            if count in ("auto", "gpu", "cpu", "neuron"):
                continue
            if not count.isdigit() or int(count) < 1:
                raise UserFault(f"{name} {value} is not a number of processes: use {name} 1")
            if int(count) > 1:
                raise UserFault(
                    f"{name} {value}: this version runs one rank; use {name} 1 (several ranks are not supported yet)"
                )
        if self.node_rank:
            raise UserFault(f"--node-rank {self.node_rank}: this version runs one rank on one node, whose number is 0")
        if not any(value not in (None, False) for value in dataclasses.astuple(self)):
            return {}
        host, _, port = (self.rdzv_endpoint or "").partition(":")
        return {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": "0",
            "MASTER_ADDR": self.master_addr or host or "127.0.0.1",
            "MASTER_PORT": str(self.master_port or (int(port) if port.isdigit() else _free_port())),
        }


def _free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _check(options: Options) -> None:
    if options.target is None:
        raise UserFault("nothing to run: give a script, or -m MODULE (see `opentrn run --help`)")
    if not options.module:
        script = pathlib.Path(options.target)
        if not script.exists():
            raise UserFault(f"there is no script {options.target}: check the path (options of opentrn come before it)")
        if script.is_dir() and not (script / "__main__.py").exists():
            raise UserFault(f"{options.target} is a folder without __main__.py: name a script in it, or use -m MODULE")
        if not os.access(script, os.R_OK):
            raise UserFault(f"{options.target} cannot be read: check its permissions")
    for name, value, allowed in (
        ("--compare", options.compare, ("cpu",)),
        ("--mode", options.mode, ("simulate", "predict")),
        ("--clock", options.clock, ("host", "modelled")),
        ("--profile", options.profile, ("last", "all", "off")),
    ):
        if value is not None and value not in allowed:
            raise UserFault(f"{name} {value} is not possible: allowed is {' or '.join(allowed)}")
    check_torch()


def check_torch() -> None:
    """The bridge is built for one torch: an upgrade under it must be said, not crash."""
    import importlib.metadata

    from ..build_info import build_info

    try:
        installed = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise UserFault(
            "torch is not installed in this environment: install torch, then build opentrn against it"
        ) from None
    built = build_info().get("torch")
    if built and built.split("+")[0] != installed.split("+")[0]:
        raise UserFault(
            f"opentrn was built for torch {built}, but torch {installed} is installed: build it again (`make build`, or "
            "`pip install . --no-build-isolation`), or install that torch"
        )


def _name(options: Options) -> str:
    assert options.target
    return options.target.split(".")[-1] if options.module else pathlib.Path(options.target).resolve().stem


def _output_folder(options: Options, say) -> pathlib.Path:
    """--out, or the next opentrn-out/NAME-N; a temporary folder where nothing can be written."""
    name = _name(options)
    if options.out is not None:
        try:
            options.out.mkdir(parents=True, exist_ok=True)
            probe = options.out / f".{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise UserFault(f"--out {options.out} cannot be written ({error.strerror}): name another folder") from None
        return options.out
    try:
        base = pathlib.Path("opentrn-out")
        base.mkdir(exist_ok=True)
        number = 1 + max(
            (int(p.name.rsplit("-", 1)[1]) for p in base.glob(f"{name}-*") if p.name.rsplit("-", 1)[1].isdigit()),
            default=0,
        )
        while True:
            try:
                (base / f"{name}-{number}").mkdir()
                return base / f"{name}-{number}"
            except FileExistsError:
                number += 1
    except OSError as error:
        try:
            folder = pathlib.Path(tempfile.mkdtemp(prefix=f"opentrn-{name}-"))
        except OSError:
            raise UserFault(
                f"neither {os.getcwd()} nor {tempfile.gettempdir()} can be written ({error.strerror}): use --out FOLDER"
            ) from None
        say(f"opentrn: {os.getcwd()} cannot be written ({error.strerror}); the output goes to {folder}")
        return folder


def _lock(folder: pathlib.Path):
    """Held until the process ends, however it ends: no stale locks."""
    try:
        handle = open(folder / ".lock", "a+")  # noqa: SIM115  kept open on purpose
    except OSError as error:
        raise UserFault(f"{folder} cannot be written ({error.strerror}): use another --out") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.seek(0)
        holder = handle.read().strip()
        raise UserFault(
            f"another run{f' (process {holder})' if holder else ''} is writing {folder}: wait for it, or use another --out"
        ) from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


class _Child:
    """One run of the script. Interrupts go to the script, which ends it and leaves what it has."""

    def __init__(self, config: dict[str, Any], environment: dict[str, str], stdout=None):
        self.run = Run(config["device"])
        read, write = os.pipe()
        started = time.perf_counter()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "opentrn.report.child", json.dumps({**config, "fd": write})],
                pass_fds=[write],
                env=environment,
                stdout=stdout,
            )
        finally:
            os.close(write)
        self._reader = threading.Thread(target=self._listen, args=(read,), daemon=True)
        self._reader.start()
        interrupts = 0

        def forward(signum, _frame) -> None:
            # A terminal sends Ctrl-C to both processes; a signal sent to this one alone is passed on a little later.
            nonlocal interrupts
            interrupts += 1
            if interrupts > 2:
                self.process.kill()
                return
            timer = threading.Timer(0.5, self._pass_on, (signum,))
            timer.daemon = True
            timer.start()

        before = {s: signal.signal(s, forward) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.run.status = self.process.wait()
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)
        # Grandchildren may hold the pipe open: what the script itself said has arrived by now.
        self._reader.join(timeout=10)
        self.run.wall_s = time.perf_counter() - started

    def _pass_on(self, signum: int) -> None:
        if self.process.poll() is None and not self.run.interrupted and self.run.end is None:
            self.process.send_signal(signum)

    def _listen(self, fd: int) -> None:
        for message in receive(fd):
            self.run.add(message)


def _chip_facts(chip: Any, lnc: int) -> dict[str, Any]:
    return {
        "name": chip.name,
        "title": chip.title,
        "hash": chip.hash,
        "lnc": lnc,
        "peak_tflops": chip.peak_tflops.get("bf16", 0.0),
        "dispatch_us": [chip.dispatch_eager_min_us, chip.dispatch_eager_us, chip.dispatch_eager_max_us],
        "hbm_gib": chip.hbm_bytes_per_core * lnc / 2**30,
        "grades": chip.grade_counts(),
    }


def _exit_status(status: int) -> int:
    return 128 - status if status < 0 else status


def run(options: Options, torchrun: Torchrun) -> int:
    _check(options)
    chip = find_chip(options.chip or os.environ.get("OPENTRN_CHIP"))
    environment = {**os.environ, **torchrun.environment()}
    if options.chip:
        environment["OPENTRN_CHIP"] = options.chip
    if options.lnc is not None:
        environment["NEURON_LOGICAL_NC_CONFIG"] = str(check_lnc(chip, options.lnc))
    if options.mode:
        environment["OPENTRN_MODE"] = options.mode
    if options.json is not None and not os.access(options.json.absolute().parent, os.W_OK):
        raise UserFault(f"--json {options.json}: the folder cannot be written; name a file elsewhere")
    say = _say
    out = _output_folder(options, say)
    lock = _lock(out)

    terminal = sys.stderr.isatty() and not options.quiet
    config = {
        "target": options.target,
        "module": options.module,
        "argv": options.args,
        "device": "neuron",
        "clock": options.clock,
        "profile": options.profile,
        "out": str(out),
        "progress": terminal,
        "seed": 0 if options.compare else None,
    }
    main = _Child(config, environment).run
    if not main.started and main.status == 2:  # the child has said why in one line
        return 2
    report: dict[str, Any]
    settings = (main.end or {}).get("settings") or {}
    lnc = settings.get("lnc") or options.lnc or chip.lnc_default
    if settings.get("chip"):
        chip = find_chip(settings["chip"])
    facts = _chip_facts(chip, lnc)
    report = {
        "opentrn": _version(),
        "script": options.target,
        "args": options.args,
        "chip": facts,
        "mode": settings.get("mode", options.mode or "simulate"),
        "clock": options.clock,
        **summarise(main, facts),
    }
    report["files"] = {}

    if options.compare and not main.interrupted:
        other_config = {**config, "device": "cpu", "profile": "off", "clock": "host"}
        with _open_or_discard(out / "cpu-output.txt") as output:
            other = _Child(other_config, environment, stdout=output).run
        theirs = summarise(other, facts)
        report["cpu"] = {k: theirs[k] for k in ("status", "stopped", "wall_s", "losses", "host_s_per_step")}
        report["compare"] = compare(report, theirs)
        if report["compare"] is None:
            report["compare_error"] = (
                f"the run on the cpu ended with status {other.status}" if other.status else "no losses to compare"
            )
        report["files"]["Output of cpu run"] = str(out / "cpu-output.txt")

    status = _exit_status(main.status or 0)
    _write_files(report, out, options, say)
    if not options.quiet:
        from ..report.render import render

        sys.stdout.flush()
        render(report, console(stderr=True))
    lock.close()
    return status


def _open_or_discard(path: pathlib.Path):
    """For output that is nice to have: a full disk does not end the run."""
    try:
        return open(path, "wb")
    except OSError:
        return open(os.devnull, "wb")


def _write_files(report: dict[str, Any], out: pathlib.Path, options: Options, say) -> None:
    """Picture, profile, JSON: whatever cannot be written is said in one line and does not change the exit status."""
    from ..report import picture

    files = report["files"]
    profile = report.get("profile") or {}
    if profile.get("path"):
        size = profile["bytes"] / 1e6
        files["Profile"] = f"{profile['path']}  ({size:.1f} MB, steps {profile['steps']}; opentrn show, opentrn trace)"
    elif profile.get("error"):
        files["Profile"] = f"not written: {profile['error']}"
    try:
        if picture.draw(report, out / "loss.png"):
            files["Loss curve"] = str(out / "loss.png")
    except OSError as error:
        files["Loss curve"] = f"not written: {error.strerror}"
    targets = [out / "report.json"] + ([options.json] if options.json else [])
    for target in targets:
        try:
            write_atomically(target, json.dumps(report, indent=1, default=str) + "\n")
            if target is options.json:
                files["JSON"] = str(target)
        except OSError as error:
            say(f"opentrn: {target} could not be written: {error.strerror or errno.errorcode.get(error.errno or 0)}")


def write_atomically(path: pathlib.Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _version() -> str:
    return core().__version__
