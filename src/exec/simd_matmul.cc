// Matrix multiplication: register-blocked tiles and packing.
#include <algorithm>
#include <cstring>

#include "exec/simd.h"
#include "exec/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/simd_matmul.cc"
#include "hwy/foreach_target.h"
// Highway and the -inl header after foreach_target.
#include "exec/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace opentrn::exec {
namespace HWY_NAMESPACE {
namespace {

// Rows x vectors of accumulators that fit the register file beside the moving row and one broadcast value.
#if HWY_TARGET == HWY_AVX3
constexpr int kRows = 14, kVectors = 2;
#elif HWY_ARCH_ARM_A64 && !OPENTRN_EMULATED
constexpr int kRows = 6, kVectors = 4;
#elif OPENTRN_EMULATED
constexpr int kRows = 4, kVectors = 4;
#else
constexpr int kRows = 6, kVectors = 2;
#endif

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

template <int kTileRows>
void Tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t k, float* c, int64_t c_stride, bool accumulate) {
  const D d;
  constexpr size_t kLanes = kMaxLanes<D>;
  V sum[kTileRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = accumulate ? hn::LoadU(d, c + r * c_stride + v * kLanes) : hn::Zero(d);
  }
  for (size_t i = 0; i < k; ++i) {
    V moving[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) moving[v] = hn::LoadU(d, b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      const V stationary = hn::Set(d, a[r]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Fma(d, stationary, moving[v], sum[r][v]);
    }
    a += kTileRows;
    b += kVectors * kLanes;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, c + r * c_stride + v * kLanes);
  }
}

template <int kTileRows>
void SetTiles(Matmul& matmul) {
  matmul.tile[kTileRows] = Tile<kTileRows>;
  if constexpr (kTileRows > 1) SetTiles<kTileRows - 1>(matmul);
}

void PackF32(const std::byte* from, int64_t stride_bytes, size_t k, size_t n, float* to, size_t width) {
  const D d;
  constexpr size_t kLanes = kMaxLanes<D>;
  if (n == width && width % kLanes == 0) {
    for (size_t i = 0; i < k; ++i, from += stride_bytes, to += width)
      for (size_t j = 0; j < width; j += kLanes)
        hn::StoreU(hn::LoadU(d, reinterpret_cast<const float*>(from) + j), d, to + j);
    return;
  }
  for (size_t i = 0; i < k; ++i, from += stride_bytes, to += width) {
    std::memcpy(to, from, n * 4);
    std::fill(to + n, to + width, 0.0f);
  }
}

void PackBf16(const std::byte* from, int64_t stride_bytes, size_t k, size_t n, float* to, size_t width) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> dh;
  constexpr size_t kLanes = kMaxLanes<D>;
  if (n == width && width % kLanes == 0) {
    for (size_t i = 0; i < k; ++i, from += stride_bytes, to += width)
      for (size_t j = 0; j < width; j += kLanes) {
        const auto bits = hn::LoadU(dh, reinterpret_cast<const uint16_t*>(from) + j);
        hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits))), d, to + j);
      }
    return;
  }
  for (size_t i = 0; i < k; ++i, from += stride_bytes, to += width) {
    auto* y = reinterpret_cast<uint32_t*>(to);
    for (size_t j = 0; j < n; ++j) {
      uint16_t bits;
      std::memcpy(&bits, from + j * 2, 2);
      const uint32_t wide = static_cast<uint32_t>(bits) << 16;
      std::memcpy(y + j, &wide, 4);
    }
    std::fill(to + n, to + width, 0.0f);
  }
}

void Fill(Simd& table) {
  Matmul& matmul = table.matmul;
  matmul.rows = kRows;
  matmul.columns = static_cast<int>(kVectors * kMaxLanes<D>);
  SetTiles<kRows>(matmul);
  matmul.pack_f32 = PackF32;
  matmul.pack_bf16 = PackBf16;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace opentrn::exec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opentrn::exec {
HWY_EXPORT(Fill);
void fill_matmul(Simd& table) { HWY_DYNAMIC_DISPATCH(Fill)(table); }
}  // namespace opentrn::exec
#endif
