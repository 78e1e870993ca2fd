#include "exec/register_math.h"

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"

namespace opentrn::exec {
namespace {

using isa::ActFn;
using isa::KernelOp;
using isa::KernelType;

template <double (*kFn)(double), typename T>
void unary(void* to, const void* a, const void*, const void*, size_t n) {
  for (size_t i = 0; i < n; ++i) static_cast<T*>(to)[i] = static_cast<T>(kFn(static_cast<double>(static_cast<const T*>(a)[i])));
}

template <double (*kFn)(double, double), typename T>
void binary(void* to, const void* a, const void* b, const void*, size_t n) {
  for (size_t i = 0; i < n; ++i)
    static_cast<T*>(to)[i] = static_cast<T>(kFn(static_cast<double>(static_cast<const T*>(a)[i]), static_cast<double>(static_cast<const T*>(b)[i])));
}

// f32 through the activation functions, which are vectorised.
template <ActFn kAct>
void activation(void* to, const void* a, const void*, const void*, size_t n) {
  simd().act[static_cast<int>(kAct)](static_cast<float*>(to), static_cast<const float*>(a), n);
}

void pow_f32(void* to, const void* a, const void* b, const void*, size_t n) {
  simd().f32[static_cast<int>(isa::AluOp::pow)](static_cast<float*>(to), static_cast<const float*>(a),
                                               static_cast<const float*>(b), n, Form::rows);
}

template <typename T>
void nextafter_row(void* to, const void* a, const void* b, const void*, size_t n) {
  for (size_t i = 0; i < n; ++i) static_cast<T*>(to)[i] = std::nextafter(static_cast<const T*>(a)[i], static_cast<const T*>(b)[i]);
}

template <typename T>
void pow_integer(void* to, const void* a, const void* b, const void*, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const T base = static_cast<const T*>(a)[i], exponent = static_cast<const T*>(b)[i];
    if (std::is_signed_v<T> && exponent < 0) {
      static_cast<T*>(to)[i] = base == 1 ? 1 : base == static_cast<T>(-1) ? (exponent & 1 ? static_cast<T>(-1) : 1) : 0;
      continue;
    }
    uint64_t result = 1, factor = static_cast<uint64_t>(base);
    for (auto e = static_cast<uint64_t>(exponent); e; e >>= 1, factor *= factor)
      if (e & 1) result *= factor;
    static_cast<T*>(to)[i] = static_cast<T>(result);
  }
}

double lgamma_of(double x) {
  int sign;
  return ::lgamma_r(x, &sign);  // std::lgamma writes a global
}
double fmod_of(double a, double b) { return std::fmod(a, b); }
double copysign_of(double a, double b) { return std::copysign(a, b); }

#define OPENTRN_STD(NAME) \
  double NAME##_of(double x) { return std::NAME(x); }
OPENTRN_STD(exp) OPENTRN_STD(log) OPENTRN_STD(log2) OPENTRN_STD(log10) OPENTRN_STD(log1p) OPENTRN_STD(expm1)
OPENTRN_STD(exp2) OPENTRN_STD(sin) OPENTRN_STD(cos) OPENTRN_STD(tan) OPENTRN_STD(asin) OPENTRN_STD(acos)
OPENTRN_STD(atan) OPENTRN_STD(sinh) OPENTRN_STD(cosh) OPENTRN_STD(tanh) OPENTRN_STD(asinh) OPENTRN_STD(acosh)
OPENTRN_STD(atanh) OPENTRN_STD(erf) OPENTRN_STD(erfc)
#undef OPENTRN_STD
double pow_of(double a, double b) { return std::pow(a, b); }
double atan2_of(double a, double b) { return std::atan2(a, b); }
double hypot_of(double a, double b) { return std::hypot(a, b); }

template <double (*kFn)(double)>
RegisterFn pick(KernelType type) {
  return type == KernelType::f32 ? unary<kFn, float> : type == KernelType::f64 ? unary<kFn, double> : nullptr;
}
template <double (*kFn)(double), ActFn kAct>
RegisterFn pick(KernelType type) {
  return type == KernelType::f32 ? activation<kAct> : type == KernelType::f64 ? unary<kFn, double> : nullptr;
}
template <double (*kFn)(double, double)>
RegisterFn pick2(KernelType type) {
  return type == KernelType::f32 ? binary<kFn, float> : type == KernelType::f64 ? binary<kFn, double> : nullptr;
}

RegisterFn elementary(KernelOp op, KernelType type) {
  switch (op) {
    case KernelOp::pow:
      switch (type) {
        case KernelType::f32: return pow_f32;
        case KernelType::f64: return binary<pow_of, double>;
        case KernelType::i32: return pow_integer<int32_t>;
        case KernelType::u32: return pow_integer<uint32_t>;
        case KernelType::i64: return pow_integer<int64_t>;
        case KernelType::u64: return pow_integer<uint64_t>;
      }
      return nullptr;
    case KernelOp::exp: return pick<exp_of, ActFn::exp>(type);
    case KernelOp::log: return pick<log_of, ActFn::log>(type);
    case KernelOp::log2: return pick<log2_of>(type);
    case KernelOp::log10: return pick<log10_of>(type);
    case KernelOp::log1p: return pick<log1p_of, ActFn::log1p>(type);
    case KernelOp::expm1: return pick<expm1_of, ActFn::expm1>(type);
    case KernelOp::exp2: return pick<exp2_of>(type);
    case KernelOp::sin: return pick<sin_of, ActFn::sin>(type);
    case KernelOp::cos: return pick<cos_of, ActFn::cos>(type);
    case KernelOp::tan: return pick<tan_of>(type);
    case KernelOp::asin: return pick<asin_of>(type);
    case KernelOp::acos: return pick<acos_of>(type);
    case KernelOp::atan: return pick<atan_of, ActFn::arctan>(type);
    case KernelOp::sinh: return pick<sinh_of>(type);
    case KernelOp::cosh: return pick<cosh_of>(type);
    case KernelOp::tanh: return pick<tanh_of, ActFn::tanh>(type);
    case KernelOp::asinh: return pick<asinh_of>(type);
    case KernelOp::acosh: return pick<acosh_of>(type);
    case KernelOp::atanh: return pick<atanh_of>(type);
    case KernelOp::erf: return pick<erf_of, ActFn::erf>(type);
    case KernelOp::erfc: return pick<erfc_of, ActFn::erfc>(type);
    case KernelOp::erfinv: return pick<erfinv>(type);
    case KernelOp::lgamma: return pick<lgamma_of>(type);
    case KernelOp::digamma: return pick<digamma>(type);
    case KernelOp::atan2: return pick2<atan2_of>(type);
    case KernelOp::fmod: return pick2<fmod_of>(type);
    case KernelOp::hypot: return pick2<hypot_of>(type);
    case KernelOp::copysign: return pick2<copysign_of>(type);
    case KernelOp::nextafter:
      return type == KernelType::f32 ? nextafter_row<float> : type == KernelType::f64 ? nextafter_row<double> : nullptr;
    default: return nullptr;
  }
}

}  // namespace

double erfinv(double x) {
  if (!(std::abs(x) < 1)) return std::abs(x) == 1 ? std::copysign(INFINITY, x) : NAN;
  if (x == 0) return x;
  // A starting value from erfc(y) ~ e^(-y^2) / (y sqrt(pi)), then Newton's method on whichever of erf and erfc keeps its
  // relative accuracy (Halley's correction makes each step cubic).
  const double a = std::abs(x);
  const double l = std::log1p(-a * a), s = 2 / (M_PI * 0.147) + l / 2;
  double y = std::sqrt(std::sqrt(s * s - l / 0.147) - s);
  for (int step = 0; step < 3; ++step) {
    const double error = a < 0.5 ? std::erf(y) - a : (1 - a) - std::erfc(y);
    const double delta = error / (2 / std::sqrt(M_PI) * std::exp(-y * y));
    y -= delta / (1 + y * delta);
  }
  return std::copysign(y, x);
}

double digamma(double x) {
  if (x == 0) return std::copysign(INFINITY, -x);
  if (x == -INFINITY || x != x) return NAN;
  double result = 0;
  if (x < 0) {
    if (x == std::floor(x)) return NAN;
    // reflection: psi(1 - x) - psi(x) = pi cot(pi x), with the argument reduced before the multiplication
    const double fraction = x - std::trunc(x);
    result = -M_PI / std::tan(M_PI * fraction);
    x = 1 - x;
  }
  while (x < 12) {
    result -= 1 / x;
    x += 1;
  }
  // asymptotic series with the Bernoulli numbers B2k / 2k
  const double z = 1 / (x * x);
  const double series = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return result + std::log(x) - 0.5 / x - series;
}

RegisterFn register_fn(KernelOp op, KernelType type) {
  if (RegisterFn fn = simd().registers[static_cast<int>(op)][static_cast<int>(type)]) return fn;
  if (RegisterFn fn = elementary(op, type)) return fn;
  static constexpr const char* kNames[] = {"i32", "u32", "i64", "u64", "f32", "f64"};
  throw UserError("gpsimd_kernel: operation number " + std::to_string(static_cast<int>(op)) + " does not exist for " +
                  kNames[static_cast<int>(type)] + "; elementary functions take f32 or f64");
}

}  // namespace opentrn::exec
