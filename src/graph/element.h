// One element of a tensor as a number: how each dtype is read from and written to memory.
// Narrow floats are widened exactly and rounded to nearest even, with PyTorch's rules for overflow.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"

namespace opentrn::graph {

// A binary floating-point format of at most 16 bits.
struct NarrowFormat {
  int exponent_bits = 0, mantissa_bits = 0, bias = 0;
  enum Special : uint8_t { ieee, finite_nan_all_ones, unsigned_zero } special = ieee;
};

float widen(uint16_t bits, const NarrowFormat& format);
uint16_t narrow(float value, const NarrowFormat& format);
const NarrowFormat& narrow_format(DType dtype);  // f16, bf16 and the 8-bit formats with a sign
float widen_e8m0(uint8_t bits);
uint8_t narrow_e8m0(float value);

template <typename T>
T load_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void store_as(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// Float to integer as hardware and PyTorch do where C++ leaves it undefined: NaN and values outside i64 give i64's
// minimum; a value inside i64 is truncated and wrapped by the narrower store.
template <typename Integer, typename Value>
Integer to_integer(Value value) {
  if constexpr (std::is_floating_point_v<Value>) {
    if (std::is_unsigned_v<Integer> && value >= 9223372036854775808.0 && value < 18446744073709551616.0)
      return static_cast<Integer>(static_cast<uint64_t>(value));
    if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0))
      return static_cast<Integer>(INT64_MIN);
    return static_cast<Integer>(static_cast<int64_t>(value));
  } else {
    return static_cast<Integer>(value);
  }
}

// The index-th element of an array of `dtype`, converted to T (float, double, int64_t or uint64_t).
template <typename T>
T load(DType dtype, const std::byte* data, int64_t index) {
  const std::byte* at = data + index * size_of(dtype);
  switch (dtype) {
    case DType::boolean: return static_cast<T>(load_as<uint8_t>(at) != 0);
    case DType::u8: return static_cast<T>(load_as<uint8_t>(at));
    case DType::i8: return static_cast<T>(load_as<int8_t>(at));
    case DType::u16: return static_cast<T>(load_as<uint16_t>(at));
    case DType::i16: return static_cast<T>(load_as<int16_t>(at));
    case DType::u32: return static_cast<T>(load_as<uint32_t>(at));
    case DType::i32: return static_cast<T>(load_as<int32_t>(at));
    case DType::u64: return static_cast<T>(load_as<uint64_t>(at));
    case DType::i64: return static_cast<T>(load_as<int64_t>(at));
    case DType::f32: case DType::f64: {
      double value = dtype == DType::f32 ? load_as<float>(at) : load_as<double>(at);
      if constexpr (std::is_integral_v<T>) return to_integer<T>(value);
      return static_cast<T>(value);
    }
    case DType::f4e2m1x2: case DType::c32: case DType::c64: case DType::c128:
      throw Unsupported("arithmetic on " + std::string(name_of(dtype)) + " elements");
    default: {
      float value = dtype == DType::bf16 ? std::bit_cast<float>(static_cast<uint32_t>(load_as<uint16_t>(at)) << 16)
                    : dtype == DType::f8e8m0fnu ? widen_e8m0(load_as<uint8_t>(at))
                    : size_of(dtype) == 2       ? widen(load_as<uint16_t>(at), narrow_format(dtype))
                                                : widen(load_as<uint8_t>(at), narrow_format(dtype));
      if constexpr (std::is_integral_v<T>) return to_integer<T>(value);
      return static_cast<T>(value);
    }
  }
}

template <typename T>
void store(DType dtype, std::byte* data, int64_t index, T value) {
  std::byte* at = data + index * size_of(dtype);
  switch (dtype) {
    case DType::boolean: return store_as<uint8_t>(at, value != T(0));
    case DType::u8: case DType::i8: return store_as(at, to_integer<uint8_t>(value));
    case DType::u16: case DType::i16: return store_as(at, to_integer<uint16_t>(value));
    case DType::u32: case DType::i32: return store_as(at, to_integer<uint32_t>(value));
    case DType::u64: return store_as(at, to_integer<uint64_t>(value));
    case DType::i64: return store_as(at, to_integer<int64_t>(value));
    case DType::f32: return store_as(at, static_cast<float>(value));
    case DType::f64: return store_as(at, static_cast<double>(value));
    case DType::f4e2m1x2: case DType::c32: case DType::c64: case DType::c128:
      throw Unsupported("arithmetic on " + std::string(name_of(dtype)) + " elements");
    case DType::f8e8m0fnu: return store_as(at, narrow_e8m0(static_cast<float>(value)));
    default: {
      uint16_t bits = narrow(static_cast<float>(value), narrow_format(dtype));
      if (size_of(dtype) == 2) return store_as(at, bits);
      return store_as(at, static_cast<uint8_t>(bits));
    }
  }
}

}  // namespace opentrn::graph
