// The type rules of the tensor IR: what each operation accepts and which type it gives.
// Builder and verifier share them, so that a graph that builds also verifies.
#pragma once

#include "graph/graph.h"

namespace opentrn::graph {

// The type of `node`'s result, from its operands (which are in `graph`) and attributes. Sources and operations whose
// dtype or shape is an attribute (convert, bitcast, reshape, broadcast_in_dim, dot_general, iota, random_bits) take it
// from node.type. Throws UserError naming the operation and the rule it breaks.
Type infer(const Graph& graph, const Node& node);

// Shape to which operands of the two shapes are broadcast (NumPy rules); throws UserError when there is none.
Shape broadcast_shapes(const Shape& a, const Shape& b);

std::string to_string(const Type& type);  // f32[2,3]

}  // namespace opentrn::graph
