// The cost of a GpSimd register program, from its own text.
#pragma once

#include "isa/program.h"
#include "spec/chip.h"

namespace opentrn::cost {

// Cycles that the busiest GpSimd core spends in a gpsimd_kernel instruction, without its start. Each core works on the
// partitions it is tied to, `lanes / cores` elements of 32 bits at a time.
double kernel_cycles(const isa::Instruction& instruction, const isa::Program& program, const spec::Chip& chip);

}  // namespace opentrn::cost
