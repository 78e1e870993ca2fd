// Narrow floating-point formats to and from f32, one value at a time, rounding to the nearest even.
// Overflow and NaN follow PyTorch: f8e4m3fn saturates, f8e5m2 and f8e4m3 overflow to infinity, the fnuz formats to NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"

namespace opentrn::exec {

inline float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const uint32_t nan = ((bits >> 16) & 0x8000) | 0x7FC0;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded);
}

inline float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7FFF;
  if (magnitude >= 0x7C00)  // infinity or NaN; a NaN becomes quiet
    return std::bit_cast<float>(sign | 0x7F800000 | (magnitude & 0x3FF) << 13 | (magnitude > 0x7C00 ? 0x400000 : 0));
  if (magnitude >= 0x400) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float denormal = static_cast<float>(magnitude) * 0x1p-24f;  // exact
  return std::bit_cast<float>(std::bit_cast<uint32_t>(denormal) | sign);
}

inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // 65520 and more round to infinity
  if (magnitude < 0x38800000) {  // below 2^-14: a denormal; adding 0.5 rounds at the denormal's last bit
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000));
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

// The 8-bit formats.
float f8_to_f32(DType dtype, uint8_t bits);
uint8_t f32_to_f8(DType dtype, float value);
// All 256 values of an 8-bit format.
const float* f8_table(DType dtype);

}  // namespace opentrn::exec
