// Elementary functions. Most are evaluated on vectors of doubles that hold f32 values: good to about 1e-9, so that the
// rounding to f32 is correct but for rare near-ties. Those that most of a training step's time goes to (the exponential
// and what is built on it, the logarithm, erf) are evaluated in f32 with fused multiply-adds and good to 1 or 2 units in
// the last place. Included once per SIMD target (Highway's per-target guard).
// clang-format off
#if defined(OPENTRN_EXEC_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPENTRN_EXEC_SIMD_MATH_INL_H_
#undef OPENTRN_EXEC_SIMD_MATH_INL_H_
#else
#define OPENTRN_EXEC_SIMD_MATH_INL_H_
#endif
// clang-format on

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace opentrn::exec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef OPENTRN_EMULATED
#undef OPENTRN_FUSED
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define OPENTRN_EMULATED 1
#else
#define OPENTRN_EMULATED 0
#endif
// Targets whose MulAdd rounds once.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || (HWY_ARCH_ARM_A64 && !OPENTRN_EMULATED)
#define OPENTRN_FUSED 1
#else
#define OPENTRN_FUSED 0
#endif

template <class D>
constexpr size_t kMaxLanes = hn::MaxLanes(D());

// a * b + c with one rounding on every target.
template <class D, class V>
HWY_INLINE V Fma(D d, V a, V b, V c) {
#if OPENTRN_FUSED
  (void)d;
  return hn::MulAdd(a, b, c);
#else
  HWY_ALIGN hn::TFromD<D> x[kMaxLanes<D>], y[kMaxLanes<D>], z[kMaxLanes<D>];
  hn::StoreU(a, d, x);
  hn::StoreU(b, d, y);
  hn::StoreU(c, d, z);
  for (size_t i = 0; i < hn::Lanes(d); ++i) x[i] = std::fma(x[i], y[i], z[i]);
  return hn::LoadU(d, x);
#endif
}

// To f32 with one rounding, infinities kept.
template <class DF, class V>
HWY_INLINE hn::Vec<DF> Demote(DF df, V v) {
#if OPENTRN_EMULATED
  const hn::Rebind<double, DF> d;
  HWY_ALIGN double x[kMaxLanes<DF>];
  HWY_ALIGN float y[kMaxLanes<DF>];
  hn::StoreU(v, d, x);
  for (size_t i = 0; i < hn::Lanes(df); ++i) y[i] = static_cast<float>(x[i]);
  return hn::LoadU(df, y);
#else
  return hn::DemoteTo(df, v);
#endif
}

template <class D, class V, size_t kCount>
HWY_INLINE V Polynomial(D d, V x, const double (&c)[kCount]) {
  V sum = hn::Set(d, c[kCount - 1]);
  for (size_t i = kCount - 1; i-- > 0;) sum = Fma(d, sum, x, hn::Set(d, c[i]));
  return sum;
}

template <class V>
HWY_INLINE auto IsNan(V v) {
  return hn::IsNaN(v);
}

// e^x - 1 = 2^n (r q + 1) - 1 with x = n ln 2 + r; the caller combines. x within [-700, 700], no NaN.
template <class D, class V>
struct ExpParts {
  V scale, tail;  // 2^n, e^r - 1
};
template <class D, class V>
HWY_INLINE ExpParts<D, V> ExpSplit(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 0x1.8p52);
  const V shifted = Fma(d, x, hn::Set(d, 1.4426950408889634), magic);
  const V n = hn::Sub(shifted, magic);
  V r = Fma(d, n, hn::Set(d, -0.693147180559945286), x);
  r = Fma(d, n, hn::Set(d, -2.319046813846299e-17), r);
  static constexpr double kTaylor[] = {1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320,
                                       1.0 / 362880};
  const V tail = hn::Mul(r, Polynomial(d, r, kTaylor));
  const auto bits = hn::ShiftLeft<52>(hn::Add(hn::BitCast(di, shifted), hn::Set(di, int64_t{1023})));
  return {hn::BitCast(d, bits), tail};
}

template <class D, class V>
HWY_INLINE V Clamp700(D d, V x) {
  return hn::Min(hn::Max(x, hn::Set(d, -700.0)), hn::Set(d, 700.0));
}

template <class D, class V>
HWY_INLINE V ExpFinite(D d, V x) {
  const auto e = ExpSplit(d, Clamp700(d, x));
  return Fma(d, e.scale, e.tail, e.scale);
}

template <class D, class V>
HWY_INLINE V Expm1Finite(D d, V x) {
  const auto e = ExpSplit(d, Clamp700(d, x));
  return Fma(d, e.scale, e.tail, hn::Sub(e.scale, hn::Set(d, 1.0)));
}

template <class D, class V>
HWY_INLINE V Expm1(D d, V x) {
  const auto keep = hn::Or(IsNan(x), hn::Eq(x, hn::Zero(d)));  // keeps -0
  return hn::IfThenElse(keep, x, Expm1Finite(d, x));
}

// ---- f32: e^x = 2^n (1 + t), x = n ln 2 + r with |r| <= 0.347, t = r + r^2 q(r); q is a Chebyshev fit, t good to 8e-9.
template <class D, class V>
struct SplitF32 {
  V tail;                                // t
  hn::Vec<hn::RebindToSigned<D>> n;
};
template <class D, class V>
HWY_INLINE SplitF32<D, V> ExpSplitF32(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 0x1.8p23f);
  const V shifted = Fma(d, x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(shifted, magic);
  V r = Fma(d, n, hn::Set(d, -0.6931471824645996f), x);
  r = Fma(d, n, hn::Set(d, 1.904654299957768e-09f), r);
  V q = hn::Set(d, 0.001392637599580353f);
  q = Fma(d, q, r, hn::Set(d, 0.008363333082182943f));
  q = Fma(d, q, r, hn::Set(d, 0.04166655345865175f));
  q = Fma(d, q, r, hn::Set(d, 0.16666576062275124f));
  q = Fma(d, q, r, hn::Set(d, 0.5f));
  return {Fma(d, hn::Mul(r, r), q, r), hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic))};
}
template <class D, class VI>
HWY_INLINE hn::Vec<D> PowerOfTwoF32(D d, VI n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// The scale is applied in two halves: denormal results are rounded once, and 2^128 does not overflow early.
template <class D, class V>
HWY_INLINE V ExpF32Finite(D d, V x) {
  const V clamped = hn::Min(hn::Max(x, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  const auto e = ExpSplitF32(d, clamped);
  const auto half = hn::ShiftRight<1>(e.n);
  const V y = hn::Add(hn::Set(d, 1.0f), e.tail);
  return hn::Mul(hn::Mul(y, PowerOfTwoF32(d, half)), PowerOfTwoF32(d, hn::Sub(e.n, half)));
}
template <class D, class V>
HWY_INLINE V ExpF32(D d, V x) {
  return hn::IfThenElse(IsNan(x), x, ExpF32Finite(d, x));
}

template <class D, class V>
HWY_INLINE V SigmoidF32(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::IfThenElse(IsNan(x), x, hn::Div(one, hn::Add(one, ExpF32Finite(d, hn::Neg(x)))));
}

// x / (1 + e^-x); -inf gives NaN, as it does in PyTorch.
template <class D, class V>
HWY_INLINE V SiluF32(D d, V x) {
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), ExpF32Finite(d, hn::Neg(x))));
}

// (e^2a - 1) / (e^2a + 1), a = |x|
template <class D, class V>
HWY_INLINE V TanhF32(D d, V x) {
  const V a = hn::Min(hn::Abs(x), hn::Set(d, 10.0f));
  const auto e = ExpSplitF32(d, hn::Add(a, a));
  const V scale = PowerOfTwoF32(d, e.n);
  const V m = Fma(d, scale, e.tail, hn::Sub(scale, hn::Set(d, 1.0f)));
  const V y = hn::Div(m, hn::Add(m, hn::Set(d, 2.0f)));
  return hn::IfThenElse(IsNan(x), x, hn::CopySign(y, x));
}

// Horner's scheme in f32.
template <class D, class V, size_t kCount>
HWY_INLINE V PolynomialF32(D d, V x, const float (&c)[kCount]) {
  V sum = hn::Set(d, c[kCount - 1]);
  for (size_t i = kCount - 1; i-- > 0;) sum = Fma(d, sum, x, hn::Set(d, c[i]));
  return sum;
}

// log x = e ln 2 + f + f^2 q(f), x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); q is a minimax fit, the result good
// to 1 unit in the last place.
template <class D, class V>
HWY_INLINE V LogF32(D d, V x) {
  static constexpr float kFit[] = {-0.5f,         0.3333333134651184f,   -0.2500081956386566f,  0.20001226663589478f, -0.16623356938362122f,
                                   0.14201757311820984f, -0.13160182535648346f, 0.1276157796382904f, -0.07634497433900833f};
  const hn::RebindToSigned<D> di;
  const V inf = hn::Set(d, INFINITY), zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  const auto denormal = hn::Lt(x, hn::Set(d, 0x1p-126f));
  const V scaled = hn::IfThenElse(denormal, hn::Mul(x, hn::Set(d, 0x1p24f)), x);
  const auto bits = hn::BitCast(di, scaled);
  // Exponent relative to sqrt(1/2).
  const auto exponent = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3F3504F3)));
  const V f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent))), one);
  const V e = hn::Sub(hn::ConvertTo(d, exponent), hn::IfThenElseZero(denormal, hn::Set(d, 24.0f)));
  V y = Fma(d, hn::Mul(f, f), PolynomialF32(d, f, kFit), f);
  y = Fma(d, e, hn::Set(d, 0.6931471805599453f), y);
  y = hn::IfThenElse(hn::Eq(x, inf), inf, y);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(inf), y);
  return hn::IfThenElse(hn::Ge(x, zero), y, hn::IfThenElse(IsNan(x), x, hn::Set(d, NAN)));
}

// Minimax fits: erf(x) = x + x p(x^2) below 1, 1 - e^q(|x|) above; good to 1.1 units in the last place.
template <class D, class V>
HWY_INLINE V ErfF32(D d, V x) {
  static constexpr float kSmall[] = {0.12837916612625122f,  -0.3761262595653534f,  0.1128358542919159f, -0.026853812858462334f,
                                     0.005188328213989735f, -0.000801019836217165f, 7.853876013541594e-05f};
  static constexpr float kLarge[] = {-0.0003415230312384665f, -1.1270891427993774f, -0.638144850730896f,   -0.10310675203800201f,
                                     0.02183806337416172f,    -0.0029476583003997803f, 0.00018637919856701046f};
  const V one = hn::Set(d, 1.0f);
  const V a = hn::Min(hn::Abs(x), hn::Set(d, 4.0f));  // erf(4) rounds to 1
  const V small = Fma(d, x, PolynomialF32(d, hn::Mul(a, a), kSmall), x);
  const auto e = ExpSplitF32(d, PolynomialF32(d, a, kLarge));
  const V scale = PowerOfTwoF32(d, e.n);
  const V large = hn::CopySign(hn::Sub(one, Fma(d, scale, e.tail, scale)), x);
  const V y = hn::IfThenElse(hn::Lt(a, one), small, large);
  return hn::IfThenElse(IsNan(x), x, y);
}

// 2 atanh(s) = log((1 + s) / (1 - s)) for |s| <= 0.172.
template <class D, class V>
HWY_INLINE V TwoAtanh(D d, V s) {
  static constexpr double kSeries[] = {2.0, 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13};
  return hn::Mul(s, Polynomial(d, hn::Mul(s, s), kSeries));
}

// Positive, finite and normal as a double (every positive f32 is).
template <class D, class V>
HWY_INLINE V LogPositive(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  // Exponent relative to sqrt(1/2), so that the mantissa lies in [sqrt(1/2), sqrt(2)).
  const auto biased = hn::Sub(bits, hn::Set(du, uint64_t{0x3FE6A09E667F3BCD} - (uint64_t{1024} << 52)));
  const auto exponent = hn::ShiftRight<52>(biased);  // + 1024
  const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<52>(hn::Sub(exponent, hn::Set(du, uint64_t{1024})))));
  const V e = hn::Sub(hn::BitCast(d, hn::Or(exponent, hn::Set(du, uint64_t{0x4330000000000000}))),
                      hn::Set(d, 0x1p52 + 1024));
  const V one = hn::Set(d, 1.0);
  const V s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  return Fma(d, e, hn::Set(d, 0.69314718055994531), TwoAtanh(d, s));
}

// x > -1, finite
template <class D, class V>
HWY_INLINE V Log1pFinite(D d, V x) {
  const V small = TwoAtanh(d, hn::Div(x, hn::Add(x, hn::Set(d, 2.0))));
  const auto is_small = hn::And(hn::Gt(x, hn::Set(d, -0.29)), hn::Lt(x, hn::Set(d, 0.41)));
  return hn::IfThenElse(is_small, small, LogPositive(d, hn::Add(x, hn::Set(d, 1.0))));
}

template <class D, class V>
HWY_INLINE V Log1p(D d, V x) {
  const V inf = hn::Set(d, INFINITY), minus_one = hn::Set(d, -1.0);
  V y = Log1pFinite(d, x);
  y = hn::IfThenElse(hn::Or(hn::Eq(x, inf), hn::Eq(x, hn::Zero(d))), x, y);
  y = hn::IfThenElse(hn::Eq(x, minus_one), hn::Neg(inf), y);
  return hn::IfThenElse(hn::Ge(x, minus_one), y, hn::IfThenElse(IsNan(x), x, hn::Set(d, NAN)));
}

// log(1 + e^x)
template <class D, class V>
HWY_INLINE V Softplus(D d, V x) {
  const V y = hn::Add(hn::Max(x, hn::Zero(d)), Log1pFinite(d, ExpFinite(d, hn::Neg(hn::Abs(x)))));
  return hn::IfThenElse(IsNan(x), x, y);
}

// erfc(a) for a >= 0: e^(-a^2) t Q(t), t = 1 / (1 + a / 2); Q is a Chebyshev fit on t in [1/15, 1], good to 1.5e-9.
template <class D, class V>
HWY_INLINE V ErfcPositive(D d, V a) {
  static constexpr double kQ[] = {0.28209492770030226,  0.2820881714700712,   0.24696652345683454, 0.17483619103706027,
                                  0.09359402708813884,  -0.04593260128289628, 0.052513130069892215, -0.21388547015039608,
                                  0.05135705897629879,  0.2768187912734837,   -0.3220647209203934, 0.14731121051639867,
                                  -0.02569723958504952};
  const V b = hn::Min(a, hn::Set(d, 26.0));
  const V t = hn::Div(hn::Set(d, 1.0), Fma(d, b, hn::Set(d, 0.5), hn::Set(d, 1.0)));
  return hn::Mul(ExpFinite(d, hn::Neg(hn::Mul(b, b))), hn::Mul(t, Polynomial(d, t, kQ)));
}

template <class D, class V>
HWY_INLINE V Erfc(D d, V x) {
  const V p = ErfcPositive(d, hn::Abs(x));
  const V y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Sub(hn::Set(d, 2.0), p), p);
  return hn::IfThenElse(IsNan(x), x, y);
}

// x (1 + erf(x / sqrt 2)) / 2
template <class D, class V>
HWY_INLINE V Gelu(D d, V x) {
  const V y = hn::Mul(hn::Mul(x, hn::Set(d, 0.5)), Erfc(d, hn::Mul(x, hn::Set(d, -0.70710678118654752))));
  return hn::IfThenElse(hn::Eq(x, hn::Set(d, -INFINITY)), hn::Set(d, NAN), y);
}

// x (1 + tanh(u)) / 2 = x / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
template <class D, class V>
HWY_INLINE V GeluTanh(D d, V x) {
  const V u2 = hn::Mul(hn::Mul(x, hn::Set(d, -1.5957691216057308)), Fma(d, hn::Mul(x, x), hn::Set(d, 0.044715), hn::Set(d, 1.0)));
  const V y = hn::Div(x, hn::Add(hn::Set(d, 1.0), ExpFinite(d, u2)));
  return hn::IfThenElse(hn::Eq(x, hn::Set(d, -INFINITY)), hn::Set(d, NAN), y);
}

// sin(x) for quarter 0, cos(x) for quarter 1; |x| < 2^22, others are the caller's.
template <class D, class V>
HWY_INLINE V SinQuarter(D d, V x, uint64_t quarter) {
  const hn::RebindToUnsigned<D> du;
  const V magic = hn::Set(d, 0x1.8p52);
  const V shifted = Fma(d, x, hn::Set(d, 0.63661977236758134), magic);
  const V n = hn::Sub(shifted, magic);
  V r = Fma(d, n, hn::Set(d, -1.5707963267948966), x);
  r = Fma(d, n, hn::Set(d, -6.123233995736766e-17), r);
  const V r2 = hn::Mul(r, r);
  static constexpr double kSin[] = {1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800};
  static constexpr double kCos[] = {1.0, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800};
  const V s = hn::Mul(r, Polynomial(d, r2, kSin)), c = Polynomial(d, r2, kCos);
  const auto q = hn::Add(hn::BitCast(du, shifted), hn::Set(du, quarter));
  const auto one = hn::Set(du, uint64_t{1});
  const auto odd = hn::MaskFromVec(hn::BitCast(d, hn::Sub(hn::Zero(du), hn::And(q, one))));
  const V y = hn::IfThenElse(odd, c, s);
  const auto sign = hn::ShiftLeft<63>(hn::And(hn::ShiftRight<1>(q), one));
  return hn::Xor(y, hn::BitCast(d, sign));
}

template <class D, class V>
HWY_INLINE V Atan(D d, V x) {
  // atan(x) / x in x^2 on [0, 1], a Chebyshev fit good to 4.4e-10.
  static constexpr double kFit[] = {0.9999999995535376,  -0.33333322488911593, 0.19999558100363982, -0.14278576024807985,
                                    0.1105077127584966,  -0.08785043282362845, 0.06685281517877424, -0.04392841073326746,
                                    0.021912945865448393, -0.007030669470424213, 0.001057607438057242};
  const V a = hn::Abs(x), one = hn::Set(d, 1.0);
  const auto large = hn::Gt(a, one);
  const V t = hn::IfThenElse(large, hn::Div(one, a), a);
  const V p = hn::Mul(t, Polynomial(d, hn::Mul(t, t), kFit));
  const V y = hn::CopySign(hn::IfThenElse(large, hn::Sub(hn::Set(d, 1.5707963267948966), p), p), x);
  return hn::IfThenElse(IsNan(x), x, y);
}

// a^b for finite a != 0 and finite b; other operands are the caller's.
template <class D, class V>
HWY_INLINE V PowFinite(D d, V a, V b) {
  const V magnitude = ExpFinite(d, hn::Mul(b, LogPositive(d, hn::Abs(a))));
  const V one = hn::Set(d, 1.0), half = hn::Set(d, 0.5);
  const V two52 = hn::Set(d, 0x1p52);
  const V b_abs = hn::Abs(b);  // an f32 of 2^24 or more is an even integer; adding 2^52 rounds those below to integers
  const auto is_integer = hn::Eq(hn::Sub(hn::Add(b_abs, two52), two52), b_abs);
  const V b_half = hn::Mul(b_abs, half);
  const auto is_even = hn::Eq(hn::Sub(hn::Add(b_half, two52), two52), b_half);
  const V negative = hn::IfThenElse(is_integer, hn::IfThenElse(is_even, magnitude, hn::Neg(magnitude)), hn::Set(d, NAN));
  const V y = hn::IfThenElse(hn::Lt(a, hn::Zero(d)), negative, magnitude);
  return hn::IfThenElse(hn::Eq(b, hn::Zero(d)), one, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace opentrn::exec
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
