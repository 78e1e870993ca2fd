// The table itself, and what a call records for its program's key.
#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "call_of.h"

namespace opentrn::aten {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Table, IsSortedWithoutDuplicates) {
  std::set<std::string_view> names;
  for (const Entry& e : table()) {
    EXPECT_TRUE(names.insert(e.op).second) << e.op;
    EXPECT_NE(e.lower, nullptr) << e.op;
    EXPECT_TRUE(e.op.starts_with("aten::")) << e.op;
    EXPECT_EQ(find(e.op), &e);
  }
  EXPECT_TRUE(std::is_sorted(table().begin(), table().end(), [](auto& a, auto& b) { return a.op < b.op; }));
  EXPECT_EQ(find("aten::no_such_operator"), nullptr);
}

TEST(Call, NumbersAreLaunchArguments) {
  CallOf c("aten::add.Tensor");
  c.tensor("self", {DType::f32, {2}, {1, 2}}).tensor("other", {DType::f32, {2}, {10, 20}}).number("alpha", 0.5);
  c.result(DType::f32, {2});
  EXPECT_THAT(c.run()[0], ElementsAre(6, 12));
  EXPECT_EQ(c.lowered().scalars.size(), 1u);
  EXPECT_EQ(c.call().number_uses()[0].argument, 2);
  EXPECT_THAT(c.call().specialised(), IsEmpty());
}

TEST(Call, ANumberThatDecidesTheGraphIsPartOfTheKey) {
  CallOf c("aten::pow.Tensor_Scalar");
  c.tensor("self", {DType::f32, {2}, {3, -2}}).number("exponent", 2).result(DType::f32, {2});
  EXPECT_THAT(c.run()[0], ElementsAre(9, 4));
  EXPECT_THAT(c.lowered().scalars, IsEmpty());
  EXPECT_THAT(c.call().specialised(), ElementsAre("exponent"));
}

TEST(Call, ANumberAskedForTwiceIsOneLaunchArgument) {
  CallOf c("aten::_foreach_mul.Scalar");
  c.tensors("self", {{DType::f32, {1}, {2}}, {DType::f32, {1}, {3}}}).number("scalar", 5);
  c.result(DType::f32, {1}).result(DType::f32, {1});
  EXPECT_THAT(c.run(), ElementsAre(ElementsAre(10), ElementsAre(15)));
  EXPECT_EQ(c.lowered().scalars.size(), 1u);
}

TEST(Call, UnknownArgumentsAreInternalErrors) {
  Builder b("test");
  Call c("aten::x", b);
  EXPECT_THROW(c.arg("self"), InternalError);
  EXPECT_FALSE(c.has("self"));
}

}  // namespace
}  // namespace opentrn::aten
