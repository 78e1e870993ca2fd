// What one instruction costs on a chip, in isolation and back to back.
#pragma once

#include <cstdint>

#include "isa/program.h"
#include "spec/chip.h"

namespace opentrn::cost {

// Times in integer picoseconds, so that modelled time is the same on every host.
struct Cost {
  int64_t issue_ps = 0;       // the engine is occupied; the next instruction may start after it
  int64_t completion_ps = 0;  // from start to the result being visible (posts, dependent instructions)
  int64_t columns_ps = 0;     // nc_matmul: the moving columns at full rate (the part the power ramp slows)
  int64_t load_ps = 0;        // nc_matmul: loading the stationary operand, hidden behind the previous matmul
};

// Compute and sequencer instructions (not DMA). An activation's table load is not included.
Cost cost(const isa::Instruction& instruction, const isa::Program& program, const spec::Chip& chip);

// DMA: how the transfer spreads over the DMA engines.
struct Transfer {
  int engines = 0;             // DMA engines used
  int64_t engine_ps = 0;       // each one's occupancy
  int64_t start_ps = 0;        // trigger to first byte
  int64_t issue_ps = 0;        // the triggering engine's occupancy
  int64_t complete_ps = 0;     // last byte to the waiting engine
  int64_t bytes = 0;           // payload (the larger side)
  int64_t descriptors = 0;
};
Transfer transfer(const isa::Instruction& instruction, const isa::Program& program, const spec::Chip& chip);

// Completion of an instruction run alone on an idle core, in ns, as probes of single instructions report it:
// tensor engine cold, table loaded; for DMA the occupancy of the queue (the documented bandwidth curve).
double isolated_ns(const isa::Instruction& instruction, const isa::Program& program, const spec::Chip& chip);

}  // namespace opentrn::cost
