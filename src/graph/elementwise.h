// Evaluation of element-wise operations, of conversions and of the combining functions of reductions and scatters.
// f64 is computed in f64; f32 in f32 (elementary functions correctly rounded or nearly so); narrower floats in f32,
// rounded to their dtype once per operation; integers wrap.
#pragma once

#include <span>

#include "graph/graph.h"

namespace opentrn::graph {

// A row-major tensor in memory.
struct Dense {
  Type type;
  std::vector<std::byte> bytes;

  Dense() = default;
  explicit Dense(Type t) : type(std::move(t)), bytes(elements(type.shape) * size_of(type.dtype)) {}
  const std::byte* data() const { return bytes.data(); }
  std::byte* data() { return bytes.data(); }
};

bool is_elementwise(Op op);
// Operands have the result's number of elements. Throws UserError for an integer division by zero.
void evaluate_elementwise(const Node& node, std::span<const Dense* const> operands, Dense& out);

// Special functions that the C++ library lacks.
double digamma(double x);
double erfinv(double x);

}  // namespace opentrn::graph
