// Conversion of dense rows between element types, as tensor_copy and dma_copy define it.
// Integers convert exactly (modulo 2^bits), to floats with one rounding; floats to 32 and 64-bit integers truncate and
// saturate (NaN: the minimum, 0 if unsigned); floats to 8 and 16-bit integers truncate and wrap as PyTorch does
// (beyond 32 bits: 0); anything to bool is x != 0; f64 reaches formats narrower than f32 through f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace opentrn::exec {

// n elements; the rows do not overlap.
using ConvertFn = void (*)(const void* from, void* to, size_t n);

// Null when the types are equal. Throws Unsupported for complex and packed types.
ConvertFn convert_fn(DType from, DType to);

}  // namespace opentrn::exec
