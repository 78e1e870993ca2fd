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
#include "exec/simd_rows-inl.h"
#include "hwy/cache_control.h"
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

// Vectors of the wide tiles of one and two rows.
constexpr int kWide1 = 8, kWide2 = HWY_TARGET == HWY_AVX2 || OPENTRN_EMULATED ? 4 : 8;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// `kFar`: the rows of b are far apart, where the host does not prefetch by itself.
template <int kTileRows, int kVectors, bool kFar = false>
void Tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t b_stride, size_t k, float* c, int64_t c_stride,
          bool accumulate) {
  const D d;
  constexpr size_t kLanes = kMaxLanes<D>;
  V sum[kTileRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = accumulate ? hn::LoadU(d, c + r * c_stride + v * kLanes) : hn::Zero(d);
  }
  for (size_t i = 0; i < k; ++i) {
    V moving[kVectors];
    if constexpr (kFar) {
      const float* ahead = b + 8 * b_stride;
      for (size_t v = 0; v < kVectors * kLanes; v += 16) hwy::Prefetch(ahead + v);
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) moving[v] = hn::LoadU(d, b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      const V stationary = hn::Set(d, a[r]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Fma(d, stationary, moving[v], sum[r][v]);
    }
    a += kTileRows;
    b += b_stride;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, c + r * c_stride + v * kLanes);
  }
}

template <int kTileRows>
void SetTiles(Matmul& matmul) {
  matmul.tile[kTileRows] = Tile<kTileRows, kVectors>;
  if constexpr (kTileRows > 1) SetTiles<kTileRows - 1>(matmul);
}

template <class Row, class DN>
HWY_INLINE size_t CopyWhole(DN d, const std::byte* from, float* to, size_t j, size_t n) {
  for (; j + hn::Lanes(d) <= n; j += hn::Lanes(d)) hn::StoreU(Row::Load(d, from, j), d, to + j);
  return j;
}

template <class Row>
HWY_INLINE void CopyRow(const std::byte* from, float* to, size_t n) {
  size_t j = CopyWhole<Row>(D(), from, to, 0, n);
  j = CopyWhole<Row>(hn::CappedTag<float, 4>(), from, to, j, n);
  j = CopyWhole<Row>(hn::CappedTag<float, 2>(), from, to, j, n);
  CopyWhole<Row>(hn::CappedTag<float, 1>(), from, to, j, n);
}

// Panels of a width that the compiler knows.
template <class Row, size_t kWidth>
HWY_INLINE void PackRow(const std::byte* from, size_t n, float* row, int64_t panel) {
  size_t j = 0;
  for (; j + kWidth <= n; j += kWidth, row += panel) CopyRow<Row>(from + j * Row::kBytes, row, kWidth);
  if (j < n) CopyRow<Row>(from + j * Row::kBytes, row, n - j);
}

// Row by row over all panels, so that memory is read in order.
template <class Row>
void Pack(const std::byte* from, int64_t stride, size_t k, size_t n, float* to, size_t width, int64_t panel) {
  constexpr size_t kColumns = kVectors * kMaxLanes<D>;
  for (size_t i = 0; i < k; ++i, from += stride, to += width) {
    if (width == kColumns) {
      PackRow<Row, kColumns>(from, n, to, panel);
    } else if (width == kRows) {
      PackRow<Row, kRows>(from, n, to, panel);
    } else {
      float* row = to;
      for (size_t j = 0; j < n; j += width, row += panel) CopyRow<Row>(from + j * Row::kBytes, row, std::min(width, n - j));
    }
  }
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// Four elements of two columns.
template <class Row>
HWY_INLINE hn::Vec<hn::FixedTag<uint32_t, 8>> LoadTwo(const std::byte* low, const std::byte* high) {
  const hn::FixedTag<uint32_t, 8> d;
  if constexpr (Row::kBytes == 4) {
    const hn::FixedTag<uint32_t, 4> half;
    return hn::Combine(d, hn::LoadU(half, reinterpret_cast<const uint32_t*>(high)), hn::LoadU(half, reinterpret_cast<const uint32_t*>(low)));
  } else {
    const hn::FixedTag<uint16_t, 4> half;
    const hn::FixedTag<uint16_t, 8> both;
    const auto bits = hn::Combine(both, hn::LoadU(half, reinterpret_cast<const uint16_t*>(high)), hn::LoadU(half, reinterpret_cast<const uint16_t*>(low)));
    return hn::ShiftLeft<16>(hn::PromoteTo(d, bits));
  }
}

// The first kCount of 8 values.
template <size_t kCount>
HWY_INLINE void StoreFirst(hn::Vec<hn::FixedTag<uint64_t, 4>> v, float* to) {
  const hn::FixedTag<float, 8> d;
  const hn::Half<decltype(d)> d4;
  const hn::Half<decltype(d4)> d2;
  const hn::Half<decltype(d2)> d1;
  const auto x = hn::BitCast(d, v);
  if constexpr (kCount == 8) {
    hn::StoreU(x, d, to);
    return;
  }
  auto rest = hn::LowerHalf(d4, x);
  if constexpr (kCount >= 4) {
    hn::StoreU(rest, d4, to);
    to += 4;
    rest = hn::UpperHalf(d4, x);
  }
  if constexpr (kCount & 2) {
    hn::StoreU(hn::LowerHalf(d2, rest), d2, to);
    to += 2;
  }
  if constexpr (kCount & 1) hn::StoreU(hn::LowerHalf(d1, kCount & 2 ? hn::UpperHalf(d2, rest) : hn::LowerHalf(d2, rest)), d1, to);
}

// Blocks of 8 columns and 4 elements, transposed in registers.
template <class Row, size_t kCount>
HWY_INLINE size_t TransposeColumns(const std::byte* from, int64_t stride, size_t k, float* to, size_t width) {
  const hn::FixedTag<uint32_t, 8> d;
  const hn::FixedTag<uint64_t, 4> d64;
  const std::byte* column[8];
  for (size_t j = 0; j < 8; ++j) column[j] = from + static_cast<int64_t>(std::min(j, kCount - 1)) * stride;
  size_t i = 0;
  for (; i + 4 <= k; i += 4) {
    const size_t at = i * Row::kBytes;
    const auto a = LoadTwo<Row>(column[0] + at, column[4] + at), b = LoadTwo<Row>(column[1] + at, column[5] + at);
    const auto c = LoadTwo<Row>(column[2] + at, column[6] + at), e = LoadTwo<Row>(column[3] + at, column[7] + at);
    const auto ab0 = hn::BitCast(d64, hn::InterleaveLower(d, a, b)), ab1 = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
    const auto ce0 = hn::BitCast(d64, hn::InterleaveLower(d, c, e)), ce1 = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
    StoreFirst<kCount>(hn::InterleaveLower(d64, ab0, ce0), to);
    StoreFirst<kCount>(hn::InterleaveUpper(d64, ab0, ce0), to + width);
    StoreFirst<kCount>(hn::InterleaveLower(d64, ab1, ce1), to + 2 * width);
    StoreFirst<kCount>(hn::InterleaveUpper(d64, ab1, ce1), to + 3 * width);
    to += 4 * width;
  }
  return i;
}
#else
template <class Row, size_t kCount>
HWY_INLINE size_t TransposeColumns(const std::byte*, int64_t, size_t, float*, size_t) {
  return 0;
}
#endif

template <class Row>
HWY_INLINE size_t TransposeColumns(const std::byte* from, int64_t stride, size_t k, size_t n, float* to, size_t width) {
  switch (n) {
    case 8: return TransposeColumns<Row, 8>(from, stride, k, to, width);
    case 7: return TransposeColumns<Row, 7>(from, stride, k, to, width);
    case 6: return TransposeColumns<Row, 6>(from, stride, k, to, width);
    case 5: return TransposeColumns<Row, 5>(from, stride, k, to, width);
    case 4: return TransposeColumns<Row, 4>(from, stride, k, to, width);
    case 3: return TransposeColumns<Row, 3>(from, stride, k, to, width);
    case 2: return TransposeColumns<Row, 2>(from, stride, k, to, width);
    default: return TransposeColumns<Row, 1>(from, stride, k, to, width);
  }
}

template <class Row>
void PackTransposed(const std::byte* from, int64_t stride, size_t k, size_t n, float* to, size_t width, int64_t panel) {
  const hn::CappedTag<float, 1> one;
  for (size_t first = 0; first < n; first += width, to += panel) {
    const size_t columns = std::min(width, n - first);
    for (size_t j = 0; j < columns; j += 8) {
      const size_t m = std::min<size_t>(8, columns - j);
      const std::byte* at = from + static_cast<int64_t>(first + j) * stride;
      const size_t done = TransposeColumns<Row>(at, stride, k, m, to + j, width);
      for (size_t c = 0; c < m; ++c, at += stride)
        for (size_t i = done; i < k; ++i) hn::StoreU(Row::Load(one, at, i), one, to + i * width + j + c);
    }
  }
}

void Fill(Simd& table) {
  Matmul& matmul = table.matmul;
  matmul.rows = kRows;
  matmul.columns = static_cast<int>(kVectors * kMaxLanes<D>);
  SetTiles<kRows>(matmul);
  matmul.wide_columns[1] = static_cast<int>(kWide1 * kMaxLanes<D>);
  matmul.wide_columns[2] = static_cast<int>(kWide2 * kMaxLanes<D>);
  matmul.wide[1] = Tile<1, kWide1, true>;
  matmul.wide[2] = Tile<2, kWide2, true>;
  matmul.pack_f32 = Pack<RowF32>;
  matmul.pack_bf16 = Pack<RowBf16>;
  matmul.pack_transposed_f32 = PackTransposed<RowF32>;
  matmul.pack_transposed_bf16 = PackTransposed<RowBf16>;
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
