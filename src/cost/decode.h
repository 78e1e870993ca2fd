// A core's code split into one compact list of steps per engine, with every cost computed once.
// This is what the timing simulation walks; nothing here depends on time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "isa/program.h"
#include "spec/chip.h"

namespace opentrn::cost {

struct Step {
  enum class Kind : uint8_t { compute, matmul, dma, barrier, loop_begin, loop_end, end };
  Kind kind = Kind::end;
  bool takes_port = false;     // uses the port that the vector engine's performance modes share with GpSimd
  int16_t table = -1;          // activation table set needed
  uint16_t waits = 0, posts = 0, dependencies = 0;  // how many, from first_*
  int32_t first_wait = 0, first_post = 0, first_dependency = 0;
  int32_t instruction = 0;     // index into CoreProgram::code
  int32_t detail = 0;          // dma: into `transfers`; matmul: into `matmuls`; loops: loop number
  int32_t target = 0;          // loop_end: step after its loop_begin
  int32_t done_slot = -1;      // where the completion time is kept for dependent instructions, -1: nobody asks
  int64_t issue_ps = 0, completion_ps = 0;
  int64_t count = 0;           // loop_begin: trip count
};

struct MatmulStep {
  int64_t full_ps = 0, cold_ps = 0;  // streaming time at the full rate and while throttled
  int64_t load_ps = 0;               // stationary load
  int64_t latency_ps = 0;            // from the last column to the result
  int64_t flops = 0;
};

struct TransferStep {
  int32_t queue = 0;
  int32_t engines = 0;
  int64_t engine_ps = 0, start_ps = 0, complete_ps = 0, hbm_ps = 0;
  int64_t bytes = 0, hbm_read_bytes = 0, hbm_write_bytes = 0;
};

struct SemaphoreUse {
  int32_t semaphore = 0;
  int32_t count = 0;
};

struct Loop {
  int64_t count = 0;
  int leader = -1;       // the engine whose back edges are compared when looking for a steady state
  bool has_barrier = false;
};

struct DecodedCore {
  std::array<std::vector<Step>, isa::kEngines> steps;  // each ends with Kind::end
  std::vector<MatmulStep> matmuls;
  std::vector<TransferStep> transfers;
  std::vector<SemaphoreUse> waits, posts;
  std::vector<int32_t> dependencies;    // done slots
  std::vector<Loop> loops;              // in program order
  std::vector<int32_t> initial;         // semaphores
  std::vector<uint8_t> waiters;         // per semaphore: bit e set when engine e waits for it
  int done_slots = 0;
  int barriers = 0;                     // static count
  bool several_cores = false;
};

// A chip's numbers that the simulation needs, in picoseconds.
struct CoreParameters {
  int64_t semaphore_latency_ps = 0, table_load_ps = 0, barrier_ps = 0;
  int64_t ramp_ps = 0;         // window of the tensor engine's power ramp, 0: none
  int64_t ramp_fill = 0, ramp_drain = 0;  // credit per ps of streaming and of idling, in 1/1024
  int dma_engines = 0;
};

DecodedCore decode(const isa::Program& program, int core, const spec::Chip& chip);
CoreParameters parameters_of(const isa::Program& program, const spec::Chip& chip);

}  // namespace opentrn::cost
