// Rewrites a graph into one that the later passes handle well, with the same values:
//   - reductions to few results are split in two, so that the first half uses all partitions:
//       reduce_sum x[4096, 1024] over (0, 1)   ->   reduce_sum over (1), then over (0)
//       reduce_sum x[N]                        ->   of x as [128, N / 128], then over the 128
//   - reductions of a few elements that are not neighbours in memory become element-wise operations:
//       reduce_sum x[4, 2, 4096] over (1)      ->   x[:, 0] + x[:, 1]
//   - gather_elements, gather_nd and their scatters become gathers and scatters of rows by a computed position:
//       gather_elements x, i along d           ->   gather of x's elements at i * stride(d) + the other coordinates
//   - nodes that no result needs are dropped.
#pragma once

#include "graph/graph.h"

namespace opentrn::compiler {

graph::Graph simplify(const graph::Graph& graph);

}  // namespace opentrn::compiler
