// Splits a graph into kernels: fused kernels, matrix multiplications, gathers, scatters, scans. Every task reads and
// writes HBM views; tasks run one after the other.
#pragma once

#include <variant>
#include <vector>

#include "compiler/fused.h"
#include "compiler/indexed.h"
#include "compiler/matmul.h"
#include "compiler/ordered.h"
#include "graph/graph.h"
#include "isa/program.h"

namespace opentrn::compiler {

using Task = std::variant<Fused, Matmul, Gather, Scatter, Scan, TopK>;

// Tasks in execution order. Fills `program.buffers` (parameters, results, scratch) and `program.scalars`.
// Throws Unsupported naming the node that has no kernel.
std::vector<Task> plan(const graph::Graph& graph, isa::Program& program);

}  // namespace opentrn::compiler
