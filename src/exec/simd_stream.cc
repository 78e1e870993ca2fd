// Copies and fills of memory that is too large to be read again from a cache: stores that bypass it.
#include <cstring>

#include "exec/simd.h"
#include "exec/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/simd_stream.cc"
#include "hwy/foreach_target.h"
// Highway after foreach_target.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace opentrn::exec {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<uint8_t>;

// Bytes up to the next address that a vector may be streamed to.
size_t Head(const void* to, size_t bytes) {
  const size_t head = (0 - reinterpret_cast<uintptr_t>(to)) % hn::Lanes(D());
  return head < bytes ? head : bytes;
}

void Copy(void* to, const void* from, size_t bytes) {
  const D d;
  auto* y = static_cast<uint8_t*>(to);
  const auto* x = static_cast<const uint8_t*>(from);
  size_t i = Head(to, bytes);
  std::memcpy(y, x, i);
  for (; i + hn::Lanes(d) <= bytes; i += hn::Lanes(d)) hn::Stream(hn::LoadU(d, x + i), d, y + i);
  std::memcpy(y + i, x + i, bytes - i);
  hwy::FlushStream();
}

void FillWith(void* to, const void* element, size_t size, size_t bytes) {
  const D d;
  auto* y = static_cast<uint8_t*>(to);
  // A vector of elements that starts at any element.
  alignas(64) uint8_t pattern[hn::MaxLanes(D()) + 16];
  for (size_t i = 0; i < sizeof pattern; i += size) std::memcpy(pattern + i, element, size);
  size_t i = Head(to, bytes);
  if (i % size != 0) i = bytes;  // no element begins at such an address
  for (size_t j = 0; j < i; j += size) std::memcpy(y + j, element, size);
  const auto v = hn::Load(d, pattern);
  for (; i + hn::Lanes(d) <= bytes; i += hn::Lanes(d)) hn::Stream(v, d, y + i);
  for (; i < bytes; i += size) std::memcpy(y + i, element, size);
  hwy::FlushStream();
}

void Fill(Simd& table) {
  table.stream_copy = Copy;
  table.stream_fill = FillWith;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace opentrn::exec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opentrn::exec {
HWY_EXPORT(Fill);
void fill_stream(Simd& table) { HWY_DYNAMIC_DISPATCH(Fill)(table); }
}  // namespace opentrn::exec
#endif
