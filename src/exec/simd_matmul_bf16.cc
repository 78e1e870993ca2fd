// The fast matrix multiplication of bf16 operands with the dot instructions of AVX512_BF16: each step adds the products of
// two consecutive k to an f32, denormals count as zero. Not part of the Highway targets, whose results are the same bits.
#include <cstring>
#include <string_view>

#include "exec/simd.h"

#if defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 10)
#include <immintrin.h>

#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of GCC 12's own intrinsics

namespace opentrn::exec {
namespace {

#define OPENTRN_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

constexpr int kRows = 14, kVectors = 2, kColumns = 16 * kVectors;

template <int kTileRows>
OPENTRN_BF16 void tile(const float* a, const float* b, int64_t b_stride, size_t k, float* c, int64_t c_stride, bool accumulate) {
  __m512 sum[kTileRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[r][v] = accumulate ? _mm512_loadu_ps(c + r * c_stride + v * 16) : _mm512_setzero_ps();
  for (size_t i = 0; i < k; ++i, a += kTileRows, b += b_stride) {
    __m512bh moving[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) moving[v] = (__m512bh)_mm512_loadu_ps(b + v * 16);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      const __m512bh stationary = (__m512bh)_mm512_set1_ps(a[r]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], stationary, moving[v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(c + r * c_stride + v * 16, sum[r][v]);
}

template <int kTileRows>
void set_tiles(Matmul& matmul) {
  matmul.tile[kTileRows] = tile<kTileRows>;
  if constexpr (kTileRows > 1) set_tiles<kTileRows - 1>(matmul);
}

uint16_t load16(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return bits;
}

// Words of the elements k (low half) and k + 1 of a column.
OPENTRN_BF16 void pack(const std::byte* from, int64_t stride, size_t k, size_t n, float* to, size_t width, int64_t panel) {
  for (size_t i = 0; i < k; i += 2, from += 2 * stride) {
    for (size_t j = 0; j < n; j += width) {
      const size_t m = n - j < width ? n - j : width;
      float* row = to + static_cast<int64_t>(j / width) * panel + i / 2 * width;
      const std::byte* low = from + j * 2;
      size_t c = 0;
      for (; c + 16 <= m; c += 16) {
        const __m512i p = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low + c * 2)));
        const __m512i q = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low + stride + c * 2)));
        _mm512_storeu_si512(row + c, _mm512_or_si512(p, _mm512_slli_epi32(q, 16)));
      }
      for (; c < m; ++c) {
        const uint32_t word = load16(low + c * 2) | static_cast<uint32_t>(load16(low + stride + c * 2)) << 16;
        std::memcpy(row + c, &word, 4);
      }
    }
  }
}

// A column's pairs are words in memory already.
void pack_transposed(const std::byte* from, int64_t stride, size_t k, size_t n, float* to, size_t width, int64_t panel) {
  simd().matmul.pack_transposed_f32(from, stride, k / 2, n, to, width, panel);
}

}  // namespace

void fill_matmul_bf16(Simd& table) {
  if (std::string_view(table.target) != "AVX3" || !__builtin_cpu_supports("avx512bf16")) return;
  Matmul& matmul = table.matmul_bf16;
  matmul.rows = kRows;
  matmul.columns = kColumns;
  matmul.k_step = 2;
  set_tiles<kRows>(matmul);
  matmul.pack_bf16 = pack;
  matmul.pack_transposed_bf16 = pack_transposed;
}

}  // namespace opentrn::exec
#else
namespace opentrn::exec {
void fill_matmul_bf16(Simd&) {}
}  // namespace opentrn::exec
#endif
