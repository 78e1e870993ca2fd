// What an Executable holds for each core: its instructions as a flat list of steps with linked loops.
#pragma once

#include <memory>
#include <vector>

#include "exec/interpreter.h"
#include "exec/operation.h"

namespace opentrn::exec {

struct Step {
  enum class Kind : uint8_t { execute, rotate, loop_begin, loop_end, barrier } kind = Kind::execute;
  int16_t reg = -1;      // rotate: slot register; loops: loop register
  int16_t pool = -1;     // rotate
  int32_t depth = 1;     // rotate: slots of the pool
  int32_t target = 0;    // loop_end: the first step of the body
  int32_t instruction = -1;
  int64_t count = 0;     // loop_end: trip count
  const Operation* operation = nullptr;
};

struct Executable::Code {
  std::vector<Step> steps;
  std::vector<std::unique_ptr<Operation>> operations;
  int loop_registers = 0, slot_registers = 0, pools = 0;
  int barriers = 0;
};

// Appends a core's instructions to `code`. Throws UserError where loops are not nested.
void decode(const isa::Program& program, const isa::CoreProgram& core, const Context& context, Executable::Code& code);

}  // namespace opentrn::exec
