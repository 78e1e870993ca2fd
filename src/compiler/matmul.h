// Batched matrix multiplication on the tensor engine: out[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n],
// accumulated in f32 and converted to the result's dtype. Operands are f32, bf16 or f16 in any layout.
#pragma once

#include <vector>

#include "compiler/kernel_builder.h"
#include "compiler/view.h"

namespace opentrn::compiler {

struct Matmul {
  View lhs;  // [batch..., M, K]
  View rhs;  // [batch..., K, N]
  View out;  // [batch..., M, N]
};

// Writes the share of core `builder.core()` of `cores` as one kernel (without ending it). All batch dimensions of the
// three views have the same sizes (strides may be 0). K, M, N and the batch are at least 1.
void emit_matmul(KernelBuilder& builder, const Matmul& matmul, int cores);

}  // namespace opentrn::compiler
