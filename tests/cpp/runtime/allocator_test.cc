#include "runtime/allocator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>

namespace opentrn::runtime {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(Allocator, RoundsToUnitsAndReusesTheLastFreedBlock) {
  Allocator a(64 * kMiB);
  int64_t x = a.allocate(1, 7);
  EXPECT_EQ(a.find(x).bytes, 512);
  EXPECT_EQ(a.find(x).requested, 1);
  EXPECT_EQ(a.find(x).origin, 7);
  int64_t y = a.allocate(513, -1);
  EXPECT_EQ(a.find(y).bytes, 1024);
  int64_t z = a.allocate(100, -1);
  EXPECT_EQ(a.free(y).bytes, 1024);
  EXPECT_EQ(a.allocate(1000, -1), y);
  EXPECT_EQ(a.free(z + 512).bytes, 0) << "not the start of a block";
  EXPECT_EQ(a.free(z).bytes, 512);
  EXPECT_EQ(a.free(z).bytes, 0) << "freed twice";
  a.check();
}

TEST(Allocator, MergesNeighboursOnBothSides) {
  Allocator a(16 * kMiB);
  int64_t x = a.allocate(4 * kMiB, -1), y = a.allocate(4 * kMiB, -1), z = a.allocate(4 * kMiB, -1),
          w = a.allocate(4 * kMiB, -1);
  EXPECT_EQ(a.allocate(512, -1), -1);
  a.free(x);
  a.free(z);
  EXPECT_EQ(a.largest_free(), 4 * kMiB);
  a.free(y);
  EXPECT_EQ(a.largest_free(), 12 * kMiB);
  a.free(w);
  EXPECT_EQ(a.largest_free(), 16 * kMiB);
  a.check();
  EXPECT_EQ(a.allocate(16 * kMiB, -1), 0);
}

TEST(Allocator, TakesTheBestFit) {
  Allocator a(64 * kMiB);
  int64_t big = a.allocate(8 * kMiB, -1);
  a.allocate(2 * kMiB, -1);
  int64_t fits = a.allocate(3 * kMiB, -1);
  a.allocate(2 * kMiB, -1);
  a.free(fits);
  a.free(big);
  EXPECT_EQ(a.allocate(3 * kMiB - 4096, -1), fits);
  EXPECT_EQ(a.allocate(7 * kMiB, -1), big);
}

TEST(Allocator, SmallBlocksShareSegmentsApartFromLargeOnes) {
  Allocator a(64 * kMiB);
  int64_t small = a.allocate(1000, -1);
  int64_t large = a.allocate(8 * kMiB, -1);
  int64_t small2 = a.allocate(1000, -1);
  EXPECT_EQ(large, 2 * kMiB) << "after the segment";
  EXPECT_EQ(small2, small + 1024);
  a.free(large);
  EXPECT_EQ(a.largest_free(), 62 * kMiB);
  a.free(small);
  a.free(small2);
  a.release_segments();
  EXPECT_EQ(a.largest_free(), 64 * kMiB);
  a.check();
}

TEST(Allocator, SmallRequestsUseTheLastGapWhenNoSegmentFits) {
  Allocator a(4 * kMiB);
  a.allocate(3 * kMiB + 512, -1);
  int64_t small = a.allocate(4096, -1);
  EXPECT_EQ(small, 3 * kMiB + 512);
  EXPECT_EQ(a.free(small).bytes, 4096);
  EXPECT_EQ(a.largest_free(), kMiB - 512);
  a.check();
}

TEST(Allocator, RandomTrafficKeepsBlocksDisjointAndLosesNothing) {
  constexpr int64_t kCapacity = 256 * kMiB;
  Allocator a(kCapacity);
  std::mt19937 random(1);
  std::map<int64_t, int64_t> live;  // offset -> bytes
  for (int i = 0; i < 60'000; ++i) {
    if (live.empty() || random() % 100 < 55) {
      int64_t bytes = 1 + static_cast<int64_t>(random() % (1u << (random() % 25)));
      int64_t offset = a.allocate(bytes, i);
      if (offset < 0) continue;
      ASSERT_LE(offset + bytes, kCapacity);
      ASSERT_EQ(offset % 512, 0);
      auto next = live.lower_bound(offset);
      if (next != live.end()) {
        ASSERT_LE(offset + bytes, next->first);
      }
      if (next != live.begin()) {
        auto before = std::prev(next);
        ASSERT_LE(before->first + before->second, offset);
      }
      live[offset] = bytes;
    } else {
      auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      ASSERT_EQ(a.free(victim->first).requested, victim->second);
      live.erase(victim);
    }
    if (i % 4096 == 0) a.check();
  }
  ASSERT_EQ(a.live().size(), live.size());
  for (auto& [offset, bytes] : live) a.free(offset);
  a.release_segments();
  a.check();
  EXPECT_EQ(a.largest_free(), kCapacity);
}

}  // namespace
}  // namespace opentrn::runtime
