// The text form of a program: what `opentrn show` prints and `opentrn exec` reads.
// print and parse are inverse: parse(print(p)) has the same instructions as p.
#pragma once

#include <string>
#include <string_view>

#include "isa/program.h"

namespace opentrn::isa {

std::string print(const Program& program);
// One instruction as a line, without its indentation.
std::string print(const Instruction& instruction, const CoreProgram& core, const Program& program);

// Throws UserError with line and column, what was expected and what was found.
Program parse(std::string_view text);

}  // namespace opentrn::isa
