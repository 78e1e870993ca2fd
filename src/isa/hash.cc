#include "isa/hash.h"

#include <cstring>

#include <fmt/format.h>

namespace opentrn::isa {
namespace {

__extension__ typedef unsigned __int128 Wide;

// The two halves of the 128-bit product folded together: every input bit reaches every output bit.
uint64_t fold(uint64_t a, uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Digits of pi, odd.
constexpr uint64_t kA = 0x243f6a8885a308d3, kB = 0x13198a2e03707345, kC = 0xa4093822299f31d1, kD = 0x082efa98ec4e6c89;

}  // namespace

Hash128 hash128(std::span<const std::byte> bytes) {
  uint64_t x = kA ^ bytes.size(), y = kB + bytes.size();
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    x = fold(x ^ word, kC) + kA;
    y = fold(y + word, kD) ^ x;
  }
  uint64_t tail = 0;
  if (at < bytes.size()) std::memcpy(&tail, bytes.data() + at, bytes.size() - at);
  x = fold(x ^ tail, kC) + y;
  y = fold(y + tail, kD) ^ x;
  return {fold(x ^ kB, kD ^ y) ^ y, fold(y ^ kA, kC ^ x) + x};
}

std::string hex(const Hash128& hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

}  // namespace opentrn::isa
