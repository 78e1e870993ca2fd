// Register operations of gpsimd_kernel: arithmetic, comparisons and bits over blocks of elements, as plain loops that the
// compiler vectorises for each target. Elementary functions are in register_math.cc.
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "exec/simd.h"
#include "exec/simd_targets.h"
// AVX2 is enough here, and this file has many functions.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (OPENTRN_DISABLED_TARGETS | (1LL << 8))

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/simd_registers.cc"
#include "hwy/foreach_target.h"
// Highway after foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace opentrn::exec {
namespace HWY_NAMESPACE {
namespace {

using isa::KernelOp;
using isa::KernelType;

template <typename T>
struct Bits {
  using type = std::make_unsigned_t<T>;
};
template <>
struct Bits<float> {
  using type = uint32_t;
};
template <>
struct Bits<double> {
  using type = uint64_t;
};
template <typename T>
using BitsOf = typename Bits<T>::type;

template <typename T>
HWY_INLINE BitsOf<T> ToBits(T v) {
  BitsOf<T> bits;
  __builtin_memcpy(&bits, &v, sizeof(T));
  return bits;
}
template <typename T>
HWY_INLINE T FromBits(BitsOf<T> bits) {
  T v;
  __builtin_memcpy(&v, &bits, sizeof(T));
  return v;
}

template <typename T>
HWY_INLINE T FloorDivide(T a, T b) {  // as PyTorch's floor_divide of floats
  if (b == 0) return a / b;
  const T mod = std::fmod(a, b);
  T div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
  if (div == 0) return std::copysign(T{0}, a / b);
  const T floored = std::floor(div);
  return div - floored > T{0.5} ? floored + 1 : floored;
}

template <KernelOp kOp, typename T>
HWY_INLINE T One(T a, T b, T c) {
  using U = BitsOf<T>;
  using S = std::make_signed_t<U>;
  constexpr bool kFloat = std::is_floating_point_v<T>;
  constexpr unsigned kWidth = sizeof(T) * 8;
  switch (kOp) {
    case KernelOp::move: return a;
    case KernelOp::add:
      if constexpr (kFloat) return a + b;
      else return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    case KernelOp::sub:
      if constexpr (kFloat) return a - b;
      else return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
    case KernelOp::mul:
      if constexpr (kFloat) return a * b;
      else return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    case KernelOp::fma:
      if constexpr (sizeof(T) == 4 && kFloat) return __builtin_fmaf(a, b, c);
      else if constexpr (kFloat) return __builtin_fma(a, b, c);
      else return static_cast<T>(static_cast<U>(a) * static_cast<U>(b) + static_cast<U>(c));
    case KernelOp::div:  // integers: towards zero; x / 0 is 0
      if constexpr (kFloat) return a / b;
      else if (b == 0) return 0;
      else if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(U{0} - static_cast<U>(a));
      else return static_cast<T>(a / b);
    case KernelOp::rem:  // the sign of the dividend; x % 0 is 0 for integers
      if constexpr (kFloat) return std::fmod(a, b);
      else if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1))) return 0;
      else return static_cast<T>(a % b);
    case KernelOp::floor_div:
      if constexpr (kFloat) {
        return FloorDivide(a, b);
      } else {
        if (b == 0) return 0;
        if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(U{0} - static_cast<U>(a));
        const T q = a / b;
        return static_cast<T>(a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q);
      }
    case KernelOp::mod:  // the sign of the divisor
      if constexpr (kFloat) {
        const T r = std::fmod(a, b);
        return r != 0 && (b < 0) != (r < 0) ? r + b : r;
      } else {
        if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1))) return 0;
        const T r = a % b;
        return static_cast<T>(r != 0 && (r < 0) != (b < 0) ? r + b : r);
      }
    case KernelOp::min:
      return kFloat ? (a < b || a != a ? a : b) : (a < b ? a : b);
    case KernelOp::max:
      return kFloat ? (a > b || a != a ? a : b) : (a > b ? a : b);
    case KernelOp::mul_hi:
      if constexpr (kFloat) return 0;
      else if constexpr (sizeof(T) == 4) {
        using W = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
        return static_cast<T>(static_cast<uint64_t>(static_cast<W>(a) * static_cast<W>(b)) >> 32);
      } else {
        __extension__ using W = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
        return static_cast<T>((static_cast<W>(a) * static_cast<W>(b)) >> 64);
      }
    case KernelOp::bit_and: return FromBits<T>(ToBits(a) & ToBits(b));
    case KernelOp::bit_or: return FromBits<T>(ToBits(a) | ToBits(b));
    case KernelOp::bit_xor: return FromBits<T>(ToBits(a) ^ ToBits(b));
    case KernelOp::bit_not: return FromBits<T>(~ToBits(a));
    // A count outside [0, width) shifts everything out.
    case KernelOp::shl: return FromBits<T>(ToBits(b) < kWidth ? ToBits(a) << (ToBits(b) & (kWidth - 1)) : 0);
    case KernelOp::shr: return FromBits<T>(ToBits(b) < kWidth ? ToBits(a) >> (ToBits(b) & (kWidth - 1)) : 0);
    case KernelOp::sar:
      return FromBits<T>(static_cast<U>(static_cast<S>(ToBits(a)) >> (ToBits(b) < kWidth ? ToBits(b) : kWidth - 1)));
    case KernelOp::eq: return a == b ? T{1} : T{0};
    case KernelOp::ne: return a != b ? T{1} : T{0};
    case KernelOp::lt: return a < b ? T{1} : T{0};
    case KernelOp::le: return a <= b ? T{1} : T{0};
    case KernelOp::gt: return a > b ? T{1} : T{0};
    case KernelOp::ge: return a >= b ? T{1} : T{0};
    case KernelOp::select: return a != 0 ? b : c;
    case KernelOp::neg:
      if constexpr (kFloat) return -a;
      else return static_cast<T>(U{0} - static_cast<U>(a));
    case KernelOp::abs:
      if constexpr (kFloat) return FromBits<T>(ToBits(a) & (~U{0} >> 1));
      else return a < 0 ? static_cast<T>(U{0} - static_cast<U>(a)) : a;
    case KernelOp::sign: return static_cast<T>(static_cast<T>(a > 0 ? 1 : 0) - static_cast<T>(a < 0 ? 1 : 0));
    case KernelOp::sqrt:
      if constexpr (sizeof(T) == 4 && kFloat) return __builtin_sqrtf(a);
      else if constexpr (kFloat) return __builtin_sqrt(a);
      else return a;
    case KernelOp::rsqrt:
      if constexpr (sizeof(T) == 4 && kFloat) return 1.0f / __builtin_sqrtf(a);
      else if constexpr (kFloat) return 1.0 / __builtin_sqrt(a);
      else return a;
    case KernelOp::floor:
      if constexpr (kFloat) return std::floor(a);
      else return a;
    case KernelOp::ceil:
      if constexpr (kFloat) return std::ceil(a);
      else return a;
    case KernelOp::trunc:
      if constexpr (kFloat) return std::trunc(a);
      else return a;
    case KernelOp::round:  // to the nearest, ties to even
      if constexpr (kFloat) return std::nearbyint(a);
      else return a;
    case KernelOp::is_nan: return a != a ? T{1} : T{0};
    case KernelOp::is_inf:
      if constexpr (kFloat) return FromBits<T>(ToBits(a) & (~U{0} >> 1)) == std::numeric_limits<T>::infinity() ? T{1} : T{0};
      else return 0;
    default: return a;
  }
}

template <KernelOp kOp, typename T>
void Block(void* to, const void* a, const void* b, const void* c, size_t n) {
  auto* y = static_cast<T*>(to);
  const auto* p = static_cast<const T*>(a);
  const auto* q = static_cast<const T*>(b);
  const auto* r = static_cast<const T*>(c);
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) y[i] = One<kOp, T>(p[i], q[i], r[i]);
}

// Types that share the machine operation share the function.
template <KernelOp kOp, typename I32, typename U32, typename I64, typename U64, typename F32, typename F64>
void Set(Simd& table) {
  RegisterFn* row = table.registers[static_cast<int>(kOp)];
  row[static_cast<int>(KernelType::i32)] = Block<kOp, I32>;
  row[static_cast<int>(KernelType::u32)] = Block<kOp, U32>;
  row[static_cast<int>(KernelType::i64)] = Block<kOp, I64>;
  row[static_cast<int>(KernelType::u64)] = Block<kOp, U64>;
  row[static_cast<int>(KernelType::f32)] = Block<kOp, F32>;
  row[static_cast<int>(KernelType::f64)] = Block<kOp, F64>;
}

template <KernelOp... kOps>
void SetBits(Simd& table) {
  (Set<kOps, uint32_t, uint32_t, uint64_t, uint64_t, uint32_t, uint64_t>(table), ...);
}
template <KernelOp... kOps>
void SetSignless(Simd& table) {
  (Set<kOps, uint32_t, uint32_t, uint64_t, uint64_t, float, double>(table), ...);
}
template <KernelOp... kOps>
void SetSigned(Simd& table) {
  (Set<kOps, int32_t, uint32_t, int64_t, uint64_t, float, double>(table), ...);
}
template <KernelOp... kOps>
void SetFloats(Simd& table) {  // nothing to do for integers
  for (const KernelOp op : {kOps...})
    for (int t = 0; t < kKernelTypes; ++t)
      table.registers[static_cast<int>(op)][t] = table.registers[static_cast<int>(KernelOp::move)][t];
  ((table.registers[static_cast<int>(kOps)][static_cast<int>(KernelType::f32)] = Block<kOps, float>,
    table.registers[static_cast<int>(kOps)][static_cast<int>(KernelType::f64)] = Block<kOps, double>), ...);
}

void Fill(Simd& table) {
  using enum KernelOp;
  SetBits<move, bit_and, bit_or, bit_xor, bit_not, shl, shr, sar>(table);
  SetSignless<add, sub, mul, fma, eq, ne, select, neg, is_nan, is_inf>(table);
  SetSigned<div, rem, floor_div, mod, min, max, mul_hi, lt, le, gt, ge, abs, sign>(table);
  SetFloats<floor, ceil, round, trunc, sqrt, rsqrt>(table);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace opentrn::exec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opentrn::exec {
HWY_EXPORT(Fill);
void fill_registers(Simd& table) { HWY_DYNAMIC_DISPATCH(Fill)(table); }
}  // namespace opentrn::exec
#endif
