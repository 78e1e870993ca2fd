// Rows of f32 and bf16 as vectors of f32. Included once per SIMD target (Highway's per-target guard).
// clang-format off
#if defined(OPENTRN_EXEC_SIMD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPENTRN_EXEC_SIMD_ROWS_INL_H_
#undef OPENTRN_EXEC_SIMD_ROWS_INL_H_
#else
#define OPENTRN_EXEC_SIMD_ROWS_INL_H_
#endif
// clang-format on

#include <cstdint>

#include "exec/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace opentrn::exec {
namespace HWY_NAMESPACE {

struct RowF32 {
  static constexpr size_t kBytes = 4;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const void* from, size_t i) { return hn::LoadU(d, static_cast<const float*>(from) + i); }
  template <class D, class V>
  static HWY_INLINE void Store(D d, V v, void* to, size_t i) { hn::StoreU(v, d, static_cast<float*>(to) + i); }
};
struct RowBf16 {
  static constexpr size_t kBytes = 2;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const void* from, size_t i) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<uint16_t, D> dh;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, static_cast<const uint16_t*>(from) + i))));
  }
  // To the nearest even; a NaN keeps its sign only (as f32_to_bf16).
  template <class D, class V>
  static HWY_INLINE void Store(D d, V v, void* to, size_t i) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const hn::Rebind<int16_t, D> dh;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd);
    const auto nan = hn::Or(hn::And(bits, hn::Set(du, 0x80000000u)), hn::Set(du, 0x7FC00000u));
    const auto kept = hn::IfThenElse(IsNan(v), hn::BitCast(d, nan), hn::BitCast(d, rounded));
    // The arithmetic shift leaves numbers that the saturation of DemoteTo does not touch.
    hn::StoreU(hn::DemoteTo(dh, hn::ShiftRight<16>(hn::BitCast(di, kept))), dh, static_cast<int16_t*>(to) + i);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace opentrn::exec
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
