// nc_matmul's blocking. The stationary operand is packed into panels of `rows` columns of K values, the moving operand
// into panels of `columns`; a tile function multiplies one by the other: for each k in order, one fused multiply-add per
// element, starting from PSUM's value (accumulate) or 0. The bits depend on neither the panel sizes nor the SIMD width.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opentrn::exec {

// c[rows][columns of the tile] (+)= a^T b; a: k x rows, b: k x columns, both dense; c_stride in floats.
using MatmulTileFn = void (*)(const float* a, const float* b, size_t k, float* c, int64_t c_stride, bool accumulate);
// Copies k rows of n <= width elements (dense in a row, stride_bytes apart) into a dense k x width panel of f32, zero filled.
using MatmulPackFn = void (*)(const std::byte* from, int64_t stride_bytes, size_t k, size_t n, float* to, size_t width);

struct Matmul {
  static constexpr int kMaxRows = 16;
  int columns = 0;                        // a multiple of the vector length
  int rows = 0;                           // of the largest tile
  MatmulTileFn tile[kMaxRows + 1] = {};   // by number of rows, 1 .. rows
  MatmulPackFn pack_f32 = nullptr, pack_bf16 = nullptr;
};

}  // namespace opentrn::exec
