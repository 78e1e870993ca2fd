#include "runtime/hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

namespace opentrn::runtime {
namespace {

Key hash_of(std::vector<int64_t> words) {
  Hash hash;
  hash.add(words);
  return hash.finish();
}

TEST(Hash, EveryBitOfTheInputMovesAboutHalfOfTheBitsOfTheKey) {
  const std::vector<int64_t> base{3, 0, -1, 1 << 20};
  const Key key = hash_of(base);
  for (size_t word = 0; word < base.size(); ++word)
    for (int bit = 0; bit < 64; ++bit) {
      std::vector<int64_t> other = base;
      other[word] ^= int64_t{1} << bit;
      const Key changed = hash_of(other);
      const int moved = std::popcount(key.high ^ changed.high) + std::popcount(key.low ^ changed.low);
      EXPECT_GT(moved, 32) << word << " " << bit;
      EXPECT_LT(moved, 96) << word << " " << bit;
    }
}

TEST(Hash, SmallShapesDoNotCollideInEitherHalf) {
  std::set<uint64_t> high, low;
  for (int64_t a = 0; a < 40; ++a)
    for (int64_t b = 0; b < 40; ++b)
      for (int64_t c = 0; c < 40; ++c) {
        Key key = hash_of({a, b, c});
        high.insert(key.high);
        low.insert(key.low);
      }
  EXPECT_EQ(high.size(), 64'000u);
  EXPECT_EQ(low.size(), 64'000u);
}

TEST(Hash, ListsAreDelimited) {
  Hash a, b;
  a.add(std::vector<int64_t>{1, 2});
  a.add(std::vector<int64_t>{});
  b.add(std::vector<int64_t>{1});
  b.add(std::vector<int64_t>{2});
  EXPECT_FALSE(a.finish() == b.finish());
  Hash c, d;
  c.add(std::string_view("ab"));
  d.add(std::string_view("ab\0", 3));
  EXPECT_FALSE(c.finish() == d.finish());
  EXPECT_EQ(c.finish().hex().size(), 32u);
}

}  // namespace
}  // namespace opentrn::runtime
