// Which instruction carries out an element-wise graph operation: an activation function, an ALU operation of the
// vector engine, or a register program of GpSimd.
#pragma once

#include <optional>

#include "graph/graph.h"
#include "isa/program.h"

namespace opentrn::compiler {

// Types that the vector and scalar engines compute on exactly as PyTorch does (through f32).
bool is_engine_type(DType dtype);

std::optional<isa::ActFn> activation_of(graph::Op op);
std::optional<isa::AluOp> alu_of(graph::Op op);

// The ALU operation that combines partial results of a reduction, and the value it starts from.
isa::AluOp reduction_alu(graph::Op op);
double reduction_identity(graph::Op op, DType dtype);

// A register of a row program: an operand, a constant or a launch scalar.
struct KernelOperand {
  enum class Kind : uint8_t { operand, constant, argument } kind = Kind::operand;
  int index = 0;         // operand: position among the sources; argument: index into Program::scalars
  double real = 0;
  int64_t integer = 0;
  DType dtype = DType::f32;
};

// The register type that computes on a dtype: i32 for the narrow integers and bool, f32 for the narrow floats.
isa::KernelType kernel_type(DType dtype);

// dst = op(operands), element by element; `destination` is the operand number of the result. Throws Unsupported.
isa::GpsimdKernel elementwise_kernel(graph::Op op, DType result, const std::vector<KernelOperand>& operands,
                                     int destination);
// The accumulator (operand 1) is updated with the row of operand 0.
isa::GpsimdKernel reduction_kernel(graph::Op op, DType dtype);
// Best value (operand 1) and its position (operand 2, i64) are updated with the row of operand 0.
isa::GpsimdKernel arg_reduction_kernel(graph::Op op, DType dtype);
// Positions (iota): operand 0 = index, converted.
isa::GpsimdKernel iota_kernel(DType dtype);
// Philox4x32-10: with n = offset + index, word n % 4 of the block with counter n / 4 and the key `seed`; offset and seed
// are launch scalars.
isa::GpsimdKernel philox_kernel(int seed_argument, int offset_argument);

}  // namespace opentrn::compiler
