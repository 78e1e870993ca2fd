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

// Between bool, integers, f32 and f64.
template <typename From, typename To>
[[gnu::noinline]] void direct(const void* from, void* to, size_t n) {
  // A bool may hold any non-zero byte when it was written through another type; read it as a number.
  using Stored = std::conditional_t<std::is_same_v<From, bool>, uint8_t, From>;
  const auto* x = static_cast<const Stored*>(from);
  auto* y = static_cast<To*>(to);
  for (size_t i = 0; i < n; ++i) {
    Stored value = x[i];
    if constexpr (std::is_same_v<From, bool>) value = value != 0;
    if constexpr (std::is_same_v<To, bool>) y[i] = value != 0;
    else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) y[i] = float_to_integer<To>(value);
    else y[i] = static_cast<To>(value);
  }
}

// 16 and 8-bit floats to and from f32.
[[gnu::noinline]] void f16_to_f32_row(const void* from, void* to, size_t n) {
  for (size_t i = 0; i < n; ++i) static_cast<float*>(to)[i] = f16_to_f32(static_cast<const uint16_t*>(from)[i]);
}
[[gnu::noinline]] void f32_to_f16_row(const void* from, void* to, size_t n) {
  for (size_t i = 0; i < n; ++i) static_cast<uint16_t*>(to)[i] = f32_to_f16(static_cast<const float*>(from)[i]);
}
[[gnu::noinline]] void bf16_to_f32_row(const void* from, void* to, size_t n) {
  for (size_t i = 0; i < n; ++i) static_cast<float*>(to)[i] = bf16_to_f32(static_cast<const uint16_t*>(from)[i]);
}
[[gnu::noinline]] void f32_to_bf16_row(const void* from, void* to, size_t n) {
  for (size_t i = 0; i < n; ++i) static_cast<uint16_t*>(to)[i] = f32_to_bf16(static_cast<const float*>(from)[i]);
}
template <DType kDType>
[[gnu::noinline]] void f8_to_f32_row(const void* from, void* to, size_t n) {
  const float* table = f8_table(kDType);
  for (size_t i = 0; i < n; ++i) static_cast<float*>(to)[i] = table[static_cast<const uint8_t*>(from)[i]];
}
template <DType kDType>
[[gnu::noinline]] void f32_to_f8_row(const void* from, void* to, size_t n) {
  for (size_t i = 0; i < n; ++i) static_cast<uint8_t*>(to)[i] = f32_to_f8(kDType, static_cast<const float*>(from)[i]);
}

// One conversion after the other, by blocks of f32.
template <size_t kFromSize, ConvertFn kFirst, size_t kToSize, ConvertFn kSecond>
void through_f32(const void* from, void* to, size_t n) {
  constexpr size_t kBlock = 256;
  alignas(64) float block[kBlock];
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t m = std::min(kBlock, n - i);
    kFirst(static_cast<const std::byte*>(from) + i * kFromSize, block, m);
    kSecond(block, static_cast<std::byte*>(to) + i * kToSize, m);
  }
}

// A type's size and its conversions to and from f32; `Host` is void for the narrow floats.
template <typename T>
struct Plain {
  using Host = T;
  static constexpr size_t kSize = sizeof(T);
  static constexpr ConvertFn kToF32 = direct<T, float>, kFromF32 = direct<float, T>;
};
template <size_t kBytes, ConvertFn kTo, ConvertFn kFrom>
struct Narrow {
  using Host = void;
  static constexpr size_t kSize = kBytes;
  static constexpr ConvertFn kToF32 = kTo, kFromF32 = kFrom;
};
template <DType kDType>
using Float8 = Narrow<1, f8_to_f32_row<kDType>, f32_to_f8_row<kDType>>;

template <typename F>
bool with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::boolean: f(Plain<bool>{}); return true;
    case DType::u8: f(Plain<uint8_t>{}); return true;
    case DType::i8: f(Plain<int8_t>{}); return true;
    case DType::u16: f(Plain<uint16_t>{}); return true;
    case DType::i16: f(Plain<int16_t>{}); return true;
    case DType::u32: f(Plain<uint32_t>{}); return true;
    case DType::i32: f(Plain<int32_t>{}); return true;
    case DType::u64: f(Plain<uint64_t>{}); return true;
    case DType::i64: f(Plain<int64_t>{}); return true;
    case DType::f32: f(Plain<float>{}); return true;
    case DType::f64: f(Plain<double>{}); return true;
    case DType::f16: f(Narrow<2, f16_to_f32_row, f32_to_f16_row>{}); return true;
    case DType::bf16: f(Narrow<2, bf16_to_f32_row, f32_to_bf16_row>{}); return true;
    case DType::f8e4m3fn: f(Float8<DType::f8e4m3fn>{}); return true;
    case DType::f8e5m2: f(Float8<DType::f8e5m2>{}); return true;
    case DType::f8e4m3fnuz: f(Float8<DType::f8e4m3fnuz>{}); return true;
    case DType::f8e5m2fnuz: f(Float8<DType::f8e5m2fnuz>{}); return true;
    case DType::f8e8m0fnu: f(Float8<DType::f8e8m0fnu>{}); return true;
    case DType::f8e4m3: f(Float8<DType::f8e4m3>{}); return true;
    default: return false;
  }
}

// Wrapping integers of one width are the same conversion.
template <typename From, typename To>
ConvertFn direct_fn() {
  constexpr bool kWraps = !std::is_same_v<To, bool> && std::is_integral_v<To> && (std::is_integral_v<From> || sizeof(To) < 4);
  if constexpr (kWraps) return direct<From, std::make_unsigned_t<To>>;
  else return direct<From, To>;
}

}  // namespace

ConvertFn convert_fn(DType from, DType to) {
  if (from == to) return nullptr;
  if (ConvertFn fast = simd().convert[static_cast<int>(from)][static_cast<int>(to)]) return fast;
  ConvertFn fn = nullptr;
  with_type(from, [&](auto a) {
    with_type(to, [&](auto b) {
      using A = decltype(a);
      using B = decltype(b);
      using From = typename A::Host;
      using To = typename B::Host;
      if constexpr (!std::is_void_v<From> && !std::is_void_v<To>) fn = direct_fn<From, To>();
      else if constexpr (std::is_same_v<From, float>) fn = B::kFromF32;
      else if constexpr (std::is_same_v<To, float>) fn = A::kToF32;
      else fn = through_f32<A::kSize, A::kToF32, B::kSize, B::kFromF32>;
    });
  });
  if (!fn) {
    throw Unsupported("conversion from " + std::string(name_of(from)) + " to " + std::string(name_of(to)) +
                      " on the device: complex and packed types can only be copied (exec/convert.cc)");
  }
  return fn;
}

}  // namespace opentrn::exec
