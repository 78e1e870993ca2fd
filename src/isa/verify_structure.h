// Verifies a program's frame: declarations, memory capacity, loop nesting, registers and indices.
// The other parts of the verifier may rely on every index being in range when this one found nothing.
#pragma once

#include "isa/findings.h"

namespace opentrn::isa {

void check_structure(const Program& program, const spec::Chip& chip, Findings& findings);

}  // namespace opentrn::isa
