// A 128-bit hash of a sequence of 64-bit words, for cache keys and checksums: about one nanosecond per word.
// Not for adversaries.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace opentrn::runtime {

struct Key {
  uint64_t high = 0, low = 0;
  bool operator==(const Key&) const = default;
  std::string hex() const;  // 32 digits
};

class Hash {
 public:
  void add(uint64_t word) {
    // Two lanes of multiply and fold, each fed by the other, so that a lane that a word has zeroed recovers.
    const uint64_t a = fold(a_ ^ word, 0x9E3779B97F4A7C15u);
    const uint64_t b = fold(b_ + std::rotl(word, 29), 0xD6E8FEB86659FD93u);
    a_ = a + std::rotl(b_, 23) + 0xA0761D6478BD642Fu;
    b_ = b ^ std::rotl(a_, 41) ^ word;
  }
  void add(int64_t word) { add(static_cast<uint64_t>(word)); }
  void add(int word) { add(static_cast<uint64_t>(static_cast<int64_t>(word))); }
  void add(double value) { add(std::bit_cast<uint64_t>(value)); }
  // A length and the elements, so that neighbouring lists cannot be confused.
  void add(const std::vector<int64_t>& words) {
    add(static_cast<uint64_t>(words.size()));
    for (int64_t word : words) add(word);
  }
  void add(std::span<const std::byte> bytes) {
    add(static_cast<uint64_t>(bytes.size()));
    size_t i = 0;
    for (; i + 8 <= bytes.size(); i += 8) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + i, 8);
      add(word);
    }
    if (i < bytes.size()) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, bytes.size() - i);
      add(word);
    }
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }

  Key finish() const {
    Hash end = *this;
    for (uint64_t i = 1; i <= 3; ++i) end.add(i);
    return {end.a_, end.b_};
  }

 private:
  static uint64_t fold(uint64_t x, uint64_t y) {
    const unsigned __int128 product = static_cast<unsigned __int128>(x) * y;
    return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
  }
  uint64_t a_ = 0x243F6A8885A308D3u, b_ = 0x13198A2E03707344u;  // digits of pi
};

}  // namespace opentrn::runtime
