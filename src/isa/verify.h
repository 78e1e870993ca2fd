// Checks a program against the chip's rules and proves that it has no race and no deadlock.
//
// Rules: operand shapes and dtypes of each instruction, partition starts (multiples allowed for the count),
// SBUF and PSUM capacity, PSUM banks, addresses inside their buffer for every iteration (affine bounds),
// loops properly nested, registers defined before use, register programs well formed.
// Order: the code is walked in program order with every loop cut to a few iterations (enough to see each
// rotation wrap: at least two, congruent to the trip count modulo the pools' depths); each wait must be
// satisfied by earlier posts, semaphores must end at their initial values, every read of on-chip memory must
// follow a write, and two accesses to the same bytes, one of them a write, must be ordered by engine order,
// queue order, semaphores or barriers. Outputs must be written unless aliased.
#pragma once

#include <string>
#include <vector>

#include "isa/program.h"
#include "spec/chip.h"

namespace opentrn::isa {

struct Finding {
  int core = 0;
  int instruction = -1;  // index into CoreProgram::code, -1 for the program as a whole
  std::string message;
};

// All findings, an empty list when the program is sound.
std::vector<Finding> check(const Program& program, const spec::Chip& chip);

// Throws UserError listing the first findings with the instructions concerned.
void verify(const Program& program, const spec::Chip& chip);

}  // namespace opentrn::isa
