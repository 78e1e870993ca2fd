"""Tables and columns of a profile, with dtypes and units; version 1 of the format.

Times inside a program are nanoseconds from the program's start; those of launches and steps are nanoseconds on the
modelled clock. "strings" columns hold positions in <table>.<column>.json.
"""

from __future__ import annotations

FORMAT = "opentrn-profile"
VERSION = 1
SCHEMA = "table and column names after the Neuron profile schema 7.4.0; columns marked own are opentrn's"

NS = "nanoseconds"
# table -> column -> (dtype or "strings", unit, own)
TABLES: dict[str, dict[str, tuple[str, str, bool]]] = {
    "Program": {
        "id": ("int32", "", False),
        "name": ("strings", "", False),
        "key": ("strings", "", True),
        "duration_ns": ("int64", NS, False),
        "cores": ("int32", "", True),
        "launches": ("int64", "", True),
        "model_flops": ("int64", "", False),
        "hardware_flops": ("int64", "", False),
        "hbm_bytes": ("int64", "bytes", True),
        "tensor_busy_ns": ("int64", NS, True),
        "vector_busy_ns": ("int64", NS, True),
        "scalar_busy_ns": ("int64", NS, True),
        "gpsimd_busy_ns": ("int64", NS, True),
        "dma_busy_ns": ("int64", NS, True),
        "first_instruction": ("int64", "", True),
        "instructions": ("int64", "", True),
        "dropped": ("int64", "", True),
    },
    "Instruction": {
        "id": ("int64", "", False),
        "program_id": ("int32", "", True),
        "start_ts": ("int64", NS, False),
        "end_ts": ("int64", NS, False),
        "duration_ns": ("int64", NS, False),
        "engine": ("strings", "", False),
        "pcore_idx": ("int8", "", False),
        "opcode": ("strings", "", False),
        "operands": ("strings", "", False),
        "pc": ("int32", "", False),
        "evt_wait_time_ns": ("int64", NS, False),
        "visible_ts": ("int64", NS, True),
        "node": ("int32", "", True),
    },
    "DmaPacketAggregated": {
        "id": ("int64", "", False),
        "program_id": ("int32", "", True),
        "start_ts": ("int64", NS, False),
        "end_ts": ("int64", NS, False),
        "duration_ns": ("int64", NS, False),
        "pcore_idx": ("int8", "", False),
        "queue_idx": ("int8", "", False),
        "queue_name": ("strings", "", False),
        "op": ("strings", "", False),
        "transfer_bytes": ("int64", "bytes", False),
        "pc": ("int32", "", True),
        "completion": ("int64", NS, True),
    },
    "SemaphoreWait": {
        "instruction_id": ("int64", "", True),
        "start_ts": ("int64", NS, True),
        "end_ts": ("int64", NS, True),
        "duration_ns": ("int64", NS, True),
        "blocked_by": ("int64", "", True),
    },
    "Flow": {
        "in_id": ("int64", "", False),
        "out_id": ("int64", "", False),
        "in_table": ("strings", "", False),
        "out_table": ("strings", "", False),
        "gap_time": ("int64", NS, False),
    },
    "Launch": {
        "program_id": ("int32", "", True),
        "kind": ("strings", "", True),
        "start_ts": ("int64", NS, False),
        "end_ts": ("int64", NS, False),
        "host_ts": ("int64", NS, True),
        "device": ("int32", "", True),
        "stream": ("int32", "", True),
        "step": ("int32", "", True),
        "bytes": ("int64", "bytes", True),
        "origin": ("strings", "", True),
    },
    "Step": {
        "step": ("int32", "", True),
        "start_ts": ("int64", NS, True),
        "end_ts": ("int64", NS, True),
        "launches": ("int64", "", True),
    },
}
LAUNCH_KINDS = ["program", "host to device", "device to host", "device copy"]
