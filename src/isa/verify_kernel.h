// Verifies a GpSimd register program: registers defined before use, types consistent, operations that exist for
// their type, operands that exist.
#pragma once

#include "isa/findings.h"

namespace opentrn::isa {

// The program by itself; findings carry instruction -1 and name the kernel.
void check_kernel(const GpsimdKernel& kernel, const Program& program, Findings& findings);

// One use of it: operand numbers and shapes of `instruction` (core, index: where the findings go).
void check_kernel_use(const GpsimdKernel& kernel, const Instruction& instruction, int core, int index,
                      Findings& findings);

}  // namespace opentrn::isa
