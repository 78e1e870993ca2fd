// The evaluator against values worked out by hand.
#include "graph/evaluate.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/elementwise.h"
#include "run.h"

namespace opentrn::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::NanSensitiveDoubleEq;
using ::testing::Pointwise;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

MATCHER(SameNumber, "") {
  const auto& [a, b] = arg;
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}
#define EXPECT_SAME(actual, ...) EXPECT_THAT((actual), Pointwise(SameNumber(), Values __VA_ARGS__))

Values binary(const std::string& op, const std::string& dtype, double a, double b) {
  return run_node(op + " %0, %1 : " + dtype + "[1]", {dtype + "[1]", dtype + "[1]"}, {{a}, {b}});
}

TEST(Evaluate, RoundsNarrowFloatsAfterEveryOperation) {
  EXPECT_SAME(binary("add", "bf16", 256, 1), {256});       // ties to even
  EXPECT_SAME(binary("add", "bf16", 256, 3), {260});
  EXPECT_SAME(binary("add", "f16", 65504, 16), {kInf});
  EXPECT_SAME(binary("add", "f16", 65504, 15), {65504});
  EXPECT_SAME(binary("add", "f8e4m3fn", 448, 448), {448});  // saturates
  EXPECT_SAME(binary("add", "f8e5m2", 57344, 57344), {kInf});
  EXPECT_SAME(binary("add", "f8e4m3fnuz", 240, 240), {kNan});
  EXPECT_SAME(binary("add", "f32", 16777216, 1), {16777216});
  EXPECT_SAME(binary("add", "f64", 16777216, 1), {16777217});
  EXPECT_SAME(run_node("exp %0 : bf16[2]", {"bf16[2]"}, {{0, 1}}), {1, 2.71875});
}

TEST(Evaluate, IntegersWrap) {
  EXPECT_SAME(binary("add", "i8", 127, 1), {-128});
  EXPECT_SAME(binary("multiply", "u8", 16, 17), {16});
  EXPECT_SAME(binary("subtract", "u32", 0, 1), {4294967295.0});
  EXPECT_SAME(binary("power", "i32", 3, 4), {81});
  EXPECT_SAME(binary("power", "i32", -1, -3), {-1});
  EXPECT_SAME(run_node("neg %0 : i8[2]", {"i8[2]"}, {{-128, 5}}), {-128, -5});
}

TEST(Evaluate, Divisions) {
  EXPECT_SAME(binary("divide", "i32", -7, 2), {-3});
  EXPECT_SAME(binary("floor_divide", "i32", -7, 2), {-4});
  EXPECT_SAME(binary("remainder", "i32", -7, 2), {1});
  EXPECT_SAME(binary("fmod", "i32", -7, 2), {-1});
  EXPECT_SAME(binary("floor_divide", "f32", -7, 2), {-4});
  EXPECT_SAME(binary("remainder", "f32", 7, -2), {-1});
  EXPECT_SAME(binary("fmod", "f32", -7, 2), {-1});
  EXPECT_SAME(binary("floor_divide", "f32", 1, 0), {kInf});
  EXPECT_SAME(binary("divide", "f32", 0, 0), {kNan});
  EXPECT_THROW(binary("divide", "i64", 1, 0), UserError);
}

TEST(Evaluate, NotANumber) {
  EXPECT_SAME(binary("maximum", "f32", 1, kNan), {kNan});
  EXPECT_SAME(binary("fmax", "f32", 1, kNan), {1});
  EXPECT_SAME(binary("minimum", "bf16", kNan, 1), {kNan});
  EXPECT_SAME(run_node("compare_ne %0, %1 : bool[2]", {"f32[2]", "f32[2]"}, {{kNan, 1}, {kNan, 1}}), {1, 0});
  EXPECT_SAME(run_node("compare_le %0, %1 : bool[2]", {"f32[2]", "f32[2]"}, {{kNan, 1}, {kNan, 1}}), {0, 1});
  EXPECT_SAME(run_node("clamp %0, %1, %2 : f32[4]", {"f32[4]", "f32[4]", "f32[4]"},
                       {{kNan, 5, -5, 1}, {0, 0, 0, 0}, {2, 2, 2, 2}}), {kNan, 2, 0, 1});
  EXPECT_SAME(run_node("is_finite %0 : bool[3]", {"f16[3]"}, {{1, kInf, kNan}}), {1, 0, 0});
  EXPECT_SAME(run_node("is_nan %0 : bool[1]", {"i64[1]"}, {{1}}), {0});
  EXPECT_SAME(run_node("reduce_max %0 dims=[0] : f32[]", {"f32[3]"}, {{1, kNan, 2}}), {kNan});
  EXPECT_SAME(run_node("argmax %0 dims=[0] : i64[]", {"f32[4]"}, {{1, kNan, 2, kNan}}), {1});
}

TEST(Evaluate, BitsAndShifts) {
  EXPECT_SAME(run_node("bitwise_not %0 : u8[1]", {"u8[1]"}, {{5}}), {250});
  EXPECT_SAME(run_node("bitwise_not %0 : bool[2]", {"bool[2]"}, {{0, 1}}), {1, 0});
  EXPECT_SAME(binary("bitwise_xor", "i32", -1, 255), {-256});
  EXPECT_SAME(binary("shift_left", "i8", 1, 7), {-128});
  EXPECT_SAME(binary("shift_right_arithmetic", "i32", -8, 40), {-1});
  EXPECT_SAME(binary("shift_right_logical", "i32", -1, 28), {15});
  EXPECT_SAME(binary("shift_right_logical", "u8", 200, 9), {0});
  EXPECT_SAME(run_node("bitcast %0 : i32[1]", {"f32[1]"}, {{1}}), {1065353216});
  EXPECT_SAME(binary("nextafter", "bf16", 1, 2), {1.0078125});
}

TEST(Evaluate, Conversions) {
  EXPECT_SAME(run_node("convert %0 : i32[3]", {"f32[3]"}, {{-1.9, 1.9, 0}}), {-1, 1, 0});
  EXPECT_SAME(run_node("convert %0 : bool[4]", {"f32[4]"}, {{0, 0.1, kNan, -0.0}}), {0, 1, 1, 0});
  EXPECT_SAME(run_node("convert %0 : u8[2]", {"i64[2]"}, {{257, -1}}), {1, 255});
  EXPECT_SAME(run_node("convert %0 : bf16[1]", {"f32[1]"}, {{1.00390625}}), {1});
  EXPECT_SAME(run_node("convert %0 : f32[1]", {"i64[1]"}, {{16777217}}), {16777216});
  EXPECT_SAME(run_node("convert %0 : f32[1]", {"bool[1]"}, {{7}}), {1});
}

TEST(Evaluate, IntegersOf64BitsAreExact) {
  Graph graph = parse(
      "graph \"g\"\n%0 = constant integer=9007199254740993 : i64[]\n%1 = constant integer=1 : i64[]\n"
      "%2 = add %0, %1 : i64[]\nresult %2 strides=[]\n");
  int64_t out = 0;
  std::byte* results[] = {reinterpret_cast<std::byte*>(&out)};
  evaluate(graph, {}, {}, results);
  EXPECT_EQ(out, 9007199254740994);
}

TEST(Evaluate, Shapes) {
  const Values x = {1, 2, 3, 4, 5, 6};
  EXPECT_SAME(run_node("transpose %0 dims=[1,0] : f32[3,2]", {"f32[2,3]"}, {x}), {1, 4, 2, 5, 3, 6});
  EXPECT_SAME(run_node("broadcast_in_dim %0 dims=[0] : i32[2,2]", {"i32[2]"}, {{1, 2}}), {1, 1, 2, 2});
  EXPECT_SAME(run_node("slice %0 starts=[0,1] limits=[2,3] strides=[1,2] : f32[2,1]", {"f32[2,3]"}, {x}), {2, 5});
  EXPECT_SAME(run_node("reverse %0 dims=[1] : f32[2,3]", {"f32[2,3]"}, {x}), {3, 2, 1, 6, 5, 4});
  EXPECT_SAME(run_node("pad %0, %1 starts=[1] limits=[2] strides=[1] : f32[6]", {"f32[2]", "f32[]"}, {{1, 2}, {9}}),
              {9, 1, 9, 2, 9, 9});
  EXPECT_SAME(run_node("concatenate %0, %1 dims=[1] : f32[2,3]", {"f32[2,2]", "f32[2,1]"}, {{1, 2, 3, 4}, {5, 6}}),
              {1, 2, 5, 3, 4, 6});
  EXPECT_SAME(run_node("reshape %0 : f32[3,2]", {"f32[2,3]"}, {x}), {1, 2, 3, 4, 5, 6});
  EXPECT_SAME(run("graph \"g\"\n%0 = iota dims=[1] : bf16[2,3]\nresult %0 strides=[3,1]\n", {}), {0, 1, 2, 0, 1, 2});
}

TEST(Evaluate, ReductionsAndScans) {
  const Values x = {1, 2, 3, 4, 5, 6};
  EXPECT_SAME(run_node("reduce_sum %0 dims=[0] : f32[3]", {"f32[2,3]"}, {x}), {5, 7, 9});
  EXPECT_SAME(run_node("reduce_prod %0 dims=[1] : i64[2]", {"i64[2,3]"}, {x}), {6, 120});
  EXPECT_SAME(run_node("reduce_min %0 dims=[0,1] : bf16[]", {"bf16[2,3]"}, {x}), {1});
  EXPECT_SAME(run_node("reduce_and %0 dims=[1] : bool[2]", {"bool[2,2]"}, {{1, 1, 1, 0}}), {1, 0});
  EXPECT_SAME(run_node("reduce_or %0 dims=[1] : bool[2]", {"bool[2,0]"}, {{}}), {0, 0});
  EXPECT_SAME(run_node("reduce_sum %0 dims=[1] : f32[2]", {"f32[2,0]"}, {{}}), {0, 0});
  EXPECT_SAME(run_node("argmin %0 dims=[1] : i64[2]", {"f32[2,3]"}, {{2, 1, 1, 0, 5, -1}}), {1, 2});
  EXPECT_SAME(run_node("cumulative_sum %0 dims=[0] : f32[2,3]", {"f32[2,3]"}, {x}), {1, 2, 3, 5, 7, 9});
  EXPECT_SAME(run_node("cumulative_max %0 dims=[0] : f32[4]", {"f32[4]"}, {{1, 3, 2, kNan}}), {1, 3, 3, kNan});
}

TEST(Evaluate, DotGeneral) {
  EXPECT_SAME(run_node("dot_general %0, %1 lhs_contract=[1] rhs_contract=[0] : f32[2,2]", {"f32[2,3]", "f32[3,2]"},
                       {{1, 2, 3, 4, 5, 6}, {1, 0, 0, 1, 1, 1}}), {4, 5, 10, 11});
  EXPECT_SAME(run_node("dot_general %0, %1 lhs_batch=[0] rhs_batch=[1] lhs_contract=[1] rhs_contract=[0] : i64[2]",
                       {"i64[2,2]", "i64[2,2]"}, {{1, 2, 3, 4}, {5, 6, 7, 8}}), {19, 50});
  // 256 + 1 + 1 keeps the ones: bf16 operands, wide accumulation.
  EXPECT_SAME(run_node("dot_general %0, %1 lhs_contract=[0] rhs_contract=[0] : f32[]", {"bf16[3]", "bf16[3]"},
                       {{256, 1, 1}, {1, 1, 1}}), {258});
}

TEST(Evaluate, Indexed) {
  const Values x = {10, 11, 20, 21, 30, 31};
  EXPECT_SAME(run_node("gather %0, %1 dims=[0] : f32[2,2]", {"f32[3,2]", "i64[2]"}, {x, {2, 0}}), {30, 31, 10, 11});
  EXPECT_SAME(run_node("gather %0, %1 dims=[1] : f32[3,1,2]", {"f32[3,2]", "i32[1,2]"}, {x, {1, 0}}),
              {11, 10, 21, 20, 31, 30});
  EXPECT_SAME(run_node("gather_elements %0, %1 dims=[0] : f32[1,2]", {"f32[3,2]", "i64[1,2]"}, {x, {2, 1}}), {30, 21});
  EXPECT_SAME(run_node("gather_nd %0, %1 : f32[2]", {"f32[3,2]", "i64[2,2]"}, {x, {2, 1, 0, 0}}), {31, 10});
  EXPECT_SAME(run_node("scatter %0, %1, %2 dims=[0] combine=add : f32[3,2]", {"f32[3,2]", "i64[2]", "f32[2,2]"},
                       {x, {1, 1}, {1, 2, 3, 4}}), {10, 11, 24, 27, 30, 31});
  EXPECT_SAME(run_node("scatter %0, %1, %2 dims=[1] : f32[2,2]", {"f32[2,2]", "i64[]", "f32[2]"}, {{1, 2, 3, 4}, {1}, {8, 9}}),
              {1, 8, 3, 9});
  EXPECT_SAME(run_node("scatter_elements %0, %1, %2 dims=[0] : f32[3]", {"f32[3]", "i64[2]", "f32[2]"},
                       {{1, 2, 3}, {2, 2}, {7, 8}}), {1, 2, 8});  // the last of equal indices wins
  EXPECT_SAME(run_node("scatter_nd %0, %1, %2 combine=maximum : f32[3,2]", {"f32[3,2]", "i64[2,1]", "f32[2,2]"},
                       {x, {0, 2}, {99, 0, 0, 99}}), {99, 11, 20, 21, 30, 99});
  EXPECT_THROW(run_node("gather %0, %1 dims=[0] : f32[1,2]", {"f32[3,2]", "i64[1]"}, {x, {3}}), UserError);
  EXPECT_THROW(run_node("gather %0, %1 dims=[0] : f32[1,2]", {"f32[3,2]", "i64[1]"}, {x, {-1}}), UserError);
}

TEST(Evaluate, SortAndTopKAreStable) {
  auto both = [](const std::string& op, const std::string& type, const std::string& out) {
    return run_all(parse("graph \"g\"\nparameter \"\" " + type + " strides=[4,1]\n%0 = parameter : " + type + "\n%1 = " + op +
                         " : f32" + out + "\n" + "%2 = " + op.substr(0, op.find(' ')) + " %1" + op.substr(op.find(" %0") + 3) +
                         " index=1 : i64" + out + "\nresult %1 strides=[4,1]\nresult %2 strides=[4,1]\n"),
                   {{2, 1, 2, kNan}});
  };
  auto up = both("sort %0 dims=[1]", "f32[1,4]", "[1,4]");
  EXPECT_SAME(up[0], {1, 2, 2, kNan});
  EXPECT_SAME(up[1], {1, 0, 2, 3});
  auto down = both("sort %0 dims=[1] integer=1", "f32[1,4]", "[1,4]");
  EXPECT_SAME(down[0], {kNan, 2, 2, 1});
  EXPECT_SAME(down[1], {3, 0, 2, 1});
  auto top = both("top_k %0 integer=2", "f32[1,4]", "[1,2]");
  EXPECT_SAME(top[0], {kNan, 2});
  EXPECT_SAME(top[1], {3, 0});
}

TEST(Evaluate, StridedBorder) {
  // x is the transpose of a 3x2 array that begins at element 1; the result is written with a gap of one element.
  EXPECT_SAME(run("graph \"g\"\nparameter \"x\" f32[2,3] strides=[1,2] offset=1\n%0 = parameter : f32[2,3]\n"
                  "%1 = neg %0 : f32[2,3]\nresult %1 strides=[4,1] offset=1\n",
                  {{0, 1, 4, 2, 5, 3, 6}}),
              {0, -1, -2, -3, 0, -4, -5, -6});
  // A stride of 0 repeats one element.
  EXPECT_SAME(run("graph \"g\"\nparameter \"x\" f32[3] strides=[0]\n%0 = parameter : f32[3]\nresult %0 strides=[1]\n", {{7}}),
              {7, 7, 7});
}

TEST(Evaluate, ScalarsAreLaunchArguments) {
  EXPECT_SAME(run("graph \"g\"\nscalar \"a\" f32\nscalar \"b\" i64\n%0 = scalar : f32[]\n%1 = scalar index=1 : i64[]\n"
                  "%2 = convert %1 : f32[]\n%3 = add %0, %2 : f32[]\nresult %3 strides=[]\n",
                  {}, {0.5, 3}),
              {3.5});
}

TEST(Evaluate, RandomBitsArePhilox) {
  // Known answer of Philox4x32-10 for counter 0 and key 0 (Random123, kat_vectors).
  const std::string text =
      "graph \"g\"\nscalar \"seed\" i64\nscalar \"offset\" i64\n%0 = scalar : i64[]\n%1 = scalar index=1 : i64[]\n"
      "%2 = random_bits %0, %1 : u32[6]\nresult %2 strides=[1]\n";
  const Values first = run(text, {}, {0, 0});
  EXPECT_SAME((Values{first.begin(), first.begin() + 4}), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const Values later = run(text, {}, {0, 4});
  EXPECT_EQ(later[0], first[4]);
  EXPECT_NE(run(text, {}, {1, 0}), first);
}

TEST(SpecialFunctions, AgreeWithTabulatedValues) {
  EXPECT_NEAR(digamma(1), -0.57721566490153286, 1e-14);
  EXPECT_NEAR(digamma(0.5), -1.9635100260214235, 1e-14);
  EXPECT_NEAR(digamma(-0.5), 0.03648997397857652, 1e-14);
  EXPECT_TRUE(std::isnan(digamma(-1)));
  EXPECT_EQ(digamma(0.0), -kInf);
  EXPECT_NEAR(erfinv(0.5), 0.47693627620446987, 1e-15);
  EXPECT_NEAR(erfinv(1e-12), 8.8622692545275800e-13, 1e-26);
  EXPECT_EQ(erfinv(-1), -kInf);
  for (double y : {-3.5, -0.2, 1e-5, 0.9, 2.5}) EXPECT_NEAR(erfinv(std::erf(y)), y, 1e-9);
}

}  // namespace
}  // namespace opentrn::graph
