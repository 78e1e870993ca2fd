// Gather and scatter of rows by an index tensor, through indirect DMA.
#pragma once

#include "compiler/kernel_builder.h"
#include "compiler/view.h"

namespace opentrn::compiler {

// out[a..., i, r] = source[a..., indices[i], r]; an index outside the dimension is a run-time error.
struct Gather {
  View source;   // [outer, rows, row elements]
  View indices;  // [count], i32 or i64
  View out;      // [outer, count, row elements]
};

// target[a, indices[i], r] = or += updates[a, i, r], in the order of i. The target has its initial values already.
struct Scatter {
  View target;   // [outer, rows, row elements]
  View indices;  // [count], i32 or i64
  View updates;  // [outer, count, row elements]
  bool accumulate = false;
};

void emit_gather(KernelBuilder& builder, const Gather& gather, int cores);
void emit_scatter(KernelBuilder& builder, const Scatter& scatter, int cores);

}  // namespace opentrn::compiler
