// Views: which reshapes strides can express, and where elements of slices, transposes and reversals lie.
#include <gtest/gtest.h>

#include "compiler/view.h"

namespace opentrn::compiler {
namespace {

View view(std::vector<int64_t> shape, std::vector<int64_t> strides, int64_t offset = 0) {
  View v;
  v.buffer = 0;
  v.shape = std::move(shape);
  v.strides = std::move(strides);
  v.offset = offset;
  return v;
}

using Sizes = std::vector<int64_t>;

TEST(View, ReshapeOfContiguousElements) {
  const View v = view({4, 6}, {6, 1});
  EXPECT_EQ(reshaped(v, {24})->strides, (Sizes{1}));
  EXPECT_EQ(reshaped(v, {2, 3, 4})->strides, (Sizes{12, 4, 1}));
  EXPECT_EQ(reshaped(v, {1, 24, 1})->shape, (Sizes{1, 24, 1}));
}

TEST(View, ReshapeSplitsStridedDimensions) {
  const View v = view({4, 6}, {100, 2});
  EXPECT_EQ(reshaped(v, {4, 2, 3})->strides, (Sizes{100, 6, 2}));
  EXPECT_EQ(reshaped(v, {2, 2, 6})->strides, (Sizes{200, 100, 2}));
  EXPECT_FALSE(reshaped(v, {24}));
  EXPECT_FALSE(reshaped(v, {3, 8}));
}

TEST(View, ReshapeOfATransposeNeedsACopy) {
  EXPECT_FALSE(reshaped(view({6, 4}, {1, 6}), {24}));
  EXPECT_TRUE(reshaped(view({6, 1, 4}, {1, 7, 6}), {6, 4}));
}

TEST(View, SliceTakesEverySecondElement) {
  const View v = sliced(view({10, 8}, {8, 1}), {1, 2}, {10, 7}, {3, 2});
  EXPECT_EQ(v.offset, 10);
  EXPECT_EQ(v.shape, (Sizes{3, 3}));
  EXPECT_EQ(v.strides, (Sizes{24, 2}));
}

TEST(View, ReversedBeginsAtTheLastElement) {
  const View v = reversed(view({3, 4}, {4, 1}), {1});
  EXPECT_EQ(v.offset, 3);
  EXPECT_EQ(v.strides, (Sizes{4, -1}));
}

TEST(View, BroadcastDimensionsHaveStrideZero) {
  const View v = broadcast(view({3, 1}, {1, 1}), {5, 3, 7}, {1, 2});
  EXPECT_EQ(v.strides, (Sizes{0, 1, 0}));
}

TEST(View, TransposedPermutesShapeAndStrides) {
  const View v = transposed(view({2, 3, 4}, {12, 4, 1}), {2, 0, 1});
  EXPECT_EQ(v.shape, (Sizes{4, 2, 3}));
  EXPECT_EQ(v.strides, (Sizes{1, 12, 4}));
}

TEST(View, SixtyFourBitsAreTwoWords) {
  View v = view({5}, {3}, 2);
  v.dtype = DType::i64;
  const View words = reinterpreted(v, DType::i32);
  EXPECT_EQ(words.offset, 4);
  EXPECT_EQ(words.shape, (Sizes{5, 2}));
  EXPECT_EQ(words.strides, (Sizes{6, 1}));
}

}  // namespace
}  // namespace opentrn::compiler
