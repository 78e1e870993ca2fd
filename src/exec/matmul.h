// nc_matmul's blocking. The stationary operand is packed into panels of `rows` columns of K values, the moving operand
// into panels of `columns`; a tile function multiplies one by the other: for each k in order, one fused multiply-add per
// element, starting from PSUM's value (accumulate) or 0. The bits depend on neither the panel sizes nor the SIMD width.
// The fast set for bf16 (Simd::matmul_bf16) adds the products of two consecutive k at a time: its packed values are pairs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opentrn::exec {

// c[rows][columns of the tile] (+)= a^T b; a: k x rows, dense; b: k x columns, rows b_stride values apart; c_stride in floats.
using MatmulTileFn = void (*)(const float* a, const float* b, int64_t b_stride, size_t k, float* c, int64_t c_stride,
                              bool accumulate);
// Packs n columns of k elements into panels k x width of f32 (pairs: k/2 x width, k is even), `panel` values apart; the
// last panel's missing columns stay as they are. Element (i, j) lies at from + i * stride + j * size, transposed at
// from + j * stride + i * size.
using MatmulPackFn = void (*)(const std::byte* from, int64_t stride, size_t k, size_t n, float* to, size_t width,
                              int64_t panel);

struct Matmul {
  static constexpr int kMaxRows = 16;
  int columns = 0;                        // a multiple of the vector length
  int rows = 0;                           // of the largest tile; 0: the host has no such set
  // Tiles of 1 and 2 rows for moving operands that are not packed; 128 is a multiple of their columns.
  int wide_columns[3] = {};
  MatmulTileFn wide[3] = {};
  int k_step = 1;                         // elements per packed value
  MatmulTileFn tile[kMaxRows + 1] = {};   // by number of rows, 1 .. rows
  MatmulPackFn pack_f32 = nullptr, pack_bf16 = nullptr;
  MatmulPackFn pack_transposed_f32 = nullptr, pack_transposed_bf16 = nullptr;
};

}  // namespace opentrn::exec
