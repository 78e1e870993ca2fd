#include "graph/element.h"

#include <cmath>

namespace opentrn::graph {

const NarrowFormat& narrow_format(DType dtype) {
  static constexpr NarrowFormat kF16{5, 10, 15, NarrowFormat::ieee}, kBf16{8, 7, 127, NarrowFormat::ieee},
      kE4m3fn{4, 3, 7, NarrowFormat::finite_nan_all_ones}, kE5m2{5, 2, 15, NarrowFormat::ieee},
      kE4m3fnuz{4, 3, 8, NarrowFormat::unsigned_zero}, kE5m2fnuz{5, 2, 16, NarrowFormat::unsigned_zero},
      kE4m3{4, 3, 7, NarrowFormat::ieee};
  switch (dtype) {
    case DType::f16: return kF16;
    case DType::bf16: return kBf16;
    case DType::f8e4m3fn: return kE4m3fn;
    case DType::f8e5m2: return kE5m2;
    case DType::f8e4m3fnuz: return kE4m3fnuz;
    case DType::f8e5m2fnuz: return kE5m2fnuz;
    case DType::f8e4m3: return kE4m3;
    default: throw InternalError("no narrow format " + std::string(name_of(dtype)));
  }
}

float widen(uint16_t bits, const NarrowFormat& f) {
  const int width = 1 + f.exponent_bits + f.mantissa_bits;
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const int exponent = (bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const int top = (1 << f.exponent_bits) - 1;
  const float sign = (bits >> (width - 1)) & 1 ? -1.0f : 1.0f;
  if (f.special == NarrowFormat::unsigned_zero && bits == 1 << (width - 1)) return std::nanf("");
  if (f.special == NarrowFormat::finite_nan_all_ones && exponent == top && mantissa == (1 << f.mantissa_bits) - 1)
    return std::nanf("");
  if (f.special == NarrowFormat::ieee && exponent == top)
    return mantissa ? std::nanf("") : sign * HUGE_VALF;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), 1 - f.bias - f.mantissa_bits);
  return sign * std::ldexp(static_cast<float>(mantissa | 1 << f.mantissa_bits), exponent - f.bias - f.mantissa_bits);
}

uint16_t narrow(float value, const NarrowFormat& f) {
  const int width = 1 + f.exponent_bits + f.mantissa_bits;
  const int top = (1 << f.exponent_bits) - 1;
  const uint16_t sign = static_cast<uint16_t>(std::signbit(value) ? 1 << (width - 1) : 0);
  if (f.special == NarrowFormat::unsigned_zero) {
    if (std::isnan(value) || std::isinf(value)) return static_cast<uint16_t>(1 << (width - 1));
  } else if (std::isnan(value)) {
    if (f.special == NarrowFormat::finite_nan_all_ones) return static_cast<uint16_t>(sign | ((1 << (width - 1)) - 1));
    return static_cast<uint16_t>(sign | top << f.mantissa_bits | 1 << (f.mantissa_bits - 1));
  }
  // The largest finite code, and what an overflow becomes.
  const int largest = f.special == NarrowFormat::ieee                  ? (top << f.mantissa_bits) - 1
                      : f.special == NarrowFormat::finite_nan_all_ones ? (1 << (width - 1)) - 2
                                                                       : (1 << (width - 1)) - 1;
  auto overflow = [&]() -> uint16_t {
    if (f.special == NarrowFormat::ieee) return static_cast<uint16_t>(sign | (largest + 1));  // infinity
    if (f.special == NarrowFormat::finite_nan_all_ones) return static_cast<uint16_t>(sign | largest);  // saturates
    return static_cast<uint16_t>(1 << (width - 1));  // NaN
  };
  if (std::isinf(value)) return overflow();
  float magnitude = std::fabs(value);
  int exponent = 0;
  if (magnitude > 0) exponent = std::max(std::ilogb(magnitude), 1 - f.bias);
  // Units of the last place at this exponent; scaling by a power of two is exact, nearbyint rounds to nearest even.
  double units = std::nearbyint(std::ldexp(static_cast<double>(magnitude), f.mantissa_bits - exponent));
  int64_t code = static_cast<int64_t>(units);
  if (magnitude > 0) code += static_cast<int64_t>(exponent + f.bias - 1) << f.mantissa_bits;
  if (code > largest) return overflow();
  if (code == 0 && f.special == NarrowFormat::unsigned_zero) return 0;
  return static_cast<uint16_t>(sign | code);
}

float widen_e8m0(uint8_t bits) { return bits == 0xff ? std::nanf("") : std::ldexp(1.0f, bits - 127); }

uint8_t narrow_e8m0(float value) {
  // The format has no sign; halves round up, except between the two smallest codes.
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t exponent = (bits >> 23) & 0xff;
  if (exponent == 0xff) return 0xff;
  const bool half = bits & 0x400000, below = bits & 0x3fffff;
  return static_cast<uint8_t>(exponent + (half && (below || exponent > 0)));
}

}  // namespace opentrn::graph
