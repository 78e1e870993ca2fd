// A fused kernel: element-wise operations and reductions over one iteration space, read from and written to HBM views.
// Iteration dimensions are either kept (they index the results) or reduced. Every value knows which dimensions it
// varies over; a value that does not vary over a dimension is broadcast along it.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/kernel_builder.h"
#include "compiler/view.h"
#include "graph/graph.h"

namespace opentrn::compiler {

struct FusedValue {
  enum class Kind : uint8_t { view, scalar, constant, iota, random, op, reduce } kind = Kind::op;
  graph::Op op = graph::Op::parameter;
  DType dtype = DType::f32;
  std::vector<int> operands;      // indices into Fused::values
  int buffer = -1;                // view
  int64_t offset = 0;             // view: elements; iota and random: first value
  std::vector<int64_t> strides;   // view, iota, random: per iteration dimension
  int argument = -1;              // scalar: index into Program::scalars
  int second_argument = -1;       // random: scalars of seed and offset
  double real = 0;                // constant
  int64_t integer = 0;
  uint64_t varies = 0;            // bit d: depends on iteration dimension d
  int32_t origin = -1;
};

struct FusedOutput {
  int value = -1;
  int buffer = -1;
  int64_t offset = 0;
  std::vector<int64_t> strides;   // per iteration dimension, 0 for reduced ones
};

struct Fused {
  std::vector<int64_t> sizes;     // iteration dimensions
  uint64_t reduced = 0;           // bit d: dimension d is reduced
  std::vector<FusedValue> values; // operands before users
  std::vector<FusedOutput> outputs;
};

// Writes the share of core `builder.core()` of `cores` as one kernel (without ending it).
// Throws Unsupported when an operation has no instruction or the values do not fit into SBUF.
void emit_fused(KernelBuilder& builder, Fused fused, int cores);

}  // namespace opentrn::compiler
