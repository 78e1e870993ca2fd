// Transposes of dense matrices: blocks of 8x8 (2 bytes) or 4x4 (4 bytes) in registers, inside blocks that fit the cache.
#include <algorithm>
#include <cstring>

#include "exec/simd.h"
#include "exec/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/simd_transpose.cc"
#include "hwy/foreach_target.h"
// Highway and the -inl header after foreach_target.
#include "exec/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace opentrn::exec {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
HWY_INLINE void Plain(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, size_t rows,
                      size_t columns) {
  for (size_t c = 0; c < columns; ++c)
    for (size_t r = 0; r < rows; ++r)
      std::memcpy(to + static_cast<int64_t>(c) * to_stride + r * sizeof(T),
                  from + static_cast<int64_t>(r) * from_stride + c * sizeof(T), sizeof(T));
}

#if !OPENTRN_EMULATED
template <class D>
HWY_INLINE hn::Vec<D> Load(D d, const std::byte* at) {
  return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(at));
}
template <class D>
HWY_INLINE void Store(D d, hn::Vec<D> v, std::byte* at) {
  hn::StoreU(v, d, reinterpret_cast<hn::TFromD<D>*>(at));
}

HWY_INLINE void Block4(const std::byte* from, int64_t fs, std::byte* to, int64_t ts) {
  const hn::FixedTag<uint32_t, 4> d;
  const hn::FixedTag<uint64_t, 2> d64;
  const auto a = Load(d, from), b = Load(d, from + fs), c = Load(d, from + 2 * fs), e = Load(d, from + 3 * fs);
  const auto ab0 = hn::BitCast(d64, hn::InterleaveLower(d, a, b)), ab1 = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
  const auto ce0 = hn::BitCast(d64, hn::InterleaveLower(d, c, e)), ce1 = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
  Store(d64, hn::InterleaveLower(d64, ab0, ce0), to);
  Store(d64, hn::InterleaveUpper(d64, ab0, ce0), to + ts);
  Store(d64, hn::InterleaveLower(d64, ab1, ce1), to + 2 * ts);
  Store(d64, hn::InterleaveUpper(d64, ab1, ce1), to + 3 * ts);
}

HWY_INLINE void Block8(const std::byte* from, int64_t fs, std::byte* to, int64_t ts) {
  const hn::FixedTag<uint16_t, 8> d;
  const hn::FixedTag<uint32_t, 4> d32;
  const hn::FixedTag<uint64_t, 2> d64;
  const auto pairs = [&](int r, bool upper) HWY_ATTR {
    const auto a = Load(d, from + r * fs), b = Load(d, from + (r + 1) * fs);
    return hn::BitCast(d32, upper ? hn::InterleaveUpper(d, a, b) : hn::InterleaveLower(d, a, b));
  };
  for (int half = 0; half < 2; ++half) {  // columns 0-3, then 4-7
    const auto p01 = pairs(0, half), p23 = pairs(2, half), p45 = pairs(4, half), p67 = pairs(6, half);
    for (int quarter = 0; quarter < 2; ++quarter) {
      const auto q03 = hn::BitCast(d64, quarter ? hn::InterleaveUpper(d32, p01, p23) : hn::InterleaveLower(d32, p01, p23));
      const auto q47 = hn::BitCast(d64, quarter ? hn::InterleaveUpper(d32, p45, p67) : hn::InterleaveLower(d32, p45, p67));
      std::byte* at = to + (half * 4 + quarter * 2) * ts;
      Store(d64, hn::InterleaveLower(d64, q03, q47), at);
      Store(d64, hn::InterleaveUpper(d64, q03, q47), at + ts);
    }
  }
}
#endif

template <typename T>
void Transpose(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, size_t rows, size_t columns) {
  constexpr size_t kBlock = 32;  // 32 lines read, 32 lines written at a time
#if !OPENTRN_EMULATED
  constexpr size_t kUnit = sizeof(T) == 4 ? 4 : sizeof(T) == 2 ? 8 : 0;
#endif
  for (size_t r0 = 0; r0 < rows; r0 += kBlock) {
    const size_t rn = std::min(kBlock, rows - r0);
    for (size_t c0 = 0; c0 < columns; c0 += kBlock) {
      const size_t cn = std::min(kBlock, columns - c0);
      const std::byte* f = from + static_cast<int64_t>(r0) * from_stride + c0 * sizeof(T);
      std::byte* t = to + static_cast<int64_t>(c0) * to_stride + r0 * sizeof(T);
      size_t rw = 0, cw = 0;
#if !OPENTRN_EMULATED
      if constexpr (kUnit != 0) {
        rw = rn - rn % kUnit;
        cw = cn - cn % kUnit;
        for (size_t r = 0; r < rw; r += kUnit) {
          for (size_t c = 0; c < cw; c += kUnit) {
            const std::byte* fu = f + static_cast<int64_t>(r) * from_stride + c * sizeof(T);
            std::byte* tu = t + static_cast<int64_t>(c) * to_stride + r * sizeof(T);
            if constexpr (sizeof(T) == 4) Block4(fu, from_stride, tu, to_stride);
            else Block8(fu, from_stride, tu, to_stride);
          }
        }
      }
#endif
      if (cw < cn) Plain<T>(f + cw * sizeof(T), from_stride, t + static_cast<int64_t>(cw) * to_stride, to_stride, rw, cn - cw);
      if (rw < rn)
        Plain<T>(f + static_cast<int64_t>(rw) * from_stride, from_stride, t + rw * sizeof(T), to_stride, rn - rw, cn);
    }
  }
}

void Fill(Simd& table) {
  table.transpose[0] = Transpose<uint8_t>;
  table.transpose[1] = Transpose<uint16_t>;
  table.transpose[2] = Transpose<uint32_t>;
  table.transpose[3] = Transpose<uint64_t>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace opentrn::exec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opentrn::exec {
HWY_EXPORT(Fill);
void fill_transpose(Simd& table) { HWY_DYNAMIC_DISPATCH(Fill)(table); }
}  // namespace opentrn::exec
#endif
