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

template <class Op>
void Block(const float* from, size_t n, float* lanes) {
  const hn::CappedTag<float, kReduceLanes> d;
  constexpr size_t kVectors = kReduceLanes / kMaxLanes<hn::CappedTag<float, kReduceLanes>>;
  const size_t width = hn::Lanes(d);
  hn::Vec<decltype(d)> sum[kVectors];
  for (size_t v = 0; v < kVectors; ++v) sum[v] = hn::Set(d, Op::kIdentity);
  size_t i = 0;
  for (; i + kReduceLanes <= n; i += kReduceLanes)
    for (size_t v = 0; v < kVectors; ++v) sum[v] = Op::Do(sum[v], hn::LoadU(d, from + i + v * width));
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sum[v], d, lanes + v * width);
  for (size_t lane = 0; i < n; ++i, ++lane) lanes[lane] = Op::One(lanes[lane], from[i]);
}

template <class Op>
HWY_INLINE float Halves(float* lanes, size_t count) {
  for (size_t half = count / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) lanes[i] = Op::One(lanes[i], lanes[i + half]);
  return lanes[0];
}

template <class Op>
void Rows(const float* from, size_t rows, size_t n, float* to) {
  float lanes[kReduceLanes];
  if (n < kReduceLanes) {
    // One element per lane: the halves above it would only combine identities.
    size_t count = 1;
    while (count < n) count *= 2;
    for (size_t r = 0; r < rows; ++r, from += n) {
      for (size_t i = 0; i < count; ++i) lanes[i] = i < n ? Op::One(Op::kIdentity, from[i]) : Op::kIdentity;
      to[r] = Halves<Op>(lanes, count);
    }
    return;
  }
  for (size_t r = 0; r < rows; ++r, from += n) {
    Block<Op>(from, n, lanes);
    to[r] = Halves<Op>(lanes, kReduceLanes);
  }
}

template <class Op>
void Set(Simd& table, AluOp op) {
  table.reduce_block[static_cast<int>(op)] = Block<Op>;
  table.reduce_rows[static_cast<int>(op)] = Rows<Op>;
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
