#include "graph/elementwise.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "graph/element.h"

namespace opentrn::graph {
namespace {

template <typename T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

template <typename T>
T real_unary(Op op, T x) {
  const double w = x;  // elementary functions are evaluated in f64 and rounded once
  switch (op) {
    case Op::neg: return -x;
    case Op::abs: return std::fabs(x);
    case Op::sign: return static_cast<T>((x > 0) - (x < 0));
    case Op::exp: return static_cast<T>(std::exp(w));
    case Op::exp2: return static_cast<T>(std::exp2(w));
    case Op::expm1: return static_cast<T>(std::expm1(w));
    case Op::log: return static_cast<T>(std::log(w));
    case Op::log2: return static_cast<T>(std::log2(w));
    case Op::log10: return static_cast<T>(std::log10(w));
    case Op::log1p: return static_cast<T>(std::log1p(w));
    case Op::sqrt: return std::sqrt(x);
    case Op::rsqrt: return static_cast<T>(1 / std::sqrt(w));
    case Op::cbrt: return static_cast<T>(std::cbrt(w));
    case Op::reciprocal: return 1 / x;
    case Op::sin: return static_cast<T>(std::sin(w));
    case Op::cos: return static_cast<T>(std::cos(w));
    case Op::tan: return static_cast<T>(std::tan(w));
    case Op::asin: return static_cast<T>(std::asin(w));
    case Op::acos: return static_cast<T>(std::acos(w));
    case Op::atan: return static_cast<T>(std::atan(w));
    case Op::sinh: return static_cast<T>(std::sinh(w));
    case Op::cosh: return static_cast<T>(std::cosh(w));
    case Op::tanh: return static_cast<T>(std::tanh(w));
    case Op::asinh: return static_cast<T>(std::asinh(w));
    case Op::acosh: return static_cast<T>(std::acosh(w));
    case Op::atanh: return static_cast<T>(std::atanh(w));
    case Op::erf: return static_cast<T>(std::erf(w));
    case Op::erfc: return static_cast<T>(std::erfc(w));
    case Op::erfinv: return static_cast<T>(erfinv(w));
    case Op::lgamma: return static_cast<T>(std::lgamma(w));
    case Op::digamma: return static_cast<T>(digamma(w));
    case Op::logistic: return static_cast<T>(1 / (1 + std::exp(-w)));
    case Op::floor: return std::floor(x);
    case Op::ceil: return std::ceil(x);
    case Op::round_nearest_even: return std::nearbyint(x);
    case Op::trunc: return std::trunc(x);
    case Op::rounded: return x;
    default: throw InternalError(fmt::format("elementwise: {} on floating point", name_of(op)));
  }
}

template <typename T>
T integer_unary(Op op, T x) {
  switch (op) {
    case Op::neg: return static_cast<T>(0 - static_cast<uint64_t>(x));
    case Op::abs: return x < 0 ? static_cast<T>(0 - static_cast<uint64_t>(x)) : x;
    case Op::sign: return static_cast<T>((x > 0) - (x < 0));
    case Op::bitwise_not: return static_cast<T>(~x);
    case Op::logical_not: return static_cast<T>(x == 0);
    case Op::rounded: return x;
    default: throw InternalError(fmt::format("elementwise: {} on integers", name_of(op)));
  }
}

template <typename T>
T real_binary(Op op, T a, T b) {
  const double w = a, v = b;
  switch (op) {
    case Op::add: return a + b;
    case Op::subtract: return a - b;
    case Op::multiply: return a * b;
    case Op::divide: return a / b;
    case Op::floor_divide: {
      if (b == 0) return a / b;
      const T mod = std::fmod(a, b);
      T quotient = (a - mod) / b;
      if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1;
      if (quotient == 0) return std::copysign(T(0), a / b);
      const T whole = std::floor(quotient);
      return quotient - whole > T(0.5) ? whole + 1 : whole;
    }
    case Op::remainder: {
      const T mod = std::fmod(a, b);
      return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
    }
    case Op::fmod: return std::fmod(a, b);
    case Op::power: return static_cast<T>(std::pow(w, v));
    case Op::maximum: return std::isnan(a) || std::isnan(b) ? kNaN<T> : a > b ? a : b;
    case Op::minimum: return std::isnan(a) || std::isnan(b) ? kNaN<T> : a < b ? a : b;
    case Op::fmax: return std::fmax(a, b);
    case Op::fmin: return std::fmin(a, b);
    case Op::atan2: return static_cast<T>(std::atan2(w, v));
    case Op::hypot: return static_cast<T>(std::hypot(w, v));
    case Op::copysign: return std::copysign(a, b);
    case Op::nextafter: return std::nextafter(a, b);
    default: throw InternalError(fmt::format("elementwise: {} on floating point", name_of(op)));
  }
}

template <typename T>
T integer_power(T base, T exponent) {
  if (exponent < 0) return base == 1 ? T(1) : base == T(-1) ? (exponent & 1 ? T(-1) : T(1)) : T(0);
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (uint64_t e = static_cast<uint64_t>(exponent); e; e >>= 1) {
    if (e & 1) result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}

template <typename T>
T shift(Op op, T a, T b, int bits) {
  const bool all = b < 0 || b >= static_cast<T>(bits);  // shifted out entirely
  if (op == Op::shift_left) return all ? T(0) : static_cast<T>(static_cast<uint64_t>(a) << b);
  if (op == Op::shift_right_arithmetic) return static_cast<T>(a >> (all ? (std::is_signed_v<T> ? bits - 1 : 0) : b)) *
                                               static_cast<T>(!(all && std::is_unsigned_v<T>));
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  return all ? T(0) : static_cast<T>((static_cast<uint64_t>(a) & mask) >> b);
}

template <typename T>
T integer_binary(Op op, T a, T b, int bits) {
  using U = uint64_t;
  if (op == Op::divide || op == Op::floor_divide || op == Op::remainder || op == Op::fmod) {
    if (b == 0) throw UserError(fmt::format("{}: integer division by zero", name_of(op)));
    const bool minus_one = std::is_signed_v<T> && b == T(-1);  // the quotient of the minimum wraps
    const T quotient = minus_one ? static_cast<T>(0 - static_cast<U>(a)) : a / b;
    const T rest = minus_one ? T(0) : a % b;
    const bool correct = rest != 0 && (rest < 0) != (b < 0);
    if (op == Op::divide) return quotient;
    if (op == Op::floor_divide) return correct ? quotient - 1 : quotient;
    if (op == Op::remainder) return correct ? rest + b : rest;
    return rest;
  }
  switch (op) {
    case Op::add: return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    case Op::subtract: return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
    case Op::multiply: return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    case Op::power: return integer_power(a, b);
    case Op::maximum: case Op::fmax: return a > b ? a : b;
    case Op::minimum: case Op::fmin: return a < b ? a : b;
    case Op::logical_and: return a && b;
    case Op::logical_or: return a || b;
    case Op::logical_xor: return !a != !b;
    case Op::bitwise_and: return a & b;
    case Op::bitwise_or: return a | b;
    case Op::bitwise_xor: return a ^ b;
    case Op::shift_left: case Op::shift_right_arithmetic: case Op::shift_right_logical: return shift(op, a, b, bits);
    default: throw InternalError(fmt::format("elementwise: {} on integers", name_of(op)));
  }
}

template <typename T>
bool compare(Op op, T a, T b) {
  switch (op) {
    case Op::compare_eq: return a == b;
    case Op::compare_ne: return a != b;
    case Op::compare_lt: return a < b;
    case Op::compare_le: return a <= b;
    case Op::compare_gt: return a > b;
    default: return a >= b;
  }
}

template <typename T>
T binary(Op op, T a, T b, int bits) {
  if constexpr (std::is_integral_v<T>) return integer_binary(op, a, b, bits);
  else return real_binary(op, a, b);
}

// All operations whose operands and result share a dtype, and comparisons.
template <typename T>
void same_dtype(const Node& node, std::span<const Dense* const> operands, Dense& out) {
  const DType dtype = operands[0]->type.dtype;
  const int64_t count = elements(out.type.shape);
  const int bits = static_cast<int>(size_of(dtype)) * 8;
  auto at = [&](size_t operand, int64_t i) { return load<T>(dtype, operands[operand]->data(), i); };
  for (int64_t i = 0; i < count; ++i) {
    T value;
    if (node.op >= Op::compare_eq && node.op <= Op::compare_ge) {
      store<int64_t>(DType::boolean, out.data(), i, compare(node.op, at(0, i), at(1, i)));
      continue;
    } else if (node.op == Op::clamp) {
      value = binary(Op::minimum, binary(Op::maximum, at(0, i), at(1, i), bits), at(2, i), bits);
    } else if (operands.size() == 2) {
      value = binary(node.op, at(0, i), at(1, i), bits);
    } else if constexpr (std::is_integral_v<T>) {
      value = integer_unary(node.op, at(0, i));
      if (dtype == DType::boolean && node.op == Op::bitwise_not) value = at(0, i) == 0;
    } else {
      if (node.op == Op::is_nan || node.op == Op::is_inf || node.op == Op::is_finite) {
        const T x = at(0, i);
        const bool is = node.op == Op::is_nan ? std::isnan(x) : node.op == Op::is_inf ? std::isinf(x) : std::isfinite(x);
        store<int64_t>(DType::boolean, out.data(), i, is);
        continue;
      }
      value = real_unary(node.op, at(0, i));
    }
    store<T>(dtype, out.data(), i, value);
  }
}

// nextafter and copysign work on the format itself.
void next_after_narrow(std::span<const Dense* const> operands, Dense& out) {
  const DType dtype = out.type.dtype;
  const int size = static_cast<int>(size_of(dtype));
  const uint32_t sign = 1u << (size * 8 - 1);
  for (int64_t i = 0; i < elements(out.type.shape); ++i) {
    const float from = load<float>(dtype, operands[0]->data(), i), to = load<float>(dtype, operands[1]->data(), i);
    uint32_t bits = 0;
    std::memcpy(&bits, operands[0]->data() + i * size, size);
    if (std::isnan(from) || std::isnan(to)) {
      store<float>(dtype, out.data(), i, kNaN<float>);
      continue;
    }
    if (from == to) std::memcpy(&bits, operands[1]->data() + i * size, size);
    else if (from == 0) bits = (to < 0 ? sign : 0) | 1;
    else bits += (from < to) == (from > 0) ? 1 : -1;
    std::memcpy(out.data() + i * size, &bits, size);
  }
}

void convert(const Dense& x, Dense& out) {
  const DType from = x.type.dtype, to = out.type.dtype;
  const int64_t count = elements(out.type.shape);
  for (int64_t i = 0; i < count; ++i) {
    if (from == DType::f64) store(to, out.data(), i, load<double>(from, x.data(), i));
    else if (is_float(from)) store(to, out.data(), i, load<float>(from, x.data(), i));
    else if (from == DType::u64) store(to, out.data(), i, load<uint64_t>(from, x.data(), i));
    else store(to, out.data(), i, load<int64_t>(from, x.data(), i));
  }
}

}  // namespace

bool is_elementwise(Op op) { return (op >= Op::neg && op <= Op::clamp) || op == Op::rounded; }

void evaluate_elementwise(const Node& node, std::span<const Dense* const> operands, Dense& out) {
  const DType dtype = operands[0]->type.dtype;
  const int64_t count = elements(out.type.shape);
  if (node.op == Op::bitcast || node.op == Op::rounded) {
    out.bytes = operands[0]->bytes;
  } else if (node.op == Op::convert) {
    convert(*operands[0], out);
  } else if (node.op == Op::select) {
    const int64_t size = size_of(out.type.dtype);
    for (int64_t i = 0; i < count; ++i) {
      const Dense* from = operands[load<int64_t>(DType::boolean, operands[0]->data(), i) ? 1 : 2];
      std::memcpy(out.data() + i * size, from->data() + i * size, size);
    }
  } else if (!is_float(dtype) && (node.op == Op::is_nan || node.op == Op::is_inf || node.op == Op::is_finite)) {
    for (int64_t i = 0; i < count; ++i) store<int64_t>(DType::boolean, out.data(), i, node.op == Op::is_finite);
  } else if (node.op == Op::nextafter && is_float(dtype) && size_of(dtype) < 4) {
    next_after_narrow(operands, out);
  } else if (dtype == DType::f64) {
    same_dtype<double>(node, operands, out);
  } else if (is_float(dtype)) {
    same_dtype<float>(node, operands, out);
  } else if (dtype == DType::boolean || !is_signed(dtype)) {
    same_dtype<uint64_t>(node, operands, out);
  } else {
    same_dtype<int64_t>(node, operands, out);
  }
}

double digamma(double x) {
  constexpr double kPi = 3.14159265358979323846;
  if (x == 0) return std::copysign(HUGE_VAL, -x);
  double result = 0;
  if (x < 0) {
    if (x == std::floor(x)) return kNaN<double>;
    result = -kPi / std::tan(kPi * (x - std::floor(x)));  // reflection
    x = 1 - x;
  }
  for (; x < 10; ++x) result -= 1 / x;
  const double y = 1 / (x * x);
  // Asymptotic series with the Bernoulli numbers B2, B4, ... B14.
  const double series = y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132 -
                        y * (691.0 / 32760 - y / 12))))));
  return result + std::log(x) - 0.5 / x - series;
}

double erfinv(double x) {
  if (std::isnan(x) || std::fabs(x) > 1) return kNaN<double>;
  if (std::fabs(x) == 1) return std::copysign(HUGE_VAL, x);
  if (x == 0) return x;
  // Winitzki's approximation (2008), then Halley steps, each of which triples the number of right digits.
  constexpr double kA = 0.147, kPi = 3.14159265358979323846;
  const double l = std::log1p(-x * x), t = 2 / (kPi * kA) + l / 2;
  double y = std::fabs(x) < 1e-3 ? x * std::sqrt(kPi) / 2
                                 : std::copysign(std::sqrt(std::sqrt(t * t - l / kA) - t), x);
  for (int i = 0; i < 4; ++i) {
    // Near +-1 the difference of complements keeps the digits that erf(y) - x loses.
    const double error = std::fabs(x) < 0.5 ? x - std::erf(y)
                         : x > 0            ? std::erfc(y) - (1 - x)
                                            : (1 + x) - std::erfc(-y);
    const double step = error / (2 / std::sqrt(kPi) * std::exp(-y * y));
    y += step / (1 - y * step);
  }
  return y;
}

}  // namespace opentrn::graph
