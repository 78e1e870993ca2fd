// The discrete-event timing of a program: every engine, queue and DMA engine of its cores, from one canonical
// entry state (engines idle, tensor engine cold, no activation table, queues empty).
// Loops are timed event by event until the state repeats at a loop's back edge, then skipped ahead exactly.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "isa/program.h"
#include "spec/chip.h"

namespace opentrn::cost {

struct EngineTime {
  // Union of the instructions' active intervals, as profilers count them: from start to completion; on the tensor
  // engine exposed stationary loads and streaming; of a DMA instruction its trigger only.
  int64_t busy_ps = 0;
  int64_t wait_ps = 0;         // blocked on semaphores
  int64_t instructions = 0;    // executed, loops expanded
  bool operator==(const EngineTime&) const = default;
};

struct CoreTime {
  int64_t end_ps = 0;
  std::array<EngineTime, isa::kEngines> engines;
  int64_t dma_active_ps = 0;   // union of all DMA engines' busy intervals
  int64_t dma_bytes = 0;       // payload
  int64_t hbm_read_bytes = 0, hbm_write_bytes = 0;
  int64_t dma_transfers = 0;
  int64_t matmul_flops = 0;    // 2*K*M*N of every nc_matmul executed (hardware FLOPs)
  int64_t throttled_ps = 0;    // tensor engine busy at less than the full rate
  bool operator==(const CoreTime&) const = default;
};

struct ProgramTime {
  int64_t total_ps = 0;        // first trigger to last semaphore, over all cores
  std::vector<CoreTime> cores;
  int64_t events = 0;          // instructions and transfers that were scheduled one by one
  int64_t skipped_events = 0;  // covered by skipping loops ahead
};

// One executed instruction or transfer on the timeline.
struct Event {
  int32_t core = 0, instruction = 0;  // index into CoreProgram::code
  int8_t track = 0;                   // 0..4 engines, 5 + q DMA queue q
  int64_t start_ps = 0, end_ps = 0;   // busy interval (for a queue: first byte to last byte)
  int64_t wait_ps = 0;                // blocked before start
  int64_t visible_ps = 0;             // result visible / posts issued
  int32_t blocked_by = -1;            // index of the event whose completion was waited for last, -1 if none
  int64_t bytes = 0;
};

struct Timeline {
  std::vector<Event> events;   // in the order of their starts
  int64_t dropped = 0;         // events beyond `limit`, or inside skipped loops
};

// Throws InternalError on deadlock (verify first).
ProgramTime time_program(const isa::Program& program, const spec::Chip& chip);

// The same times with every event scheduled one by one: what skipping ahead is compared with in tests, and what
// measures the simulation's own speed.
ProgramTime time_program_event_by_event(const isa::Program& program, const spec::Chip& chip);

// The same times, with every event recorded (no skipping ahead) up to `limit` events.
ProgramTime record_timeline(const isa::Program& program, const spec::Chip& chip, Timeline& timeline,
                            int64_t limit = 1'000'000);

}  // namespace opentrn::cost
