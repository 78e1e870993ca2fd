// Small damages to a program, one at a time, for the test that every instruction matters: after each of them the
// verifier objects or the outputs change.
#pragma once

#include <cstddef>
#include <string>

#include "isa/program.h"

namespace opentrn::isa {

// Number of mutations of this program. Only fields that its instructions use are changed.
size_t mutation_count(const Program& program);

// Applies mutation `which` (below mutation_count) and says what was done, for example
// "core 0, instruction 12: wait on 'x_ready' deleted".
std::string mutate(Program& program, size_t which);

}  // namespace opentrn::isa
