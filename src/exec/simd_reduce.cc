// Reductions of rows in a fixed order; see ReduceBlockFn.
#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/simd.h"
#include "exec/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/simd_reduce.cc"
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

using isa::AluOp;

struct Sum {
  static constexpr float kIdentity = 0.0f;
  template <class V>
  static HWY_INLINE V Do(V a, V b) { return hn::Add(a, b); }
  static HWY_INLINE float One(float a, float b) { return a + b; }
};
struct Product {
  static constexpr float kIdentity = 1.0f;
  template <class V>
  static HWY_INLINE V Do(V a, V b) { return hn::Mul(a, b); }
  static HWY_INLINE float One(float a, float b) { return a * b; }
};
struct Maximum {
  static constexpr float kIdentity = -std::numeric_limits<float>::infinity();
  template <class V>
  static HWY_INLINE V Do(V a, V b) { return hn::IfThenElse(hn::Or(hn::Gt(a, b), IsNan(a)), a, b); }
  static HWY_INLINE float One(float a, float b) { return a > b || a != a ? a : b; }
};
struct Minimum {
  static constexpr float kIdentity = std::numeric_limits<float>::infinity();
  template <class V>
  static HWY_INLINE V Do(V a, V b) { return hn::IfThenElse(hn::Or(hn::Lt(a, b), IsNan(a)), a, b); }
  static HWY_INLINE float One(float a, float b) { return a < b || a != a ? a : b; }
};
struct AbsMaximum {
  static constexpr float kIdentity = 0.0f;
  template <class V>
  static HWY_INLINE V Do(V a, V b) { return Maximum::Do(hn::Abs(a), hn::Abs(b)); }
  static HWY_INLINE float One(float a, float b) { return Maximum::One(std::abs(a), std::abs(b)); }
};

// The first operand of a lane is the identity.
template <class Op, class Row>
HWY_INLINE void Block(const void* from, size_t n, float* lanes) {
  const hn::CappedTag<float, kReduceLanes> d;
  const hn::CappedTag<float, 1> one;
  constexpr size_t kVectors = kReduceLanes / kMaxLanes<hn::CappedTag<float, kReduceLanes>>;
  const size_t width = hn::Lanes(d);
  hn::Vec<decltype(d)> sum[kVectors];
  for (size_t v = 0; v < kVectors; ++v) sum[v] = hn::Set(d, Op::kIdentity);
  size_t i = 0;
  for (; i + kReduceLanes <= n; i += kReduceLanes)
    for (size_t v = 0; v < kVectors; ++v) sum[v] = Op::Do(sum[v], Row::Load(d, from, i + v * width));
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sum[v], d, lanes + v * width);
  for (size_t lane = 0; i < n; ++i, ++lane) lanes[lane] = Op::One(lanes[lane], hn::GetLane(Row::Load(one, from, i)));
}

template <class Op, class Row>
void BlockOf(const void* from, size_t n, float* lanes) {
  Block<Op, Row>(from, n, lanes);
}

// The lanes of a vector in halves.
template <class Op, class D>
HWY_INLINE float Fold(D d, hn::Vec<D> v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kMaxLanes<D> > 1) {
    const hn::Half<D> half;
    return Fold<Op>(half, Op::Do(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
  (void)d;
  return hn::GetLane(v);
}

template <class Op>
HWY_INLINE float Halves(float* lanes) {
  const hn::CappedTag<float, kReduceLanes> d;
  const size_t width = hn::Lanes(d);
  for (size_t half = kReduceLanes / 2; half >= width; half /= 2)
    for (size_t i = 0; i < half; i += width) hn::StoreU(Op::Do(hn::LoadU(d, lanes + i), hn::LoadU(d, lanes + half + i)), d, lanes + i);
  return Fold<Op>(d, hn::LoadU(d, lanes));
}

template <class Op, class Row>
void Rows(const void* from, size_t rows, size_t n, float* to) {
  const hn::CappedTag<float, 1> one;
  float lanes[kReduceLanes];
  if (n < kReduceLanes) {
    // One element per lane: the halves above it would only combine identities.
    size_t count = 1;
    while (count < n) count *= 2;
    for (size_t r = 0; r < rows; ++r) {
      for (size_t i = 0; i < count; ++i)
        lanes[i] = i < n ? Op::One(Op::kIdentity, hn::GetLane(Row::Load(one, from, r * n + i))) : Op::kIdentity;
      for (size_t half = count / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; ++i) lanes[i] = Op::One(lanes[i], lanes[i + half]);
      to[r] = lanes[0];
    }
    return;
  }
  const auto* at = static_cast<const std::byte*>(from);
  for (size_t r = 0; r < rows; ++r, at += n * Row::kBytes) {
    Block<Op, Row>(at, n, lanes);
    to[r] = Halves<Op>(lanes);
  }
}

// Row by row, so that memory is read in order; the accumulators of 128 columns lie in the first-level cache.
template <class Op, class Row>
void Columns(const std::byte* from, int64_t stride, size_t n, size_t columns, bool first, float* lanes) {
  const hn::CappedTag<float, kReduceLanes> d;
  const hn::CappedTag<float, 1> one;
  const size_t width = hn::Lanes(d);
  const size_t pitch = column_pitch(columns);
  constexpr size_t kAhead = 16;  // rows
  if (first) std::fill(lanes, lanes + kReduceLanes * pitch, Op::kIdentity);
  for (size_t i = 0; i < n; ++i, from += stride) {
    float* sum = lanes + i % kReduceLanes * pitch;
    if (i + kAhead < n)
      for (size_t b = 0; b < columns * Row::kBytes; b += 64) hwy::Prefetch(from + static_cast<int64_t>(kAhead) * stride + b);
    size_t j = 0;
    for (; j + width <= columns; j += width) hn::StoreU(Op::Do(hn::LoadU(d, sum + j), Row::Load(d, from, j)), d, sum + j);
    for (; j < columns; ++j) sum[j] = Op::One(sum[j], hn::GetLane(Row::Load(one, from, j)));
  }
}

template <class Op>
void Set(Simd& table, AluOp op) {
  const auto k = static_cast<int>(op);
  table.reduce_block[k] = BlockOf<Op, RowF32>;
  table.reduce_block_bf16[k] = BlockOf<Op, RowBf16>;
  table.reduce_rows[k] = Rows<Op, RowF32>;
  table.reduce_rows_bf16[k] = Rows<Op, RowBf16>;
  table.reduce_columns[k] = Columns<Op, RowF32>;
  table.reduce_columns_bf16[k] = Columns<Op, RowBf16>;
}

void Fill(Simd& table) {
  Set<Sum>(table, AluOp::add);
  Set<Product>(table, AluOp::mult);
  Set<Maximum>(table, AluOp::max);
  Set<Minimum>(table, AluOp::min);
  Set<AbsMaximum>(table, AluOp::abs_max);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace opentrn::exec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opentrn::exec {
HWY_EXPORT(Fill);
void fill_reduce(Simd& table) { HWY_DYNAMIC_DISPATCH(Fill)(table); }
}  // namespace opentrn::exec
#endif
