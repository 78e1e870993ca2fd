// Fused kernels against the evaluator: element-wise operations, broadcasts, layouts, reductions, in-place results.
#include "check_graph.h"
#include "graph/builder.h"

namespace opentrn::compiler {
namespace {

using graph::Builder;
using graph::Layout;
using graph::Op;
using graph::Shape;
using graph::Type;
using graph::ValueId;

ValueId input(Builder& b, DType dtype, Shape shape, std::string name = "") {
  const Layout layout{graph::row_major(shape)};
  return b.parameter({dtype, std::move(shape)}, layout, std::move(name));
}
void output(Builder& b, ValueId v, int alias = -1) { b.result(v, {graph::row_major(b.shape(v))}, alias); }

exec::ScalarValue real(double v) { return {exec::ScalarValue::Kind::real, v, 0}; }
exec::ScalarValue integer(int64_t v) { return {exec::ScalarValue::Kind::integer, 0, v}; }

const std::vector<Shape> kShapes = {{},        {1},          {7},        {128},        {129},        {4096, 3},
                                    {5, 1000}, {300, 70},    {1000003},  {2, 3, 5, 7}, {64, 128, 9}, {131072}};

TEST(Fused, AddInEveryShapeAndDtype) {
  for (const Shape& shape : kShapes)
    for (DType dtype : {DType::f32, DType::bf16, DType::i64, DType::u8}) {
      if (dtype != DType::f32 && graph::elements(shape) > 200000) continue;
      Builder b("add");
      output(b, b.binary(Op::add, input(b, dtype, shape), input(b, dtype, shape)));
      check_graph(b.take());
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Fused, EveryFloatFunction) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (Op op : {Op::neg, Op::abs, Op::sign, Op::exp, Op::exp2, Op::expm1, Op::log, Op::log2, Op::log10, Op::log1p, Op::sqrt,
                  Op::rsqrt, Op::reciprocal, Op::sin, Op::cos, Op::tan, Op::asinh, Op::atan, Op::sinh, Op::cosh, Op::tanh,
                  Op::erf, Op::erfc, Op::lgamma, Op::logistic, Op::floor, Op::ceil, Op::round_nearest_even, Op::trunc,
                  Op::is_nan, Op::is_inf, Op::is_finite}) {
      Builder b(std::string(graph::name_of(op)));
      output(b, b.unary(op, input(b, dtype, {9, 40}, "positive")));
      check_graph(b.take(), {}, 4);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Fused, EveryBinaryOperation) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i64, DType::i32})
    for (Op op : {Op::add, Op::subtract, Op::multiply, Op::divide, Op::floor_divide, Op::remainder, Op::fmod, Op::maximum,
                  Op::minimum, Op::compare_eq, Op::compare_ne, Op::compare_lt, Op::compare_le, Op::compare_gt, Op::compare_ge,
                  Op::bitwise_and, Op::bitwise_xor, Op::power}) {
      if (is_float(dtype) && op >= Op::bitwise_and && op <= Op::bitwise_xor) continue;
      if (!is_float(dtype) && op == Op::power) continue;
      Builder b(std::string(graph::name_of(op)));
      output(b, b.binary(op, input(b, dtype, {33, 20}, "positive1"), input(b, dtype, {33, 20}, is_float(dtype) ? "positive2" : "index9")));
      if (!is_float(dtype) && (op == Op::divide || op == Op::floor_divide || op == Op::remainder || op == Op::fmod)) continue;
      check_graph(b.take(), {}, 4);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Fused, ScalarsAreLaunchArguments) {
  for (DType dtype : {DType::f32, DType::f64, DType::i64}) {
    Builder b("axpy");
    const ValueId x = input(b, dtype, {300, 17}), y = input(b, dtype, {300, 17});
    const ValueId s = b.scalar(dtype), t = b.scalar(dtype);
    output(b, b.binary(Op::add, b.binary(Op::multiply, x, s), b.binary(Op::subtract, t, y)));
    output(b, b.binary(Op::multiply, b.binary(Op::subtract, x, s), t));
    output(b, b.broadcast(b.binary(Op::add, s, t), {5}));
    check_graph(b.take(), dtype == DType::i64 ? std::vector{integer(3), integer(-7)} : std::vector{real(0.5), real(-1.25)});
  }
}

TEST(Fused, BroadcastsOfRowsColumnsAndScalars) {
  for (const Shape& shape : {Shape{200, 300}, Shape{3, 5000}, Shape{5000, 3}}) {
    Builder b("broadcast");
    const ValueId x = input(b, DType::f32, shape);
    const ValueId row = input(b, DType::f32, {shape[1]}), column = input(b, DType::f32, {shape[0], 1}), one = input(b, DType::f32, {1, 1});
    ValueId v = b.binary(Op::multiply, b.binary(Op::add, x, row), column);
    output(b, b.binary(Op::subtract, v, one));
    check_graph(b.take());
  }
}

TEST(Fused, LayoutsOfInputsAndResults) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i64, DType::u8}) {
    Builder b("layouts");
    const ValueId x = b.parameter({dtype, {130, 70}}, {{1, 130}});           // transposed
    const ValueId y = b.parameter({dtype, {130, 70}}, {{150, 2}, 3});        // every second, from the third
    const ValueId z = b.parameter({dtype, {130, 70}}, {{0, 1}});             // expanded
    const ValueId v = b.binary(Op::add, b.binary(Op::add, x, y), z);
    b.result(v, {{1, 130}});
    b.result(v, {{70, 1}});
    check_graph(b.take());
  }
}

TEST(Fused, CopiesBetweenLayouts) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i64, DType::u8, DType::f64}) {
    Builder b("permute");
    const ValueId x = b.parameter({dtype, {6, 50, 40, 3}}, {graph::row_major({6, 50, 40, 3})});
    const ValueId t = b.transpose(x, {2, 0, 3, 1});
    output(b, t);
    check_graph(b.take());
  }
}

TEST(Fused, ConversionsBetweenAllTypes) {
  const std::vector<DType> types = {DType::boolean, DType::u8, DType::i8, DType::i16, DType::i32, DType::i64,
                                    DType::f16, DType::bf16, DType::f32, DType::f64};
  for (DType from : types)
    for (DType to : types) {
      Builder b("convert");
      const ValueId x = input(b, from, {13, 11});
      output(b, b.convert(x, to));
      check_graph(b.take());
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Fused, Reductions) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i64, DType::f64, DType::i32})
    for (Op op : {Op::reduce_sum, Op::reduce_max, Op::reduce_min})
      for (const Shape& shape : {Shape{300, 1000}, Shape{3, 4, 5}, Shape{20, 70, 40}, Shape{1, 20000}, Shape{5000, 2}})
        for (int which = 0; which < 4; ++which) {
          if (dtype != DType::f32 && graph::elements(shape) > 100000) continue;
          Builder b(std::string(graph::name_of(op)));
          ValueId x = input(b, dtype, shape);
          if (is_float(dtype)) x = b.convert(x, dtype == DType::bf16 ? DType::f32 : dtype);
          std::vector<int64_t> dims;
          const int64_t rank = static_cast<int64_t>(shape.size());
          if (which == 0) dims = {rank - 1};
          if (which == 1) dims = {0};
          if (which == 2) for (int64_t d = 0; d < rank; ++d) dims.push_back(d);
          if (which == 3) dims = rank == 3 ? std::vector<int64_t>{0, 2} : std::vector<int64_t>{1};
          output(b, b.convert(b.reduce(op, x, dims), dtype));
          check_graph(b.take(), {}, 4);
          if (testing::Test::HasFatalFailure()) return;
        }
}

TEST(Fused, SoftmaxOfShortAndLongRows) {
  for (const Shape& shape : {Shape{300, 77}, Shape{4, 3, 50}, Shape{3, 60000}, Shape{40, 1}})
    for (DType dtype : {DType::f32, DType::bf16}) {
      Builder b("softmax");
      const ValueId x = b.convert(input(b, dtype, shape), DType::f32);
      const int64_t last = static_cast<int64_t>(shape.size()) - 1;
      const ValueId e = b.unary(Op::exp, b.binary(Op::subtract, x, b.reduce(Op::reduce_max, x, {last}, true)));
      output(b, b.convert(b.binary(Op::divide, e, b.reduce(Op::reduce_sum, e, {last}, true)), dtype));
      check_graph(b.take(), {}, 2);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Fused, LayerNormWithItsStatistics) {
  for (const Shape& shape : {Shape{300, 256}, Shape{5, 30000}}) {
    Builder b("layer_norm");
    const double n = static_cast<double>(shape[1]);
    const ValueId x = input(b, DType::f32, shape), w = input(b, DType::f32, {shape[1]}), c = input(b, DType::f32, {shape[1]});
    const ValueId mean = b.binary(Op::multiply, b.reduce(Op::reduce_sum, x, {1}, true), b.constant(DType::f32, 1 / n));
    const ValueId d = b.binary(Op::subtract, x, mean);
    const ValueId var = b.binary(Op::multiply, b.reduce(Op::reduce_sum, b.binary(Op::multiply, d, d), {1}, true), b.constant(DType::f32, 1 / n));
    const ValueId r = b.unary(Op::rsqrt, b.binary(Op::add, var, b.constant(DType::f32, 1e-5)));
    output(b, b.binary(Op::add, b.binary(Op::multiply, b.binary(Op::multiply, d, r), w), c));
    output(b, mean);
    output(b, r);
    check_graph(b.take(), {}, 4);
  }
}

TEST(Fused, ArgmaxTakesTheFirstAndLooksAtEveryChunk) {
  for (const Shape& shape : {Shape{200, 50}, Shape{3, 100000}, Shape{40, 30, 6}})
    for (DType dtype : {DType::f32, DType::i64, DType::bf16})
      for (int64_t dim : {int64_t{0}, static_cast<int64_t>(shape.size()) - 1}) {
        if (dtype != DType::f32 && graph::elements(shape) > 100000) continue;
        Builder b("argmax");
        output(b, b.arg_reduce(Op::argmax, input(b, dtype, shape), dim));
        check_graph(b.take());
        if (testing::Test::HasFatalFailure()) return;
      }
}

TEST(Fused, SelectCompareAndIota) {
  Builder b("tril");
  const ValueId x = input(b, DType::f32, {70, 90});
  const ValueId row = b.iota({DType::i64, {70, 90}}, 0), column = b.iota({DType::i64, {70, 90}}, 1);
  output(b, b.select(b.binary(Op::compare_le, column, row), x, b.constant(DType::f32, 0)));
  output(b, b.convert(row, DType::f32));
  check_graph(b.take());
}

TEST(Fused, RandomBitsArePhilox) {
  Builder b("random");
  const ValueId seed = b.scalar(DType::i64), offset = b.scalar(DType::i64);
  output(b, b.random_bits({40, 33}, seed, offset));
  check_graph(b.take(), {integer(0x123456789abcdef), integer((int64_t{1} << 33) + 8)});
}

TEST(Fused, InPlaceResultsSeeTheOldValues) {
  Builder b("adam");
  const ValueId p = input(b, DType::f32, {1000}), g = input(b, DType::f32, {1000}), m = input(b, DType::f32, {1000});
  const ValueId half = b.constant(DType::f32, 0.5);
  const ValueId m2 = b.binary(Op::add, b.binary(Op::multiply, m, half), b.binary(Op::multiply, g, half));
  output(b, b.binary(Op::subtract, p, m2), 0);
  output(b, m2, 2);
  check_graph(b.take());

  Builder c("transpose in place");
  const ValueId x = input(c, DType::f32, {200, 200});
  output(c, c.binary(Op::add, x, c.transpose(x, {1, 0})), 0);
  check_graph(c.take());

  Builder d("swap");
  const ValueId u = input(d, DType::f32, {300}), v = input(d, DType::f32, {300});
  output(d, d.unary(Op::neg, v), 0);
  output(d, d.unary(Op::exp, u), 1);
  check_graph(d.take());
}

TEST(Fused, ShapeOperations) {
  Builder b("shapes");
  const ValueId x = input(b, DType::f32, {6, 40}), y = input(b, DType::f32, {6, 24});
  output(b, b.concatenate({x, b.binary(Op::add, y, y)}, 1));
  output(b, b.pad(b.unary(Op::neg, x), b.constant(DType::f32, 9), {1, 2}, {3, 0}, {0, 1}));
  output(b, b.slice(b.unary(Op::exp, x), {1, 3}, {5, 40}, {2, 5}));
  output(b, b.reverse(x, {0, 1}));
  output(b, b.reshape(b.unary(Op::neg, b.transpose(x, {1, 0})), {48, 5}));
  output(b, b.reshape(x, {2, 120}));
  check_graph(b.take());
}

TEST(Fused, AnUnreachableExpressionSizeIsCutIntoKernels) {
  Builder b("deep");
  ValueId v = input(b, DType::f32, {300, 50});
  const ValueId y = input(b, DType::f32, {300, 50});
  for (int k = 0; k < 200; ++k) v = b.binary(k % 2 ? Op::multiply : Op::add, b.unary(Op::tanh, v), y);
  output(b, v);
  check_graph(b.take(), {}, 50);
}

}  // namespace
}  // namespace opentrn::compiler
