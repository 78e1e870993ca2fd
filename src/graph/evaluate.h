// A slow, plain evaluator of graphs, for tests: every operation as a loop over elements, no fusion, no tiles.
// Arithmetic: f16, bf16 and f8 values are computed in f32 and rounded to their dtype after every operation. Sums,
// products and dot products accumulate in f64 and round once, so that they bound the error of any order of f32 sums.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace opentrn::graph {

struct ScalarInput {
  double real = 0;
  int64_t integer = 0;
};

// `parameters[i]` points at the address of the i-th parameter (its layout applies), `results[i]` likewise.
// Throws UserError for an index out of range.
void evaluate(const Graph& graph, std::span<const std::byte* const> parameters, std::span<const ScalarInput> scalars,
              std::span<std::byte* const> results);

}  // namespace opentrn::graph
