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
  // Two consecutive vectors.
  template <class D, class V>
  static HWY_INLINE void StoreTwo(D d, V v, V w, void* to, size_t i) {
    Store(d, v, to, i);
    Store(d, w, to, i + hn::Lanes(d));
  }
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
    const hn::Rebind<int16_t, D> dh;
    const auto nan = hn::Or(hn::And(hn::BitCast(du, v), hn::Set(du, 0x80000000u)), hn::Set(du, 0x7FC00000u));
    const V kept = hn::IfThenElse(IsNan(v), hn::BitCast(d, nan), Rounded(d, v));
    hn::StoreU(hn::DemoteTo(dh, Upper(d, kept)), dh, static_cast<int16_t*>(to) + i);
  }
  template <class D, class V>
  static HWY_INLINE void StoreTwo(D d, V v, V w, void* to, size_t i) {
#if HWY_TARGET == HWY_AVX2
    if constexpr (kMaxLanes<D> == 8) {
      const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v.raw, w.raw, _CMP_UNORD_Q));  // in either
      if (HWY_LIKELY(_mm256_testz_si256(nan, nan))) {
        const __m256i packed = _mm256_packs_epi32(Upper(d, Rounded(d, v)).raw, Upper(d, Rounded(d, w)).raw);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(static_cast<int16_t*>(to) + i), _mm256_permute4x64_epi64(packed, 0xD8));
        return;
      }
    }
#endif
    Store(d, v, to, i);
    Store(d, w, to, i + hn::Lanes(d));
  }

 private:
  // Bits whose upper half is the nearest bf16 of a number.
  template <class D, class V>
  static HWY_INLINE V Rounded(D d, V v) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    return hn::BitCast(d, hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd));
  }
  // As numbers that a saturating conversion to 16 bits does not touch.
  template <class D, class V>
  static HWY_INLINE hn::Vec<hn::RebindToSigned<D>> Upper(D, V v) {
    return hn::ShiftRight<16>(hn::BitCast(hn::RebindToSigned<D>(), v));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace opentrn::exec
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
