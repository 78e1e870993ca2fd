// Builder, type rules, text form.
#include "graph/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace opentrn::graph {
namespace {

using ::testing::HasSubstr;

ValueId input(Builder& b, DType dtype, Shape shape) {
  Layout layout{row_major(shape)};
  return b.parameter({dtype, std::move(shape)}, layout);
}

template <typename Build>
std::string error_of(Build&& build) {
  Builder b("test");
  try {
    build(b);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Builder, BroadcastsElementWiseOperands) {
  Builder b("test");
  ValueId sum = b.binary(Op::add, input(b, DType::f32, {4, 1, 3}), input(b, DType::f32, {2, 1}));
  EXPECT_EQ(b.shape(sum), (Shape{4, 2, 3}));
  EXPECT_EQ(b.dtype(b.binary(Op::compare_lt, sum, b.constant(DType::f32, 0))), DType::boolean);
}

TEST(Builder, LeavesOutOperationsWithoutEffect) {
  Builder b("test");
  ValueId x = input(b, DType::f32, {2, 3});
  EXPECT_EQ(b.convert(x, DType::f32), x);
  EXPECT_EQ(b.reshape(x, {2, 3}), x);
  EXPECT_EQ(b.transpose(x, {0, 1}), x);
  EXPECT_EQ(b.slice(x, {0, 0}, {2, 3}, {1, 1}), x);
  EXPECT_EQ(b.broadcast(x, {2, 3}), x);
}

TEST(Builder, InfersShapes) {
  Builder b("test");
  ValueId x = input(b, DType::bf16, {2, 3, 5});
  EXPECT_EQ(b.shape(b.transpose(x, {2, 0, 1})), (Shape{5, 2, 3}));
  EXPECT_EQ(b.shape(b.slice(x, {0, 0, 1}, {2, 3, 5}, {1, 2, 3})), (Shape{2, 2, 2}));
  EXPECT_EQ(b.shape(b.pad(x, b.constant(DType::bf16, 0), {1, 0, 0}, {0, 2, 0}, {0, 1, 0})), (Shape{3, 7, 5}));
  EXPECT_EQ(b.shape(b.concatenate({x, x}, 1)), (Shape{2, 6, 5}));
  EXPECT_EQ(b.shape(b.reduce(Op::reduce_sum, x, {2, 0})), (Shape{3}));
  EXPECT_EQ(b.shape(b.reduce(Op::reduce_sum, x, {0, 2}, true)), (Shape{1, 3, 1}));
  EXPECT_EQ(b.type(b.arg_reduce(Op::argmax, x, 1)), (Type{DType::i64, {2, 5}}));
  EXPECT_EQ(b.type(b.matmul(x, input(b, DType::bf16, {2, 5, 7}), DType::f32)), (Type{DType::f32, {2, 3, 7}}));
  EXPECT_EQ(b.shape(b.dot_general(x, input(b, DType::bf16, {3, 2}), {1}, {0}, {0}, {1}, DType::bf16)), (Shape{3, 5}));
  ValueId i = input(b, DType::i64, {4, 6});
  EXPECT_EQ(b.shape(b.gather(Op::gather, x, i, 1)), (Shape{2, 4, 6, 5}));
  EXPECT_EQ(b.shape(b.gather(Op::gather_nd, x, input(b, DType::i64, {4, 2}), 0)), (Shape{4, 5}));
  EXPECT_EQ(b.type(b.top_k(x, 2).second), (Type{DType::i64, {2, 3, 2}}));
  EXPECT_EQ(b.type(b.sort(x, 0, true).first), (Type{DType::bf16, {2, 3, 5}}));
}

TEST(Builder, NamesTheRuleThatIsBroken) {
  EXPECT_THAT(error_of([](Builder& b) { b.binary(Op::add, input(b, DType::f32, {2}), input(b, DType::f32, {3})); }),
              HasSubstr("[2] and [3] cannot be broadcast"));
  EXPECT_THAT(error_of([](Builder& b) { b.binary(Op::add, input(b, DType::f32, {2}), input(b, DType::bf16, {2})); }),
              HasSubstr("add: operands must have the same type, got f32[2] and bf16[2]"));
  EXPECT_THAT(error_of([](Builder& b) { b.unary(Op::exp, input(b, DType::i64, {2})); }), HasSubstr("exp: needs floating"));
  EXPECT_THAT(error_of([](Builder& b) { b.reshape(input(b, DType::f32, {2, 3}), {4}); }), HasSubstr("6 elements"));
  EXPECT_THAT(error_of([](Builder& b) { b.reduce(Op::reduce_sum, input(b, DType::f32, {2}), {1}); }),
              HasSubstr("dimension 1 is outside"));
  EXPECT_THAT(error_of([](Builder& b) { b.reduce(Op::reduce_max, input(b, DType::f32, {0}), {0}); }), HasSubstr("empty"));
  EXPECT_THAT(error_of([](Builder& b) { b.transpose(input(b, DType::f32, {2, 3}), {0, 0}); }), HasSubstr("named twice"));
  EXPECT_THAT(error_of([](Builder& b) { b.slice(input(b, DType::f32, {2}), {1}, {3}, {1}); }), HasSubstr("1:3:1"));
  EXPECT_THAT(error_of([](Builder& b) {
                b.matmul(input(b, DType::f32, {2, 3}), input(b, DType::f32, {4, 5}), DType::f32);
              }),
              HasSubstr("does not match"));
  EXPECT_THAT(error_of([](Builder& b) {
                b.gather(Op::gather, input(b, DType::f32, {2}), input(b, DType::f32, {1}), 0);
              }),
              HasSubstr("indices must be integers"));
  EXPECT_THAT(error_of([](Builder& b) {
                ValueId x = input(b, DType::f32, {4, 3});
                b.scatter(Op::scatter, x, input(b, DType::i64, {2}), input(b, DType::f32, {2, 2}), 0, Combine::add);
              }),
              HasSubstr("updates must be [2,3]"));
  EXPECT_THAT(error_of([](Builder& b) {
                ValueId x = input(b, DType::f32, {4});
                b.result(x, {{1}}, 3);
                b.take();
              }),
              HasSubstr("alias 3 of 1 parameters"));
}

const char* const kSoftmax = R"(graph "soft\"max"
parameter "x" bf16[2,3] strides=[1,2] offset=5
scalar "scale" f32
%0 = parameter : bf16[2,3]
%1 = scalar : f32[]
%2 = convert %0 : f32[2,3]
%3 = broadcast_in_dim %1 : f32[2,3]
%4 = multiply %2, %3 : f32[2,3]
%5 = reduce_max %4 dims=[1] : f32[2]
%6 = broadcast_in_dim %5 dims=[0] : f32[2,3]
%7 = subtract %4, %6 : f32[2,3]
%8 = constant real=-inf : f32[]
%9 = constant real=-0 : f32[]
%10 = constant integer=-7 : i64[]
%11 = constant real=0.1 : f64[]
%12 = pad %7, %8 starts=[0,1] limits=[0,0] strides=[0,0] : f32[2,4]
%13 = sort %12 dims=[1] integer=1 : f32[2,4]
%14 = sort %13 dims=[1] index=1 integer=1 : i64[2,4]
%15 = scatter_elements %12, %14, %13 dims=[1] combine=maximum : f32[2,4]
%16 = dot_general %15, %7 lhs_batch=[0] rhs_batch=[0] : f32[2,4,3]
%17 = convert %7 : bf16[2,3]
result %17 strides=[1,2] offset=5 alias=0
result %16 strides=[12,3,1]
)";

TEST(Text, RoundTrips) {
  EXPECT_EQ(print(parse(kSoftmax)), kSoftmax);
  Graph graph = parse(kSoftmax);
  EXPECT_EQ(graph.parameters[0].layout.offset, 5);
  EXPECT_EQ(graph.results[0].alias, 0);
  EXPECT_EQ(graph.nodes[11].real, 0.1);
}

TEST(Text, ErrorsNameTheLine) {
  auto error = [](const char* text) -> std::string {
    try {
      parse(text);
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("graph \"g\"\n%0 = nonsense : f32[]\n"), HasSubstr("line 2: unknown operation 'nonsense'"));
  EXPECT_THAT(error("graph \"g\"\n%0 = constant real=1 : f33[]\n"), HasSubstr("unknown dtype 'f33'"));
  EXPECT_THAT(error("graph \"g\"\n%1 = constant real=1 : f32[]\n"), HasSubstr("expected %0"));
  EXPECT_THAT(error("graph \"g\"\n%0 = exp %1 : f32[]\n"), HasSubstr("node %0: exp: operand %1 is not defined before"));
  EXPECT_THAT(error("graph \"g\"\n%0 = constant real=1 : f32[]\n%1 = exp %0 : f32[3]\n"),
              HasSubstr("node %1: exp gives f32[], not f32[3]"));
  EXPECT_THAT(error("graph \"g\"\n%0 = iota dims=[0] : f32[2]\nresult %0 strides=[]\n"), HasSubstr("0 strides for f32[2]"));
}

}  // namespace
}  // namespace opentrn::graph
