// Verifies each instruction by itself: engine, operand count, shapes, dtypes, partitions, banks, address bounds.
// Needs a program whose structure is sound.
#pragma once

#include "isa/findings.h"

namespace opentrn::isa {

void check_operands(const Program& program, const spec::Chip& chip, Findings& findings);

// Whether the engine has the instruction (facts of the public ISA; sequencer instructions run everywhere).
bool engine_has(Engine engine, Opcode opcode);

}  // namespace opentrn::isa
