// Gathers, scatters, scans and selections against the evaluator.
#include "check_graph.h"
#include "graph/builder.h"

namespace opentrn::compiler {
namespace {

using graph::Builder;
using graph::Combine;
using graph::Op;
using graph::Shape;
using graph::ValueId;

ValueId input(Builder& b, DType dtype, Shape shape, std::string name = "") {
  const graph::Layout layout{graph::row_major(shape)};
  return b.parameter({dtype, std::move(shape)}, layout, std::move(name));
}
void output(Builder& b, ValueId v, int alias = -1) { b.result(v, {graph::row_major(b.shape(v))}, alias); }

TEST(Indexed, GatherRowsAlongEachDimension) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i64})
    for (DType index : {DType::i64, DType::i32})
      for (int64_t dim : {0, 1, 2}) {
        Builder b("gather");
        const ValueId x = input(b, dtype, {9, 9, 9});
        output(b, b.gather(Op::gather, x, input(b, index, {5, 41}, "index9"), dim));
        check_graph(b.take());
        if (testing::Test::HasFatalFailure()) return;
      }
  Builder b("embedding");
  const ValueId w = input(b, DType::f32, {1000, 96});
  output(b, b.gather(Op::gather, w, input(b, DType::i64, {4, 300}, "index1000"), 0));
  check_graph(b.take());
}

TEST(Indexed, GatherElementsAndTuples) {
  Builder b("gather_elements");
  const ValueId x = input(b, DType::f32, {20, 30});
  output(b, b.gather(Op::gather_elements, x, input(b, DType::i64, {7, 30}, "index20"), 0));
  output(b, b.gather(Op::gather_elements, x, input(b, DType::i64, {20, 5}, "index30"), 1));
  output(b, b.gather(Op::gather_nd, input(b, DType::f32, {6, 6, 4}), input(b, DType::i64, {11, 2}, "index6"), 0));
  check_graph(b.take());
}

TEST(Indexed, ScatterSetsAndAddsInOrder) {
  for (DType dtype : {DType::f32, DType::i64})
    for (Combine combine : {Combine::set, Combine::add}) {
      if (combine == Combine::add && dtype == DType::i64) continue;
      Builder b("scatter");
      const ValueId x = input(b, dtype, {50, 12});
      output(b, b.scatter(Op::scatter, x, input(b, DType::i64, {400}, "index50"), input(b, dtype, {400, 12}), 0, combine));
      const ValueId y = input(b, dtype, {10, 12});
      output(b, b.scatter(Op::scatter_elements, y, input(b, DType::i64, {10, 5}, "index12"), input(b, dtype, {10, 5}), 1, combine));
      check_graph(b.take(), {}, 4);
    }
  Builder b("in place");
  const ValueId x = input(b, DType::f32, {50, 12});
  output(b, b.scatter(Op::scatter, x, input(b, DType::i64, {3}, "index50"), input(b, DType::f32, {3, 12}), 0, Combine::set), 0);
  check_graph(b.take());
}

TEST(Indexed, AnIndexOutOfRangeIsAFault) {
  Builder b("gather");
  const ValueId x = input(b, DType::f32, {5, 4});
  output(b, b.gather(Op::gather, x, input(b, DType::i64, {3}, "index8"), 0));
  const graph::Graph g = b.take();
  std::vector<Bytes> inputs(2);
  inputs[0].resize(80);
  inputs[1].resize(24);
  const int64_t indices[3] = {1, 7, 2};
  std::memcpy(inputs[1].data(), indices, 24);
  const Compiled run = run_compiled(g, inputs, {}, 1);
  EXPECT_FALSE(run.ok);
  EXPECT_NE(run.fault.message.find("index 7 is out of bounds"), std::string::npos) << run.fault.message;
}

TEST(Ordered, CumulativeSums) {
  for (DType dtype : {DType::f32, DType::i64, DType::f64})
    for (const Shape& shape : {Shape{7, 9000}, Shape{300, 5}, Shape{10}})
      for (int64_t dim : {int64_t{0}, static_cast<int64_t>(shape.size()) - 1}) {
        Builder b("cumsum");
        output(b, b.cumulative(Op::cumulative_sum, input(b, dtype, shape), dim));
        check_graph(b.take(), {}, 50);
        if (testing::Test::HasFatalFailure()) return;
      }
}

TEST(Ordered, SortsAndSelections) {
  for (DType dtype : {DType::f32, DType::i64, DType::bf16})
    for (bool descending : {false, true}) {
      Builder b("sort");
      const ValueId x = input(b, dtype, {5, 60});
      const auto [v, p] = b.sort(x, 1, descending);
      output(b, v);
      output(b, p);
      const auto [w, q] = b.sort(x, 0, descending);
      output(b, q);
      output(b, w);
      check_graph(b.take());
      if (testing::Test::HasFatalFailure()) return;
    }
  Builder b("top_k");
  const auto [v, p] = b.top_k(input(b, DType::f32, {2, 20000}), 10);
  output(b, v);
  output(b, p);
  check_graph(b.take());
}

}  // namespace
}  // namespace opentrn::compiler
