// The keys of kernels: what decides which program a graph becomes, and nothing else.
#pragma once

#include "graph/graph.h"
#include "isa/program.h"
#include "runtime/hash.h"

namespace opentrn::runtime {

Key key_of(const graph::Graph& graph);
Key key_of(const isa::Program& program);

}  // namespace opentrn::runtime
