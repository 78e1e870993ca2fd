#include "isa/access.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace opentrn::isa {
namespace {

AccessPattern hbm(DType dtype, int64_t offset, int64_t partition_stride, int partitions, SmallVector<Dim, 4> dims) {
  AccessPattern ap;
  ap.memory = Memory::hbm;
  ap.dtype = dtype;
  ap.buffer = 0;
  ap.offset = offset;
  ap.partition_stride = partition_stride;
  ap.partitions = static_cast<int16_t>(partitions);
  ap.dims = dims;
  return ap;
}

std::set<int64_t> enumerate(const ByteSet& set) {
  std::set<int64_t> starts{set.base}, bytes;
  for (const Step& step : set.steps) {
    std::set<int64_t> next;
    for (int64_t s : starts)
      for (int64_t i = 0; i < step.count; ++i) next.insert(s + i * step.bytes);
    starts = next;
  }
  for (int64_t s : starts)
    for (int64_t b = 0; b < set.run; ++b) bytes.insert(s + b);
  return bytes;
}

TEST(ByteSet, ContiguousRowsAreOneRun) {
  const ByteSet set = byte_set(hbm(DType::f32, 64, 16, 8, {{4, 4}, {1, 4}}));
  EXPECT_EQ(set.base, 64);
  EXPECT_EQ(set.run, 8 * 16 * 4);
  EXPECT_TRUE(set.steps.empty());
}

TEST(ByteSet, NegativeStridesStartAtTheLowestAddress) {
  const ByteSet set = byte_set(hbm(DType::i32, 400, 0, 1, {{-1, 10}}));
  EXPECT_EQ(set.base, 364);
  EXPECT_EQ(set.end(), 404);
}

TEST(Overlap, ColumnBlocksOfTheSameRows) {
  // [128 rows of 1024] f32: columns 0..511 and 512..1023.
  EXPECT_FALSE(overlap(byte_set(hbm(DType::f32, 0, 1024, 128, {{1, 512}})),
                       byte_set(hbm(DType::f32, 2048, 1024, 128, {{1, 512}}))));
  EXPECT_TRUE(overlap(byte_set(hbm(DType::f32, 0, 1024, 128, {{1, 512}})),
                      byte_set(hbm(DType::f32, 2044, 1024, 128, {{1, 512}}))));
}

TEST(Overlap, SlicesWithSteps) {
  EXPECT_FALSE(
      overlap(byte_set(hbm(DType::bf16, 0, 0, 1, {{2, 100}})), byte_set(hbm(DType::bf16, 2, 0, 1, {{2, 100}}))));
  EXPECT_TRUE(
      overlap(byte_set(hbm(DType::bf16, 0, 0, 1, {{2, 100}})), byte_set(hbm(DType::bf16, 2, 0, 1, {{3, 100}}))));
  EXPECT_FALSE(
      overlap(byte_set(hbm(DType::f32, 0, 0, 1, {{6, 50}})), byte_set(hbm(DType::f32, 4, 0, 1, {{6, 9}, {2, 2}}))));
}

TEST(Overlap, TransposedTilesOfOneMatrix) {
  // Columns as partitions: tile (0..127, 0..127) against (0..127, 128..255) of a 1000-column matrix.
  EXPECT_FALSE(overlap(byte_set(hbm(DType::f32, 0, 1, 128, {{1000, 128}})),
                       byte_set(hbm(DType::f32, 512, 1, 128, {{1000, 128}}))));
  EXPECT_TRUE(overlap(byte_set(hbm(DType::f32, 0, 1, 129, {{1000, 128}})),
                      byte_set(hbm(DType::f32, 512, 1, 128, {{1000, 128}}))));
}

TEST(Overlap, AgreesWithEnumeration) {
  std::mt19937 random(7);
  auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int overlapping = 0;
  for (int round = 0; round < 3000; ++round) {
    ByteSet sets[2];
    for (ByteSet& set : sets) {
      AccessPattern ap = hbm(pick(0, 1) ? DType::f32 : DType::bf16, pick(0, 200), pick(-40, 40), pick(1, 5), {});
      for (int d = pick(0, 3); d > 0; --d) ap.dims.push_back({pick(-30, 30), pick(1, 5)});
      set = byte_set(ap);
    }
    const std::set<int64_t> a = enumerate(sets[0]), b = enumerate(sets[1]);
    bool expected = false;
    for (int64_t byte : a) expected |= b.count(byte) > 0;
    overlapping += expected;
    ASSERT_EQ(overlap(sets[0], sets[1]), expected) << "round " << round;
  }
  EXPECT_GT(overlapping, 500);
  EXPECT_LT(overlapping, 2500);
}

TEST(ByteSet, KeepsExactlyTheBytesOfThePattern) {
  std::mt19937 random(3);
  auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 2000; ++round) {
    AccessPattern ap = hbm(DType::i16, 1000, pick(-20, 20), pick(1, 4), {});
    for (int d = pick(0, 4); d > 0; --d) ap.dims.push_back({pick(-12, 12), pick(1, 4)});
    std::set<int64_t> expected{0};
    auto extend = [&](int64_t stride, int64_t count) {
      std::set<int64_t> next;
      for (int64_t at : expected)
        for (int64_t i = 0; i < count; ++i) next.insert(at + stride * i * 2);
      expected = next;
    };
    for (const Dim& dim : ap.dims) extend(dim.stride, dim.count);
    extend(ap.partition_stride, ap.partitions);
    std::set<int64_t> bytes;
    for (int64_t at : expected) bytes.insert({1000 + at, 1001 + at});
    ASSERT_EQ(enumerate(byte_set(ap)), bytes) << "round " << round;
  }
}

}  // namespace
}  // namespace opentrn::isa
