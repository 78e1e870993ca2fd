// ALU operations, selections and the frequent conversions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/floats.h"
#include "exec/simd.h"
#include "exec/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/simd_elementwise.cc"
#include "hwy/foreach_target.h"
// Highway and the -inl header after foreach_target.
#include "exec/simd_math-inl.h"
#include "exec/simd_rows-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace opentrn::exec {
namespace HWY_NAMESPACE {
namespace {

using isa::AluOp;

// ---- f32 operations, on vectors of any length ------------------------------------------------------
struct Add {
  template <class D, class V>
  static HWY_INLINE V Do(D, V a, V b) { return hn::Add(a, b); }
};
struct Subtract {
  template <class D, class V>
  static HWY_INLINE V Do(D, V a, V b) { return hn::Sub(a, b); }
};
struct Multiply {
  template <class D, class V>
  static HWY_INLINE V Do(D, V a, V b) { return hn::Mul(a, b); }
};
struct Divide {
  template <class D, class V>
  static HWY_INLINE V Do(D, V a, V b) { return hn::Div(a, b); }
};
struct Maximum {  // NaN if either is
  template <class D, class V>
  static HWY_INLINE V Do(D, V a, V b) { return hn::IfThenElse(hn::Or(hn::Gt(a, b), IsNan(a)), a, b); }
};
struct Minimum {
  template <class D, class V>
  static HWY_INLINE V Do(D, V a, V b) { return hn::IfThenElse(hn::Or(hn::Lt(a, b), IsNan(a)), a, b); }
};
struct AbsMaximum {
  template <class D, class V>
  static HWY_INLINE V Do(D d, V a, V b) { return Maximum::Do(d, hn::Abs(a), hn::Abs(b)); }
};
struct Average {
  template <class D, class V>
  static HWY_INLINE V Do(D d, V a, V b) { return hn::Mul(hn::Add(a, b), hn::Set(d, 0.5f)); }
};
struct Bypass {
  template <class D, class V>
  static HWY_INLINE V Do(D, V a, V) { return a; }
};
#define OPENTRN_COMPARE(NAME, FN)                                                  \
  struct NAME {                                                                    \
    template <class D, class V>                                                    \
    static HWY_INLINE V Do(D d, V a, V b) {                                        \
      return hn::IfThenElseZero(hn::FN(a, b), hn::Set(d, 1.0f));                   \
    }                                                                              \
  };
OPENTRN_COMPARE(Equal, Eq)

OPENTRN_COMPARE(Greater, Gt)
OPENTRN_COMPARE(GreaterEqual, Ge)
OPENTRN_COMPARE(Less, Lt)
OPENTRN_COMPARE(LessEqual, Le)
#undef OPENTRN_COMPARE
struct NotEqual {  // hn::Ne is false for NaN on some targets
  template <class D, class V>
  static HWY_INLINE V Do(D d, V a, V b) { return hn::IfThenElseZero(hn::Not(hn::Eq(a, b)), hn::Set(d, 1.0f)); }
};
struct LogicalAnd {
  template <class D, class V>
  static HWY_INLINE V Do(D d, V a, V b) {
    const V zero = hn::Zero(d);
    return hn::IfThenElseZero(hn::And(hn::Not(hn::Eq(a, zero)), hn::Not(hn::Eq(b, zero))), hn::Set(d, 1.0f));
  }
};
struct LogicalOr {
  template <class D, class V>
  static HWY_INLINE V Do(D d, V a, V b) {
    const V zero = hn::Zero(d);
    return hn::IfThenElseZero(hn::Or(hn::Not(hn::Eq(a, zero)), hn::Not(hn::Eq(b, zero))), hn::Set(d, 1.0f));
  }
};
struct LogicalXor {
  template <class D, class V>
  static HWY_INLINE V Do(D d, V a, V b) {
    const V zero = hn::Zero(d);
    return hn::IfThenElseZero(hn::Xor(hn::Not(hn::Eq(a, zero)), hn::Not(hn::Eq(b, zero))), hn::Set(d, 1.0f));
  }
};

// Stores value(i) for the elements from begin to end, which are whole vectors.
template <class To, class D, class F>
HWY_INLINE void StoreEach(D d, void* to, size_t begin, size_t end, F&& value) {
  const size_t lanes = hn::Lanes(d);
  size_t i = begin;
  for (; i + 2 * lanes <= end; i += 2 * lanes) To::StoreTwo(d, value(i), value(i + lanes), to, i);
  if (i < end) To::Store(d, value(i), to, i);
}

template <class Op, class A, class B, class To, class D>
HWY_INLINE void Run(D d, void* to, const void* a, const void* b, size_t begin, size_t end, Form form) {
  if (form == Form::rows) {
    StoreEach<To>(d, to, begin, end, [&](size_t i) HWY_ATTR { return Op::Do(d, A::Load(d, a, i), B::Load(d, b, i)); });
  } else if (form == Form::row_value) {
    if constexpr (B::kBytes == 4) {
      const auto value = hn::Set(d, *static_cast<const float*>(b));
      StoreEach<To>(d, to, begin, end, [&](size_t i) HWY_ATTR { return Op::Do(d, A::Load(d, a, i), value); });
    }
  } else if constexpr (A::kBytes == 4) {
    const auto value = hn::Set(d, *static_cast<const float*>(a));
    StoreEach<To>(d, to, begin, end, [&](size_t i) HWY_ATTR { return Op::Do(d, value, B::Load(d, b, i)); });
  }
}

template <class Op>
void Binary(float* to, const float* a, const float* b, size_t n, Form form) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const size_t whole = n - n % hn::Lanes(d);
  Run<Op, RowF32, RowF32, RowF32>(d, to, a, b, 0, whole, form);
  if (whole < n) Run<Op, RowF32, RowF32, RowF32>(one, to, a, b, whole, n, form);
}

// ---- rows of f32 and bf16 --------------------------------------------------------------------------
template <class Op, class A, class B, class To>
void Mixed(void* to, const void* a, const void* b, size_t n, Form form) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const size_t whole = n - n % hn::Lanes(d);
  Run<Op, A, B, To>(d, to, a, b, 0, whole, form);
  if (whole < n) Run<Op, A, B, To>(one, to, a, b, whole, n, form);
}

template <class From, class To>
void Move(const void* from, void* to, size_t n) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const size_t whole = n - n % hn::Lanes(d);
  StoreEach<To>(d, to, 0, whole, [&](size_t i) HWY_ATTR { return From::Load(d, from, i); });
  for (size_t i = whole; i < n; ++i) To::Store(one, From::Load(one, from, i), to, i);
}

// Modulo with the sign of the divisor, exact: a quotient below 2^28 leaves a remainder that fits a double.
HWY_INLINE float Modulo(float a, float b) {
  const double x = a, y = b;
  const double q = std::trunc(x / y);
  double r;
  if (std::abs(q) < 0x1p28 && std::abs(y) < INFINITY) {
    r = x - q * y;
    if (r != 0 && (r < 0) != (x < 0)) r += std::copysign(y, x);
    if (std::abs(r) >= std::abs(y)) r -= std::copysign(y, x);
    if (r == 0) r = std::copysign(0.0, x);
  } else {
    r = std::fmod(x, y);
  }
  if (r != 0 && (y < 0) != (r < 0)) r += y;
  return static_cast<float>(r);
}

void ModuloRow(float* to, const float* a, const float* b, size_t n, Form form) {
  const size_t sa = form != Form::value_row, sb = form != Form::row_value;
  const float a0 = *a, b0 = *b;
  for (size_t i = 0; i < n; ++i) to[i] = Modulo(sa ? a[i] : a0, sb ? b[i] : b0);
}

template <class D>
HWY_INLINE void PowBlock(D d, float* to, const float* a, const float* b) {
  const hn::Rebind<float, D> df;
  const auto x = hn::LoadU(df, a), y = hn::LoadU(df, b);
  const auto limit = hn::Set(df, INFINITY), zero = hn::Zero(df);
  const auto easy = hn::And(hn::AndNot(hn::Eq(x, zero), hn::Lt(hn::Abs(x), limit)), hn::Lt(hn::Abs(y), limit));
  const auto result = Demote(df, PowFinite(d, hn::PromoteTo(d, x), hn::PromoteTo(d, y)));
  if (hn::AllTrue(df, easy)) {
    hn::StoreU(result, df, to);
    return;
  }
  HWY_ALIGN float xs[kMaxLanes<D>], ys[kMaxLanes<D>], rs[kMaxLanes<D>];
  hn::StoreU(x, df, xs);
  hn::StoreU(y, df, ys);
  hn::StoreU(result, df, rs);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    const bool hard = !(std::abs(xs[i]) < INFINITY) || xs[i] == 0 || !(std::abs(ys[i]) < INFINITY);
    to[i] = hard ? static_cast<float>(std::pow(static_cast<double>(xs[i]), static_cast<double>(ys[i]))) : rs[i];
  }
}

void PowRow(float* to, const float* a, const float* b, size_t n, Form form) {
  const hn::ScalableTag<double> d;
  const hn::CappedTag<double, 1> one;
  constexpr size_t kBlock = 64;
  float xs[kBlock], ys[kBlock];
  const float a0 = *a, b0 = *b;
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t m = std::min(kBlock, n - i);
    for (size_t j = 0; j < m; ++j) xs[j] = form == Form::value_row ? a0 : a[i + j];
    for (size_t j = 0; j < m; ++j) ys[j] = form == Form::row_value ? b0 : b[i + j];
    size_t j = 0;
    for (; j + hn::Lanes(d) <= m; j += hn::Lanes(d)) PowBlock(d, to + i + j, xs + j, ys + j);
    for (; j < m; ++j) PowBlock(one, to + i + j, xs + j, ys + j);
  }
}

void Negate(float* to, const float* from, size_t n) {
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) to[i] = -from[i];
}

// ---- 32-bit integers: plain loops, which the compiler vectorises for each target ---------------------
template <AluOp kOp, typename T>
HWY_INLINE T Integer(T a, T b) {
  const uint32_t x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
  switch (kOp) {
    case AluOp::add: return static_cast<T>(x + y);
    case AluOp::subtract: return static_cast<T>(x - y);
    case AluOp::mult: return static_cast<T>(x * y);
    case AluOp::divide:
      if (b == 0) return 0;
      return std::is_signed_v<T> ? static_cast<T>(static_cast<int64_t>(a) / static_cast<int64_t>(b)) : a / b;
    case AluOp::mod: {  // the sign of the divisor
      if (b == 0) return 0;
      const int64_t r = static_cast<int64_t>(a) % static_cast<int64_t>(b);
      return static_cast<T>(r != 0 && (r < 0) != (b < 0) ? r + static_cast<int64_t>(b) : r);
    }
    case AluOp::pow: {
      if (std::is_signed_v<T> && b < 0) return a == 1 ? 1 : (a == static_cast<T>(-1) ? (y & 1 ? static_cast<T>(-1) : 1) : 0);
      uint32_t result = 1, base = x;
      for (uint32_t e = y; e; e >>= 1, base *= base)
        if (e & 1) result *= base;
      return static_cast<T>(result);
    }
    case AluOp::max: return a > b ? a : b;
    case AluOp::min: return a < b ? a : b;
    case AluOp::abs_max: {
      const uint32_t p = a < 0 ? 0 - x : x, q = b < 0 ? 0 - y : y;
      return static_cast<T>(p > q ? p : q);
    }
    case AluOp::is_equal: return a == b;
    case AluOp::not_equal: return a != b;
    case AluOp::is_gt: return a > b;
    case AluOp::is_ge: return a >= b;
    case AluOp::is_lt: return a < b;
    case AluOp::is_le: return a <= b;
    case AluOp::logical_and: return (a != 0) & (b != 0);
    case AluOp::logical_or: return (a != 0) | (b != 0);
    case AluOp::logical_xor: return (a != 0) ^ (b != 0);
    case AluOp::bitwise_and: return static_cast<T>(x & y);
    case AluOp::bitwise_or: return static_cast<T>(x | y);
    case AluOp::bitwise_xor: return static_cast<T>(x ^ y);
    // Shifts by 32 or more (negative ones among them) leave nothing but, arithmetically, the sign.
    case AluOp::shift_left: return static_cast<T>(y < 32 ? x << (y & 31) : 0);
    case AluOp::shift_right: return static_cast<T>(y < 32 ? x >> (y & 31) : 0);
    case AluOp::arith_shift_right: return static_cast<T>(static_cast<int32_t>(x) >> (y < 32 ? y : 31));
    case AluOp::average: return static_cast<T>((static_cast<int64_t>(a) + static_cast<int64_t>(b)) >> 1);
    default: return a;
  }
}

template <AluOp kOp, typename T>
void IntegerRow(uint32_t* to, const uint32_t* a, const uint32_t* b, size_t n, Form form) {
  const auto one = [](uint32_t x, uint32_t y) HWY_ATTR {
    return static_cast<uint32_t>(Integer<kOp, T>(static_cast<T>(x), static_cast<T>(y)));
  };
  if (form == Form::rows) {
#pragma GCC ivdep
    for (size_t i = 0; i < n; ++i) to[i] = one(a[i], b[i]);
  } else if (form == Form::row_value) {
    const uint32_t value = *b;
#pragma GCC ivdep
    for (size_t i = 0; i < n; ++i) to[i] = one(a[i], value);
  } else {
    const uint32_t value = *a;
#pragma GCC ivdep
    for (size_t i = 0; i < n; ++i) to[i] = one(value, b[i]);
  }
}

template <AluOp... kOps>
void SetSignless(Simd& table) {  // signed and unsigned share the operation
  ((table.u32[static_cast<int>(kOps)] = IntegerRow<kOps, uint32_t>,
    table.i32[static_cast<int>(kOps)] = IntegerRow<kOps, uint32_t>), ...);
}
template <AluOp... kOps>
void SetSigned(Simd& table) {
  ((table.u32[static_cast<int>(kOps)] = IntegerRow<kOps, uint32_t>,
    table.i32[static_cast<int>(kOps)] = IntegerRow<kOps, int32_t>), ...);
}

void FillIntegers(Simd& table) {
  using enum AluOp;
  SetSignless<none, add, subtract, mult, is_equal, not_equal, logical_and, logical_or, logical_xor, bitwise_and, bitwise_or,
              bitwise_xor, shift_left, shift_right, arith_shift_right, bypass>(table);
  SetSigned<divide, max, min, pow, mod, abs_max, is_gt, is_ge, is_lt, is_le, average>(table);
}

// ---- selection -----------------------------------------------------------------------------------
template <typename T>
void Select(void* to, const uint8_t* mask, const void* a, const void* b, size_t n) {
  auto* y = static_cast<T*>(to);
  const auto* p = static_cast<const T*>(a);
  const auto* q = static_cast<const T*>(b);
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) {
    const T u = p[i], v = q[i];
    y[i] = mask[i] ? u : v;
  }
}

// ---- conversions ---------------------------------------------------------------------------------
void F16ToF32(const void* from, void* to, size_t n) {
  const auto* x = static_cast<const uint16_t*>(from);
  auto* y = static_cast<float*>(to);
  size_t i = 0;
#if OPENTRN_FUSED
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d))
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(x + i))), d, y + i);
#endif
  for (; i < n; ++i) y[i] = f16_to_f32(x[i]);
}

void F32ToF16(const void* from, void* to, size_t n) {
  const auto* x = static_cast<const float*>(from);
  auto* y = static_cast<uint16_t*>(to);
  size_t i = 0;
#if OPENTRN_FUSED
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d))
    hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, x + i)), dh, reinterpret_cast<hwy::float16_t*>(y + i));
#endif
  for (; i < n; ++i) y[i] = f32_to_f16(x[i]);
}

template <typename From, typename To>
void Cast(const void* from, void* to, size_t n) {
  const auto* x = static_cast<const From*>(from);
  auto* y = static_cast<To*>(to);
  for (size_t i = 0; i < n; ++i) y[i] = static_cast<To>(x[i]);
}

// Truncates and saturates; NaN: the minimum.
void F32ToI32(const void* from, void* to, size_t n) {
  const auto run = [&](auto d, size_t i) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> di;
    for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
      const auto x = hn::LoadU(d, static_cast<const float*>(from) + i);
      const auto large = hn::Ge(x, hn::Set(d, 0x1p31f));
      const auto fits = hn::And(hn::Lt(x, hn::Set(d, 0x1p31f)), hn::Ge(x, hn::Set(d, -0x1p31f)));
      const auto limit = hn::IfThenElse(hn::RebindMask(di, large), hn::Set(di, INT32_MAX), hn::Set(di, INT32_MIN));
      const auto y = hn::IfThenElse(hn::RebindMask(di, fits), hn::ConvertTo(di, hn::IfThenElseZero(fits, x)), limit);
      hn::StoreU(y, di, static_cast<int32_t*>(to) + i);
    }
    return i;
  };
  run(hn::CappedTag<float, 1>(), run(hn::ScalableTag<float>(), 0));
}

template <typename From>
void ToBool(const void* from, void* to, size_t n) {
  const auto* x = static_cast<const From*>(from);
  auto* y = static_cast<uint8_t*>(to);
  for (size_t i = 0; i < n; ++i) y[i] = x[i] != 0;
}

void BoolToF32(const void* from, void* to, size_t n) {
  const auto* x = static_cast<const uint8_t*>(from);
  auto* y = static_cast<float*>(to);
  for (size_t i = 0; i < n; ++i) y[i] = x[i] != 0 ? 1.0f : 0.0f;
}

ConvertFn& At(Simd& table, DType from, DType to) { return table.convert[static_cast<int>(from)][static_cast<int>(to)]; }

template <class Op>
void Set(Simd& table, AluOp op) {
  table.f32[static_cast<int>(op)] = Binary<Op>;
}

template <class Op>
void SetMixed(Simd& table, AluOp op) {
  Set<Op>(table, op);
  MixedFn* row = table.mixed[static_cast<int>(op)];
  row[1] = Mixed<Op, RowF32, RowF32, RowBf16>;
  row[2] = Mixed<Op, RowF32, RowBf16, RowF32>;
  row[3] = Mixed<Op, RowF32, RowBf16, RowBf16>;
  row[4] = Mixed<Op, RowBf16, RowF32, RowF32>;
  row[5] = Mixed<Op, RowBf16, RowF32, RowBf16>;
  row[6] = Mixed<Op, RowBf16, RowBf16, RowF32>;
  row[7] = Mixed<Op, RowBf16, RowBf16, RowBf16>;
}

void Fill(Simd& table) {
  table.target = hwy::TargetName(HWY_TARGET);
  SetMixed<Add>(table, AluOp::add);
  SetMixed<Subtract>(table, AluOp::subtract);
  SetMixed<Multiply>(table, AluOp::mult);
  SetMixed<Divide>(table, AluOp::divide);
  SetMixed<Maximum>(table, AluOp::max);
  SetMixed<Minimum>(table, AluOp::min);
  Set<AbsMaximum>(table, AluOp::abs_max);
  Set<Equal>(table, AluOp::is_equal);
  Set<NotEqual>(table, AluOp::not_equal);
  Set<Greater>(table, AluOp::is_gt);
  Set<GreaterEqual>(table, AluOp::is_ge);
  Set<Less>(table, AluOp::is_lt);
  Set<LessEqual>(table, AluOp::is_le);
  Set<LogicalAnd>(table, AluOp::logical_and);
  Set<LogicalOr>(table, AluOp::logical_or);
  Set<LogicalXor>(table, AluOp::logical_xor);
  Set<Average>(table, AluOp::average);
  Set<Bypass>(table, AluOp::bypass);
  Set<Bypass>(table, AluOp::none);
  table.f32[static_cast<int>(AluOp::pow)] = PowRow;
  table.f32[static_cast<int>(AluOp::mod)] = ModuloRow;
  table.negate = Negate;
  FillIntegers(table);
  table.select[0] = Select<uint8_t>;
  table.select[1] = Select<uint16_t>;
  table.select[2] = Select<uint32_t>;
  table.select[3] = Select<uint64_t>;
  At(table, DType::bf16, DType::f32) = Move<RowBf16, RowF32>;
  At(table, DType::f32, DType::bf16) = Move<RowF32, RowBf16>;
  At(table, DType::f16, DType::f32) = F16ToF32;
  At(table, DType::f32, DType::f16) = F32ToF16;
  At(table, DType::i32, DType::f32) = Cast<int32_t, float>;
  At(table, DType::f32, DType::i32) = F32ToI32;
  At(table, DType::i64, DType::i32) = Cast<int64_t, int32_t>;
  At(table, DType::i32, DType::i64) = Cast<int32_t, int64_t>;
  At(table, DType::u8, DType::f32) = Cast<uint8_t, float>;
  At(table, DType::u8, DType::boolean) = ToBool<uint8_t>;
  At(table, DType::boolean, DType::f32) = BoolToF32;
  At(table, DType::f32, DType::boolean) = ToBool<float>;
  At(table, DType::i32, DType::boolean) = ToBool<int32_t>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace opentrn::exec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opentrn::exec {
HWY_EXPORT(Fill);
void fill_elementwise(Simd& table) { HWY_DYNAMIC_DISPATCH(Fill)(table); }
}  // namespace opentrn::exec
#endif
