#include "exec/convert.h"

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "exec/floats.h"
#include "exec/simd.h"

namespace opentrn::exec {
namespace {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
template <DType kDType>
struct Float8 {
  uint8_t bits;
};

template <typename T>
struct IsNarrow : std::false_type {};
template <>
struct IsNarrow<Half> : std::true_type {};
template <>
struct IsNarrow<BFloat16> : std::true_type {};

template <typename To>
To float_to_integer(double value) {
  if constexpr (sizeof(To) < 4) {
    return static_cast<To>(value > -2147483649.0 && value < 2147483648.0 ? static_cast<int32_t>(value) : 0);
  } else {
    constexpr double kEnd = std::is_signed_v<To> ? (sizeof(To) == 4 ? 0x1p31 : 0x1p63) : (sizeof(To) == 4 ? 0x1p32 : 0x1p64);
    if (value >= kEnd) return std::numeric_limits<To>::max();
    if (value > (std::is_signed_v<To> ? (sizeof(To) == 4 ? -kEnd - 1 : -kEnd) : -1.0)) return static_cast<To>(value);
    return std::numeric_limits<To>::min();
  }
}

template <typename From, typename To>
To convert_one(From value) {
  if constexpr (std::is_same_v<From, Half>) {
    return convert_one<float, To>(f16_to_f32(value.bits));
  } else if constexpr (std::is_same_v<From, BFloat16>) {
    return convert_one<float, To>(bf16_to_f32(value.bits));
  } else if constexpr (std::is_same_v<To, Half>) {
    return Half{f32_to_f16(static_cast<float>(value))};
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return BFloat16{f32_to_bf16(static_cast<float>(value))};
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return float_to_integer<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <typename From, typename To>
void convert_row(const void* from, void* to, size_t n) {
  // A bool may hold any non-zero byte when it was written through another type; read it as a number.
  using Stored = std::conditional_t<std::is_same_v<From, bool>, uint8_t, From>;
  const auto* x = static_cast<const std::byte*>(from);
  auto* y = static_cast<std::byte*>(to);
  for (size_t i = 0; i < n; ++i) {
    Stored value;
    __builtin_memcpy(&value, x + i * sizeof(Stored), sizeof(Stored));
    if constexpr (std::is_same_v<From, bool>) value = value != 0;
    const To result = convert_one<Stored, To>(value);
    __builtin_memcpy(y + i * sizeof(To), &result, sizeof(To));
  }
}

constexpr size_t kBlock = 256;

// 8-bit floats: by table to f32, then on; and from f32.
template <DType kDType, typename To>
void f8_to(const void* from, void* to, size_t n) {
  const float* table = f8_table(kDType);
  const auto* x = static_cast<const uint8_t*>(from);
  auto* y = static_cast<std::byte*>(to);
  for (size_t i = 0; i < n; ++i) {
    const To result = convert_one<float, To>(table[x[i]]);
    __builtin_memcpy(y + i * sizeof(To), &result, sizeof(To));
  }
}

template <typename From, DType kDType>
void to_f8(const void* from, void* to, size_t n) {
  const auto* x = static_cast<const std::byte*>(from);
  auto* y = static_cast<uint8_t*>(to);
  float block[kBlock];
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t m = std::min(kBlock, n - i);
    convert_row<From, float>(x + i * sizeof(From), block, m);
    for (size_t j = 0; j < m; ++j) y[i + j] = f32_to_f8(kDType, block[j]);
  }
}

template <DType kFrom, DType kTo>
void f8_to_f8(const void* from, void* to, size_t n) {
  const float* table = f8_table(kFrom);
  for (size_t i = 0; i < n; ++i) static_cast<uint8_t*>(to)[i] = f32_to_f8(kTo, table[static_cast<const uint8_t*>(from)[i]]);
}

bool is_f8(DType dtype) { return dtype >= DType::f8e4m3fn && dtype <= DType::f8e4m3; }

// Calls f with a value of the host type of a dtype; false when there is none.
template <typename F>
bool with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::boolean: f(bool{}); return true;
    case DType::u8: f(uint8_t{}); return true;
    case DType::i8: f(int8_t{}); return true;
    case DType::u16: f(uint16_t{}); return true;
    case DType::i16: f(int16_t{}); return true;
    case DType::u32: f(uint32_t{}); return true;
    case DType::i32: f(int32_t{}); return true;
    case DType::u64: f(uint64_t{}); return true;
    case DType::i64: f(int64_t{}); return true;
    case DType::f16: f(Half{}); return true;
    case DType::bf16: f(BFloat16{}); return true;
    case DType::f32: f(float{}); return true;
    case DType::f64: f(double{}); return true;
    default: return false;
  }
}

template <typename F>
bool with_f8(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f8e4m3fn: f(std::integral_constant<DType, DType::f8e4m3fn>{}); return true;
    case DType::f8e5m2: f(std::integral_constant<DType, DType::f8e5m2>{}); return true;
    case DType::f8e4m3fnuz: f(std::integral_constant<DType, DType::f8e4m3fnuz>{}); return true;
    case DType::f8e5m2fnuz: f(std::integral_constant<DType, DType::f8e5m2fnuz>{}); return true;
    case DType::f8e8m0fnu: f(std::integral_constant<DType, DType::f8e8m0fnu>{}); return true;
    case DType::f8e4m3: f(std::integral_constant<DType, DType::f8e4m3>{}); return true;
    default: return false;
  }
}

}  // namespace

ConvertFn convert_fn(DType from, DType to) {
  if (from == to) return nullptr;
  if (ConvertFn fast = simd().convert[static_cast<int>(from)][static_cast<int>(to)]) return fast;
  ConvertFn fn = nullptr;
  if (is_f8(from) && is_f8(to)) {
    with_f8(from, [&](auto a) { with_f8(to, [&](auto b) { fn = f8_to_f8<decltype(a)::value, decltype(b)::value>; }); });
  } else if (is_f8(from)) {
    with_f8(from, [&](auto a) {
      with_type(to, [&](auto b) { fn = f8_to<decltype(a)::value, decltype(b)>; });
    });
  } else if (is_f8(to)) {
    with_type(from, [&](auto a) { with_f8(to, [&](auto b) { fn = to_f8<decltype(a), decltype(b)::value>; }); });
  } else {
    with_type(from, [&](auto a) { with_type(to, [&](auto b) { fn = convert_row<decltype(a), decltype(b)>; }); });
  }
  if (!fn) {
    throw Unsupported("conversion from " + std::string(name_of(from)) + " to " + std::string(name_of(to)) +
                      " on the device: complex and packed types can only be copied (exec/convert.cc)");
  }
  return fn;
}

}  // namespace opentrn::exec
