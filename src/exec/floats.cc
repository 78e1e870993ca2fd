#include "exec/floats.h"

#include <array>

namespace opentrn::exec {
namespace {

struct Format {
  int exponent_bits, mantissa_bits, bias;
  enum class Special { ieee, fn, fnuz } special;  // infinities and NaNs; only NaN; only negative zero is NaN
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f8e5m2: return {5, 2, 15, Format::Special::ieee};
    case DType::f8e4m3: return {4, 3, 7, Format::Special::ieee};
    case DType::f8e4m3fn: return {4, 3, 7, Format::Special::fn};
    case DType::f8e5m2fnuz: return {5, 2, 16, Format::Special::fnuz};
    default: return {4, 3, 8, Format::Special::fnuz};  // f8e4m3fnuz
  }
}

std::array<std::array<float, 256>, 6> make_tables() {
  std::array<std::array<float, 256>, 6> tables;
  for (int t = 0; t < 6; ++t)
    for (int i = 0; i < 256; ++i)
      tables[t][i] = f8_to_f32(static_cast<DType>(static_cast<int>(DType::f8e4m3fn) + t), static_cast<uint8_t>(i));
  return tables;
}

}  // namespace

float f8_to_f32(DType dtype, uint8_t bits) {
  if (dtype == DType::f8e8m0fnu) return bits == 0xFF ? std::nanf("") : std::ldexp(1.0f, static_cast<int>(bits) - 127);
  const Format f = format_of(dtype);
  const int sign = bits >> 7, exponent = (bits & 0x7F) >> f.mantissa_bits;
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const int top = (1 << f.exponent_bits) - 1;
  const float negative = sign ? -1.0f : 1.0f;
  if (f.special == Format::Special::fnuz && bits == 0x80) return std::nanf("");
  if (f.special == Format::Special::fn && (bits & 0x7F) == 0x7F) return std::copysign(std::nanf(""), negative);
  if (f.special == Format::Special::ieee && exponent == top)
    return mantissa ? std::copysign(std::nanf(""), negative) : negative * INFINITY;
  if (exponent == 0) return negative * std::ldexp(static_cast<float>(mantissa), 1 - f.bias - f.mantissa_bits);
  return negative * std::ldexp(static_cast<float>(mantissa + (1 << f.mantissa_bits)), exponent - f.bias - f.mantissa_bits);
}

uint8_t f32_to_f8(DType dtype, float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (dtype == DType::f8e8m0fnu) {  // the exponent alone; 1.5 and more round up
    const uint32_t exponent = bits >> 23 & 0xFF;
    if (exponent == 0xFF) return 0xFF;
    const bool guard = bits & 0x400000, rest = bits & 0x3FFFFF;
    return static_cast<uint8_t>(exponent + (guard && (rest || exponent > 0) ? 1 : 0));
  }
  const Format f = format_of(dtype);
  const uint8_t sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const uint8_t top = static_cast<uint8_t>(((1 << f.exponent_bits) - 1) << f.mantissa_bits);
  uint8_t largest = static_cast<uint8_t>(top - 1), overflow = top, nan = static_cast<uint8_t>(top | 1 << (f.mantissa_bits - 1));
  if (f.special == Format::Special::fn) largest = overflow = 0x7E, nan = 0x7F;
  if (f.special == Format::Special::fnuz) largest = 0x7F, overflow = nan = 0x80;
  if (magnitude > 0x7F800000) return nan == 0x80 ? nan : nan | sign;
  const auto overflowed = [&] { return overflow == 0x80 ? overflow : static_cast<uint8_t>(overflow | sign); };
  if (magnitude == 0x7F800000) return overflowed();
  int exponent = static_cast<int>(magnitude >> 23) - 127 + f.bias;
  if (magnitude < 0x00800000) exponent = -200;  // an f32 denormal is far below every 8-bit format
  uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000;
  int shift = 23 - f.mantissa_bits;
  if (exponent <= 0) {
    shift += 1 - exponent;
    exponent = 0;
  } else {
    mantissa &= 0x7FFFFF;
  }
  if (shift > 25) return f.special == Format::Special::fnuz ? 0 : sign;
  const uint32_t half = 1u << (shift - 1), rest = mantissa & ((1u << shift) - 1);
  uint32_t result = (static_cast<uint32_t>(exponent) << f.mantissa_bits) + (mantissa >> shift);
  if (rest > half || (rest == half && (result & 1))) ++result;
  if (result > largest) return overflowed();
  if (f.special == Format::Special::fnuz && result == 0) return 0;  // no negative zero
  return static_cast<uint8_t>(result | sign);
}

const float* f8_table(DType dtype) {
  static const auto tables = make_tables();
  return tables[static_cast<int>(dtype) - static_cast<int>(DType::f8e4m3fn)].data();
}

}  // namespace opentrn::exec
