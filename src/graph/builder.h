// Builds a graph node by node; shapes and dtypes of results are inferred and checked at once.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace opentrn::graph {

class Builder {
 public:
  explicit Builder(std::string name) { graph_.name = std::move(name); }

  // ---- sources
  ValueId parameter(Type type, Layout layout, std::string name = "");
  ValueId scalar(DType dtype, std::string name = "");   // 0-d launch argument
  ValueId constant(DType dtype, double value);          // 0-d
  ValueId constant_int(DType dtype, int64_t value);     // 0-d
  ValueId iota(Type type, int64_t dim);

  // ---- element-wise. Operands are broadcast to a common shape (NumPy rules); dtypes must agree.
  ValueId unary(Op op, ValueId x);
  ValueId binary(Op op, ValueId a, ValueId b);
  ValueId select(ValueId predicate, ValueId a, ValueId b);
  ValueId clamp(ValueId x, ValueId lo, ValueId hi);
  ValueId convert(ValueId x, DType dtype);   // no node when the dtype is already right
  ValueId bitcast(ValueId x, DType dtype);

  // ---- shape
  ValueId broadcast_in_dim(ValueId x, Shape shape, std::vector<int64_t> dims);
  ValueId broadcast(ValueId x, const Shape& shape);  // NumPy rules: trailing dimensions match
  ValueId reshape(ValueId x, Shape shape);
  ValueId transpose(ValueId x, std::vector<int64_t> permutation);
  ValueId slice(ValueId x, std::vector<int64_t> starts, std::vector<int64_t> limits, std::vector<int64_t> strides);
  ValueId reverse(ValueId x, std::vector<int64_t> dims);
  ValueId pad(ValueId x, ValueId value, std::vector<int64_t> low, std::vector<int64_t> high,
              std::vector<int64_t> interior = {});
  ValueId concatenate(const std::vector<ValueId>& values, int64_t dim);

  // ---- reductions; keep: reduced dimensions stay with size 1
  ValueId reduce(Op op, ValueId x, std::vector<int64_t> dims, bool keep = false);
  ValueId arg_reduce(Op op, ValueId x, int64_t dim, bool keep = false);
  ValueId cumulative(Op op, ValueId x, int64_t dim);

  // ---- contractions: f32 accumulation, result in `dtype`
  ValueId dot_general(ValueId lhs, ValueId rhs, std::vector<int64_t> lhs_batch, std::vector<int64_t> rhs_batch,
                      std::vector<int64_t> lhs_contract, std::vector<int64_t> rhs_contract, DType dtype);
  ValueId matmul(ValueId lhs, ValueId rhs, DType dtype);  // [..., M, K] x [..., K, N], equal batch dimensions

  // ---- indexed
  ValueId gather(Op op, ValueId x, ValueId indices, int64_t dim);
  ValueId scatter(Op op, ValueId x, ValueId indices, ValueId updates, int64_t dim, Combine combine);
  std::pair<ValueId, ValueId> sort(ValueId x, int64_t dim, bool descending);
  std::pair<ValueId, ValueId> top_k(ValueId x, int64_t k);
  ValueId random_bits(Shape shape, ValueId seed, ValueId offset);

  // A node of another graph, its operands renumbered; its type is taken as it is.
  ValueId append(Node node) { return add(std::move(node)); }

  // ---- results
  void result(ValueId value, Layout layout, int32_t alias = -1);
  void set_origin(int32_t origin) { origin_ = origin; }

  // By value: a reference into the graph would not outlive the next node.
  Type type(ValueId id) const { return graph_.nodes[id].type; }
  DType dtype(ValueId id) const { return graph_.nodes[id].type.dtype; }
  Shape shape(ValueId id) const { return graph_.nodes[id].type.shape; }
  Graph take();  // verifies

 private:
  ValueId add(Node node);
  Graph graph_;
  int32_t origin_ = -1;
};

}  // namespace opentrn::graph
