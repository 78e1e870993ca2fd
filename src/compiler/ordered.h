// Operations along one dimension whose elements depend on each other: cumulative sums and the like, and top-k.
#pragma once

#include "compiler/kernel_builder.h"
#include "compiler/view.h"
#include "graph/graph.h"

namespace opentrn::compiler {

// out[r, i] = combination of in[r, 0 .. i].
struct Scan {
  graph::Op op = graph::Op::cumulative_sum;
  View in, out;  // [rows..., n]
};

// The k largest (or smallest) of each row in order, and their positions (i64). The first of equal values comes first;
// NaN counts as the greatest value. k = n sorts, stably.
struct TopK {
  View in;                 // [rows..., n]
  View values, positions;  // [rows..., k]
  int64_t k = 1;
  bool descending = true;
};

void emit_scan(KernelBuilder& builder, const Scan& scan, int cores);
void emit_top_k(KernelBuilder& builder, const TopK& top_k, int cores);

}  // namespace opentrn::compiler
