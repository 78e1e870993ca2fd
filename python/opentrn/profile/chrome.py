"""A profile as a Chrome trace: launches on the device's row, the instructions of each launch on rows of engines."""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any

import numpy as np

from .read import Profile, ProfileError

_TRACKS = ("tensor", "vector", "scalar", "gpsimd", "sync")


def export(profile: Profile, output: pathlib.Path, step: int | None, max_events: int) -> dict[str, int]:
    """Writes the JSON object format; times in microseconds. Returns the numbers of launches and instructions written."""
    steps = profile.column("Launch", "step")
    if not len(steps):
        raise ProfileError(f"{profile.path} has no launches")
    if step is None:
        step = int(steps.max())
    chosen = np.flatnonzero(steps == step)
    if not len(chosen):
        known = ", ".join(map(str, profile.manifest["steps"]))
        raise ProfileError(f"step {step} is not in this profile: it has {known}")
    column = {
        n: profile.column("Launch", n)
        for n in ("program_id", "start_ts", "end_ts", "host_ts", "device", "stream", "bytes")
    }
    kinds, origins = profile.texts("Launch", "kind"), profile.texts("Launch", "origin")
    names = dict(zip(profile.column("Program", "id").tolist(), profile.texts("Program", "name"), strict=True))
    first = dict(
        zip(
            profile.column("Program", "id").tolist(),
            zip(
                profile.column("Program", "first_instruction").tolist(),
                profile.column("Program", "instructions").tolist(),
                strict=True,
            ),
            strict=True,
        )
    )
    events: list[dict[str, Any]] = []
    threads: set[tuple[int, int, str]] = set()
    expand = _Expansion(profile)
    written = 0
    for index in chosen.tolist():
        device, program = int(column["device"][index]), int(column["program_id"][index])
        begin, end = int(column["start_ts"][index]), int(column["end_ts"][index])
        name = names.get(program, kinds[index]) if kinds[index] == "program" else kinds[index]
        row = 100 + int(column["stream"][index])
        threads.add((device, row, f"stream {column['stream'][index]}"))
        events.append(
            {
                "ph": "X",
                "pid": device,
                "tid": row,
                "ts": begin / 1e3,
                "dur": (end - begin) / 1e3,
                "name": name,
                "cat": kinds[index],
                "args": {
                    "program": program,
                    "origin": origins[index],
                    "dispatched at (us)": int(column["host_ts"][index]) / 1e3,
                    "bytes": int(column["bytes"][index]),
                },
            }
        )
        base, count = first.get(program, (0, 0))
        if kinds[index] != "program" or written + count > max_events:
            continue
        for track, label, start, duration, text, opcode in expand.events(program, base, count):
            threads.add((device, track, label))
            events.append(
                {
                    "ph": "X",
                    "pid": device,
                    "tid": track,
                    "ts": (begin + start) / 1e3,
                    "dur": duration / 1e3,
                    "name": opcode,
                    "args": {"instruction": text},
                }
            )
        written += count
    for device in {d for d, _, _ in threads}:
        chip = profile.manifest["chip"]["name"]
        events.append(
            {
                "ph": "M",
                "pid": device,
                "name": "process_name",
                "args": {"name": f"neuron:{device} ({chip}, LNC={profile.manifest['lnc']}, modelled)"},
            }
        )
    for device, row, label in threads:
        events.append({"ph": "M", "pid": device, "tid": row, "name": "thread_name", "args": {"name": label}})
        events.append(
            {
                "ph": "M",
                "pid": device,
                "tid": row,
                "name": "thread_sort_index",
                "args": {"sort_index": (row + 1000) % 1100},
            }
        )
    text = json.dumps(
        {
            "traceEvents": events,
            "displayTimeUnit": "ns",
            "otherData": {"chip": profile.manifest["chip"]["name"], "about": profile.manifest["about"], "step": step},
        }
    )
    data = text.encode()
    output.write_bytes(gzip.compress(data) if output.suffix == ".gz" else data)
    return {"step": step, "launches": len(chosen), "instructions": written}


class _Expansion:
    """The events of a program, by id: instructions and DMA transfers share one numbering."""

    def __init__(self, profile: Profile):
        p = profile
        self.instruction = {
            n: p.column("Instruction", n)
            for n in ("id", "start_ts", "duration_ns", "engine", "pcore_idx", "opcode", "operands")
        }
        self.engines, self.opcodes = p.strings("Instruction", "engine"), p.strings("Instruction", "opcode")
        self.operands = p.strings("Instruction", "operands")
        self.dma = {
            n: p.column("DmaPacketAggregated", n)
            for n in ("id", "start_ts", "duration_ns", "queue_idx", "pcore_idx", "op", "transfer_bytes")
        }
        self.ops = p.strings("DmaPacketAggregated", "op")
        self._kept: dict[int, list[tuple[int, str, int, int, str, str]]] = {}

    def events(self, program: int, base: int, count: int) -> list[tuple[int, str, int, int, str, str]]:
        if program not in self._kept:
            found = []
            i = self.instruction
            for k in range(*np.searchsorted(i["id"], [base, base + count])):
                core, engine = int(i["pcore_idx"][k]), self.engines[i["engine"][k]]
                found.append(
                    (
                        20 * core + _TRACKS.index(engine),
                        f"core {core} {engine}",
                        int(i["start_ts"][k]),
                        int(i["duration_ns"][k]),
                        self.operands[i["operands"][k]],
                        self.opcodes[i["opcode"][k]],
                    )
                )
            d = self.dma
            for k in range(*np.searchsorted(d["id"], [base, base + count])):
                core, queue = int(d["pcore_idx"][k]), int(d["queue_idx"][k])
                found.append(
                    (
                        20 * core + 5 + queue,
                        f"core {core} DMA queue {queue}",
                        int(d["start_ts"][k]),
                        int(d["duration_ns"][k]),
                        f"{d['transfer_bytes'][k]} bytes",
                        self.ops[d["op"][k]],
                    )
                )
            self._kept[program] = found
        return self._kept[program]
