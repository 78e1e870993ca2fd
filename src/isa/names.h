// Names of opcodes, operations and engines in the text form, and the way back from a name.
// The `name_of` overloads of program.h are the other direction.
#pragma once

#include <optional>
#include <string_view>

#include "isa/program.h"

namespace opentrn::isa {

std::optional<Opcode> opcode_named(std::string_view name);
std::optional<AluOp> alu_op_named(std::string_view name);
std::optional<ActFn> act_fn_named(std::string_view name);
std::optional<Engine> engine_named(std::string_view name);
std::optional<KernelOp> kernel_op_named(std::string_view name);
std::optional<KernelType> kernel_type_named(std::string_view name);

std::string_view name_of(KernelOp op);
std::string_view name_of(KernelType type);
std::string_view name_of(Memory memory);
std::string_view name_of(Buffer::Kind kind);

// Number of register operands (a, b, c) that a kernel instruction reads; load and store count only registers.
int register_operands(KernelOp op);

// What `s0` and `s1` are called for this opcode in the text form: "scale" and "bias" for an activation.
std::string_view scalar_name(Opcode opcode, int index);

// Opcodes that an engine's sequencer handles itself: event_semaphore, rotate, loops, barrier.
bool is_sequencer(Opcode opcode);

}  // namespace opentrn::isa
