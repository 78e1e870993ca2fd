// Elementary and special functions of gpsimd_kernel, and the function that carries out one register operation.
#pragma once

#include "exec/simd.h"
#include "isa/program.h"

namespace opentrn::exec {

// The row function of an operation other than load, store, constant, argument, index, column, convert and bitcast.
// f32 functions are evaluated in double and rounded; f64 ones are the C library's. Throws UserError for a function
// that the type does not have.
RegisterFn register_fn(isa::KernelOp op, isa::KernelType type);

double erfinv(double x);
double digamma(double x);

}  // namespace opentrn::exec
