// A 128-bit hash of bytes: checksums of serialised programs and digests used as cache keys. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace opentrn::isa {

struct Hash128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Hash128&) const = default;
};

Hash128 hash128(std::span<const std::byte> bytes);

// 32 hex digits, high half first.
std::string hex(const Hash128& hash);

}  // namespace opentrn::isa
