// Activation functions.
#include <cmath>

#include "exec/simd.h"
#include "exec/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/simd_activation.cc"
#include "hwy/foreach_target.h"
// Highway and the -inl header after foreach_target.
#include "exec/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace opentrn::exec {
namespace HWY_NAMESPACE {
namespace {

using isa::ActFn;

// Applies Op to f32 vectors.
template <class Op>
void Single(float* to, const float* from, size_t n) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto x = Op::Do(d, hn::LoadU(d, from + i)), y = Op::Do(d, hn::LoadU(d, from + i + lanes));
    hn::StoreU(x, d, to + i);
    hn::StoreU(y, d, to + i + lanes);
  }
  for (; i + lanes <= n; i += lanes) hn::StoreU(Op::Do(d, hn::LoadU(d, from + i)), d, to + i);
  for (; i < n; ++i) hn::StoreU(Op::Do(one, hn::LoadU(one, from + i)), one, to + i);
}

// Applies Op to doubles that hold the f32 values.
template <class Op>
void Double(float* to, const float* from, size_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const hn::CappedTag<double, 1> one;
  const hn::Rebind<float, decltype(one)> onef;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d))
    hn::StoreU(Demote(df, Op::Do(d, hn::PromoteTo(d, hn::LoadU(df, from + i)))), df, to + i);
  for (; i < n; ++i)
    hn::StoreU(Demote(onef, Op::Do(one, hn::PromoteTo(one, hn::LoadU(onef, from + i)))), onef, to + i);
}

#define OPENTRN_DO(NAME, EXPRESSION)                \
  struct NAME {                                     \
    template <class D, class V>                     \
    static HWY_INLINE V Do(D d, V x) {              \
      (void)d;                                      \
      return EXPRESSION;                            \
    }                                               \
  };
OPENTRN_DO(DoCopy, x)
OPENTRN_DO(DoSqrt, hn::Sqrt(x))
OPENTRN_DO(DoRsqrt, hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)))
OPENTRN_DO(DoSquare, hn::Mul(x, x))
OPENTRN_DO(DoReciprocal, hn::Div(hn::Set(d, 1.0f), x))
OPENTRN_DO(DoAbs, hn::Abs(x))
// 0 for NaN, as in PyTorch
OPENTRN_DO(DoSign, hn::Sub(hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1.0f)),
                           hn::IfThenElseZero(hn::Lt(x, hn::Zero(d)), hn::Set(d, 1.0f))))
OPENTRN_DO(DoRelu, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x))  // NaN and -0 stay
OPENTRN_DO(DoExp, ExpF32(d, x))
OPENTRN_DO(DoLog, LogF32(d, x))
OPENTRN_DO(DoSigmoid, SigmoidF32(d, x))
OPENTRN_DO(DoTanh, TanhF32(d, x))
OPENTRN_DO(DoGelu, Gelu(d, x))
OPENTRN_DO(DoGeluTanh, GeluTanh(d, x))
OPENTRN_DO(DoSilu, SiluF32(d, x))
OPENTRN_DO(DoErf, ErfF32(d, x))
OPENTRN_DO(DoErfc, Erfc(d, x))
OPENTRN_DO(DoSoftplus, Softplus(d, x))
OPENTRN_DO(DoArctan, Atan(d, x))
OPENTRN_DO(DoLog1p, Log1p(d, x))
OPENTRN_DO(DoExpm1, Expm1(d, x))
#undef OPENTRN_DO

// sin and cos: vectors with |x| < 2^22, the C library for the rest (whose range reduction is exact).
template <int kQuarter, class D>
HWY_INLINE void SinBlock(D d, float* to, const float* from) {
  const hn::Rebind<float, D> df;
  const auto x = hn::LoadU(df, from);
  const auto easy = hn::Lt(hn::Abs(x), hn::Set(df, 0x1p22f));
  auto y = Demote(df, SinQuarter(d, hn::PromoteTo(d, x), kQuarter));
  if (kQuarter == 0) y = hn::IfThenElse(hn::Eq(x, hn::Zero(df)), x, y);  // keeps -0
  if (hn::AllTrue(df, easy)) {
    hn::StoreU(y, df, to);
    return;
  }
  HWY_ALIGN float xs[kMaxLanes<D>], ys[kMaxLanes<D>];
  hn::StoreU(x, df, xs);
  hn::StoreU(y, df, ys);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    const double v = xs[i];
    to[i] = std::abs(xs[i]) < 0x1p22f ? ys[i] : static_cast<float>(kQuarter == 0 ? std::sin(v) : std::cos(v));
  }
}

template <int kQuarter>
void Sin(float* to, const float* from, size_t n) {
  const hn::ScalableTag<double> d;
  const hn::CappedTag<double, 1> one;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) SinBlock<kQuarter>(d, to + i, from + i);
  for (; i < n; ++i) SinBlock<kQuarter>(one, to + i, from + i);
}

// hn::Floor and hn::Ceil round-trip through integers on old targets.
template <bool kUp>
void Round(float* to, const float* from, size_t n) {
  size_t i = 0;
#if OPENTRN_FUSED
  const hn::ScalableTag<float> d;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, from + i);
    hn::StoreU(kUp ? hn::Ceil(x) : hn::Floor(x), d, to + i);
  }
#endif
  for (; i < n; ++i) to[i] = kUp ? __builtin_ceilf(from[i]) : __builtin_floorf(from[i]);
}

void Fill(Simd& table) {
  const auto set = [&](ActFn act, UnaryFn fn) { table.act[static_cast<int>(act)] = fn; };
  set(ActFn::copy, Single<DoCopy>);
  set(ActFn::exp, Single<DoExp>);
  set(ActFn::log, Single<DoLog>);
  set(ActFn::sqrt, Single<DoSqrt>);
  set(ActFn::rsqrt, Single<DoRsqrt>);
  set(ActFn::square, Single<DoSquare>);
  set(ActFn::reciprocal, Single<DoReciprocal>);
  set(ActFn::abs, Single<DoAbs>);
  set(ActFn::sign, Single<DoSign>);
  set(ActFn::sigmoid, Single<DoSigmoid>);
  set(ActFn::tanh, Single<DoTanh>);
  set(ActFn::relu, Single<DoRelu>);
  set(ActFn::gelu, Double<DoGelu>);
  set(ActFn::gelu_tanh, Double<DoGeluTanh>);
  set(ActFn::silu, Single<DoSilu>);
  set(ActFn::erf, Single<DoErf>);
  set(ActFn::erfc, Double<DoErfc>);
  set(ActFn::softplus, Double<DoSoftplus>);
  set(ActFn::sin, Sin<0>);
  set(ActFn::cos, Sin<1>);
  set(ActFn::arctan, Double<DoArctan>);
  set(ActFn::log1p, Double<DoLog1p>);
  set(ActFn::expm1, Double<DoExpm1>);
  set(ActFn::floor, Round<false>);
  set(ActFn::ceil, Round<true>);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace opentrn::exec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opentrn::exec {
HWY_EXPORT(Fill);
void fill_activation(Simd& table) { HWY_DYNAMIC_DISPATCH(Fill)(table); }
}  // namespace opentrn::exec
#endif
