// Proves that a program has no race and no deadlock: walks each core in program order with vector clocks over
// engines and queues, loops cut to a few iterations of which the last stands for all that remain.
// Also finds reads of on-chip memory that was not written, and outputs that are not written. The argument why a
// few iterations suffice is in docs/program-text.md.
#pragma once

#include "isa/findings.h"

namespace opentrn::isa {

// Needs a program whose structure and operands are sound.
void check_order(const Program& program, const spec::Chip& chip, Findings& findings);

}  // namespace opentrn::isa
