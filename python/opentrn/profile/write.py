"""Writes the profile of this process: what the runtime recorded, and each program's timeline once."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np

from . import schema

MAX_BYTES = 256_000_000
MAX_EVENTS = 1_500_000  # over all programs; about 100 bytes each
MAX_EVENTS_PER_PROGRAM = 200_000
ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")


class _Table:
    """Columns that grow by blocks; strings become positions in a list of distinct ones."""

    def __init__(self, name: str):
        self.name = name
        self.columns = schema.TABLES[name]
        self.blocks: dict[str, list[np.ndarray]] = {column: [] for column in self.columns}
        self.strings: dict[str, dict[str, int]] = {
            c: {} for c, (dtype, _, _) in self.columns.items() if dtype == "strings"
        }
        self.rows = 0

    def codes(self, column: str, values: list[str]) -> np.ndarray:
        known = self.strings[column]
        return np.fromiter((known.setdefault(v, len(known)) for v in values), np.int32, len(values))

    def add(self, **columns: Any) -> None:
        assert columns.keys() == self.columns.keys(), columns.keys() ^ self.columns.keys()
        rows = max(len(v) for v in columns.values() if not np.isscalar(v))
        for name, values in columns.items():
            dtype = self.columns[name][0]
            block = np.asarray(values, np.int32 if dtype == "strings" else dtype)
            self.blocks[name].append(np.broadcast_to(block, rows) if block.ndim == 0 else block)
        self.rows += rows

    def write(self, folder: pathlib.Path) -> dict[str, Any]:
        described: dict[str, Any] = {}
        for column, (dtype, unit, own) in self.columns.items():
            stored = "int32" if dtype == "strings" else dtype
            data = np.concatenate(self.blocks[column]) if self.blocks[column] else np.empty(0, stored)
            file = f"{self.name}.{column}.npy"
            np.save(folder / file, data.astype(stored, copy=False))
            described[column] = {"dtype": stored, "unit": unit, "file": file, "own": own}
            if dtype == "strings":
                described[column]["strings"] = f"{self.name}.{column}.json"
                (folder / described[column]["strings"]).write_text(json.dumps(list(self.strings[column])))
        return {"rows": self.rows, "columns": described}


def _ns(ps: Any) -> Any:
    return (np.asarray(ps, np.int64) + 500) // 1000


def write_profile(core, out: str, script: str, finished_steps: int = 0) -> dict[str, Any]:
    """Writes <out>/profile and returns {"path", "bytes", "steps", "launches", "programs", "instructions", "dropped"}.

    With finished steps, what came after the last one is left out; steps are numbered from 1.
    """
    settings = core.settings()
    chip = core.chip(settings["chip"])
    launches = core.launch_records()
    if finished_steps:
        keep = launches["step"] < finished_steps
        launches = {name: column[keep] for name, column in launches.items()}
    launches["step"] = launches["step"] + 1
    target = pathlib.Path(out) / "profile"
    temporary = pathlib.Path(out) / f".profile.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        tables = {name: _Table(name) for name in schema.TABLES}
        dropped = _programs(core, chip, launches, tables, temporary)
        _launches(core, launches, tables)
        manifest = {
            "format": schema.FORMAT,
            "version": schema.VERSION,
            "schema": schema.SCHEMA,
            "opentrn": core.__version__,
            "is_simulation": True,
            "about": "modelled by software; never measured by us on a Trainium",
            "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "script": script,
            "mode": settings["mode"],
            "chip": {"name": chip.name, "title": chip.title, "hash": chip.hash, "grades": chip.grade_counts()},
            "lnc": settings["lnc"],
            "num_physical_cores": settings["lnc"],
            "num_dma_engines_per_neuroncore": chip.dma_engines,
            "clock_ghz": dict(zip(ENGINES, chip.clock_ghz, strict=True)),
            "peak_tflops_per_core": dict(chip.peak_tflops),
            "launch_cost_ns": round(chip.launch_us * 1e3),
            "steps": sorted(set(launches["step"].tolist())),
            "dropped_instructions": dropped,
            "limits": {"bytes": MAX_BYTES, "events": MAX_EVENTS, "events_per_program": MAX_EVENTS_PER_PROGRAM},
            "tables": {name: table.write(temporary) for name, table in tables.items()},
        }
        # Written last: a folder without it is not a profile.
        (temporary / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
        size = sum(f.stat().st_size for f in temporary.rglob("*") if f.is_file())
        if target.exists():
            if not (target / "manifest.json").exists():
                raise FileExistsError(f"{target} exists and is not a profile: move it away or use another --out")
            shutil.rmtree(target)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    steps = manifest["steps"]
    return {
        "path": str(target),
        "bytes": size,
        "steps": f"{steps[0]}–{steps[-1]}" if len(steps) > 1 else str(steps[0]) if steps else "none",
        "launches": int(tables["Launch"].rows),
        "programs": int(tables["Program"].rows),
        "instructions": int(tables["Instruction"].rows),
        "dropped": dropped,
    }


def _programs(core, chip, launches: dict[str, Any], tables: dict[str, _Table], folder: pathlib.Path) -> int:
    """Timelines of the programs that were launched, those that took most time first; returns the events left out."""
    is_program = launches["kind"] == 0
    ids, counts = np.unique(launches["kernel"][is_program], return_counts=True)
    kernels = []
    for id, count in zip(ids.tolist(), counts.tolist(), strict=True):
        kernel = core.kernel(id) if id >= 0 else None
        if kernel is not None:
            kernels.append((kernel, count))
    kernels.sort(key=lambda item: -item[0]["time"]["total_ps"] * item[1])
    (folder / "programs").mkdir()
    events_left, bytes_left, total_dropped, base = MAX_EVENTS, MAX_BYTES // 3, 0, 0
    for kernel, count in kernels:
        program = kernel["program"]
        # Text and binary forms of the largest programs may be large too: they share a third of the room.
        data = program.serialize()
        keep_code = bytes_left > 4 * len(data)
        recorded, dropped = 0, 0
        if keep_code and events_left > 0:
            (folder / "programs" / f"{kernel['id']}.trnp").write_bytes(data)
            limit = min(MAX_EVENTS_PER_PROGRAM, events_left)
            _, timeline = program.timeline(chip, limit)
            recorded, dropped = len(timeline["start_ps"]), int(timeline["dropped"])
            text_bytes = _timeline(kernel["id"], program, timeline, tables, base)
            bytes_left -= len(data) + text_bytes
        else:
            dropped = sum(e["instructions"] for c in kernel["time"]["cores"] for e in c["engines"].values())
        tables["Program"].add(
            id=[kernel["id"]],
            name=tables["Program"].codes("name", [kernel["name"]]),
            key=tables["Program"].codes("key", [kernel["key"]]),
            duration_ns=[int(_ns(kernel["time"]["total_ps"]))],
            cores=[program.cores],
            launches=[count],
            model_flops=[kernel["model_flops"]],
            hardware_flops=[kernel["hardware_flops"]],
            hbm_bytes=[kernel["hbm_bytes"]],
            **{f"{e}_busy_ns": [int(_ns(kernel["busy_ps"][e]))] for e in ENGINES[:4]},
            dma_busy_ns=[int(_ns(kernel["dma_busy_ps"]))],
            first_instruction=[base],
            instructions=[recorded],
            dropped=[dropped],
        )
        base += recorded
        events_left -= recorded
        total_dropped += dropped
    return total_dropped


def _timeline(program_id: int, program, timeline: dict[str, Any], tables: dict[str, _Table], base: int) -> int:
    """Adds one program's events; returns the bytes of the operands' text."""
    count = len(timeline["start_ps"])
    if count == 0:
        return 0
    instructions, dma, waits, flow = (
        tables[n] for n in ("Instruction", "DmaPacketAggregated", "SemaphoreWait", "Flow")
    )
    ids = base + np.arange(count)
    core_index, pc, track = timeline["core"], timeline["instruction"], timeline["track"]
    start, end, visible = (_ns(timeline[k]) for k in ("start_ps", "end_ps", "visible_ps"))
    wait = _ns(timeline["wait_ps"])
    code = [program.code(c) for c in range(program.cores)]
    offsets = np.cumsum([0] + [len(c) for c in code[:-1]])
    static = offsets[core_index] + pc
    flat = [i for c in code for i in c]
    opcodes = [i["opcode"] for i in flat]
    texts = [i["text"] for i in flat]
    nodes = np.fromiter((i["origin"] for i in flat), np.int32, len(flat))

    engine = track < len(ENGINES)
    if engine.any():
        s = static[engine]
        instructions.add(
            id=ids[engine],
            program_id=program_id,
            start_ts=start[engine],
            end_ts=end[engine],
            duration_ns=(end - start)[engine],
            engine=instructions.codes("engine", list(ENGINES))[track[engine]],
            pcore_idx=core_index[engine],
            opcode=instructions.codes("opcode", opcodes)[s],
            operands=instructions.codes("operands", texts)[s],
            pc=pc[engine],
            evt_wait_time_ns=wait[engine],
            visible_ts=visible[engine],
            node=nodes[s],
        )
    queue = ~engine
    if queue.any():
        s = static[queue]
        numbers = (track[queue] - len(ENGINES)).astype(np.int8)
        names = [f"q{flat[i]['engine'].capitalize()}{q}" for i, q in zip(s.tolist(), numbers.tolist(), strict=True)]
        dma.add(
            id=ids[queue],
            program_id=program_id,
            start_ts=start[queue],
            end_ts=end[queue],
            duration_ns=(end - start)[queue],
            pcore_idx=core_index[queue],
            queue_idx=numbers,
            queue_name=dma.codes("queue_name", names),
            op=dma.codes("op", opcodes)[s],
            transfer_bytes=timeline["bytes"][queue],
            pc=pc[queue],
            completion=visible[queue],
        )
    waited = engine & (wait > 0)
    by = timeline["blocked_by"].astype(np.int64)
    if waited.any():
        waits.add(
            instruction_id=ids[waited],
            start_ts=(start - wait)[waited],
            end_ts=start[waited],
            duration_ns=wait[waited],
            blocked_by=np.where(by[waited] >= 0, by[waited] + base, -1),
        )
    edge = by >= 0
    if edge.any():
        kinds = flow.codes("in_table", ["Instruction", "DmaPacketAggregated"])
        out_kinds = flow.codes("out_table", ["Instruction", "DmaPacketAggregated"])
        flow.add(
            in_id=by[edge] + base,
            out_id=ids[edge],
            in_table=kinds[queue[by[edge]].astype(int)],
            out_table=out_kinds[queue[edge].astype(int)],
            gap_time=start[edge] - visible[by[edge]],
        )
    return sum(len(t) for t in set(texts))


def _launches(core, launches: dict[str, Any], tables: dict[str, _Table]) -> None:
    table, steps = tables["Launch"], tables["Step"]
    count = len(launches["kernel"])
    if not count:
        return
    origins, where = np.unique(launches["origin"], return_inverse=True)
    names = [core.describe_origin(int(o)) or "" for o in origins]
    start, end = _ns(launches["start_ps"]), _ns(launches["end_ps"])
    table.add(
        program_id=launches["kernel"],
        kind=table.codes("kind", schema.LAUNCH_KINDS)[launches["kind"]],
        start_ts=start,
        end_ts=end,
        host_ts=_ns(launches["host_ps"]),
        device=launches["device"],
        stream=launches["stream"],
        step=launches["step"],
        bytes=launches["bytes"],
        origin=table.codes("origin", names)[where],
    )
    for step in np.unique(launches["step"]):
        mine = launches["step"] == step
        steps.add(step=[step], start_ts=[start[mine].min()], end_ts=[end[mine].max()], launches=[int(mine.sum())])
