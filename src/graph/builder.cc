#include "graph/builder.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "graph/infer.h"

namespace opentrn::graph {

ValueId Builder::add(Node node) {
  node.origin = origin_;
  node.type = infer(graph_, node);
  graph_.nodes.push_back(std::move(node));
  return static_cast<ValueId>(graph_.nodes.size()) - 1;
}

ValueId Builder::parameter(Type type, Layout layout, std::string name) {
  int64_t index = static_cast<int64_t>(graph_.parameters.size());
  graph_.parameters.push_back({std::move(name), type, std::move(layout)});
  return add({.op = Op::parameter, .type = std::move(type), .index = index});
}

ValueId Builder::scalar(DType dtype, std::string name) {
  int64_t index = static_cast<int64_t>(graph_.scalars.size());
  graph_.scalars.push_back({std::move(name), dtype});
  return add({.op = Op::scalar, .type = {dtype, {}}, .index = index});
}

ValueId Builder::constant(DType dtype, double value) {
  if (is_integer(dtype)) return constant_int(dtype, static_cast<int64_t>(value));
  if (dtype == DType::boolean) return constant_int(dtype, value != 0);
  return add({.op = Op::constant, .type = {dtype, {}}, .real = value});
}

ValueId Builder::constant_int(DType dtype, int64_t value) {
  if (is_float(dtype) || is_complex(dtype)) return constant(dtype, static_cast<double>(value));
  if (dtype == DType::boolean) value = value != 0;
  return add({.op = Op::constant, .type = {dtype, {}}, .integer = value});
}

ValueId Builder::iota(Type type, int64_t dim) { return add({.op = Op::iota, .type = std::move(type), .dims = {dim}}); }

ValueId Builder::unary(Op op, ValueId x) { return add({.op = op, .operands = {x}}); }

ValueId Builder::binary(Op op, ValueId a, ValueId b) {
  Shape shape = broadcast_shapes(this->shape(a), this->shape(b));
  return add({.op = op, .operands = {broadcast(a, shape), broadcast(b, shape)}});
}

ValueId Builder::select(ValueId predicate, ValueId a, ValueId b) {
  Shape common = broadcast_shapes(broadcast_shapes(shape(predicate), shape(a)), shape(b));
  return add({.op = Op::select, .operands = {broadcast(predicate, common), broadcast(a, common), broadcast(b, common)}});
}

ValueId Builder::clamp(ValueId x, ValueId lo, ValueId hi) {
  Shape common = broadcast_shapes(broadcast_shapes(shape(x), shape(lo)), shape(hi));
  return add({.op = Op::clamp, .operands = {broadcast(x, common), broadcast(lo, common), broadcast(hi, common)}});
}

ValueId Builder::convert(ValueId x, DType dtype) {
  if (this->dtype(x) == dtype) return x;
  return add({.op = Op::convert, .operands = {x}, .type = {dtype, {}}});
}

ValueId Builder::bitcast(ValueId x, DType dtype) {
  if (this->dtype(x) == dtype) return x;
  return add({.op = Op::bitcast, .operands = {x}, .type = {dtype, {}}});
}

ValueId Builder::broadcast_in_dim(ValueId x, Shape shape, std::vector<int64_t> dims) {
  return add({.op = Op::broadcast_in_dim, .operands = {x}, .type = {dtype(x), std::move(shape)}, .dims = std::move(dims)});
}

ValueId Builder::broadcast(ValueId x, const Shape& shape) {
  const Shape& from = this->shape(x);
  if (from == shape) return x;
  if (from.size() > shape.size())
    throw UserError(fmt::format("broadcast: {} cannot become [{}]", to_string(type(x)), fmt::join(shape, ",")));
  std::vector<int64_t> dims(from.size());
  for (size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<int64_t>(shape.size() - from.size() + i);
  return broadcast_in_dim(x, shape, std::move(dims));
}

ValueId Builder::reshape(ValueId x, Shape shape) {
  if (this->shape(x) == shape) return x;
  return add({.op = Op::reshape, .operands = {x}, .type = {dtype(x), std::move(shape)}});
}

ValueId Builder::transpose(ValueId x, std::vector<int64_t> permutation) {
  bool identity = permutation.size() == shape(x).size();
  for (size_t i = 0; i < permutation.size(); ++i) identity &= permutation[i] == static_cast<int64_t>(i);
  if (identity) return x;
  return add({.op = Op::transpose, .operands = {x}, .dims = std::move(permutation)});
}

ValueId Builder::slice(ValueId x, std::vector<int64_t> starts, std::vector<int64_t> limits, std::vector<int64_t> strides) {
  bool identity = starts.size() == shape(x).size() && limits == shape(x);
  for (int64_t start : starts) identity &= start == 0;
  for (int64_t stride : strides) identity &= stride == 1;
  if (identity) return x;
  return add({.op = Op::slice, .operands = {x}, .starts = std::move(starts), .limits = std::move(limits),
              .strides = std::move(strides)});
}

ValueId Builder::reverse(ValueId x, std::vector<int64_t> dims) {
  if (dims.empty()) return x;
  return add({.op = Op::reverse, .operands = {x}, .dims = std::move(dims)});
}

ValueId Builder::pad(ValueId x, ValueId value, std::vector<int64_t> low, std::vector<int64_t> high,
                     std::vector<int64_t> interior) {
  if (interior.empty()) interior.assign(low.size(), 0);
  auto nothing = [](const std::vector<int64_t>& amounts) {
    return std::all_of(amounts.begin(), amounts.end(), [](int64_t amount) { return amount == 0; });
  };
  if (low.size() == shape(x).size() && nothing(low) && nothing(high) && nothing(interior)) return x;
  return add({.op = Op::pad, .operands = {x, value}, .starts = std::move(low), .limits = std::move(high),
              .strides = std::move(interior)});
}

ValueId Builder::concatenate(const std::vector<ValueId>& values, int64_t dim) {
  if (values.size() == 1) return values[0];
  return add({.op = Op::concatenate, .operands = values, .dims = {dim}});
}

ValueId Builder::reduce(Op op, ValueId x, std::vector<int64_t> dims, bool keep) {
  Shape kept = shape(x);
  for (int64_t d : dims)
    if (d >= 0 && d < static_cast<int64_t>(kept.size())) kept[d] = 1;
  std::sort(dims.begin(), dims.end());
  ValueId result = add({.op = op, .operands = {x}, .dims = std::move(dims)});
  return keep ? reshape(result, std::move(kept)) : result;
}

ValueId Builder::arg_reduce(Op op, ValueId x, int64_t dim, bool keep) { return reduce(op, x, {dim}, keep); }

ValueId Builder::cumulative(Op op, ValueId x, int64_t dim) { return add({.op = op, .operands = {x}, .dims = {dim}}); }

ValueId Builder::dot_general(ValueId lhs, ValueId rhs, std::vector<int64_t> lhs_batch, std::vector<int64_t> rhs_batch,
                             std::vector<int64_t> lhs_contract, std::vector<int64_t> rhs_contract, DType dtype) {
  return add({.op = Op::dot_general, .operands = {lhs, rhs}, .type = {dtype, {}}, .lhs_batch = std::move(lhs_batch),
              .rhs_batch = std::move(rhs_batch), .lhs_contract = std::move(lhs_contract),
              .rhs_contract = std::move(rhs_contract)});
}

ValueId Builder::matmul(ValueId lhs, ValueId rhs, DType dtype) {
  int64_t rank = static_cast<int64_t>(shape(lhs).size());
  if (rank < 2 || shape(rhs).size() != shape(lhs).size())
    throw UserError(fmt::format("matmul: operands need the same rank of at least 2, got {} and {}",
                                to_string(type(lhs)), to_string(type(rhs))));
  std::vector<int64_t> batch;
  for (int64_t i = 0; i < rank - 2; ++i) batch.push_back(i);
  return dot_general(lhs, rhs, batch, batch, {rank - 1}, {rank - 2}, dtype);
}

ValueId Builder::gather(Op op, ValueId x, ValueId indices, int64_t dim) {
  if (op == Op::gather_nd) return add({.op = op, .operands = {x, indices}});
  return add({.op = op, .operands = {x, indices}, .dims = {dim}});
}

ValueId Builder::scatter(Op op, ValueId x, ValueId indices, ValueId updates, int64_t dim, Combine combine) {
  Node node{.op = op, .operands = {x, indices, updates}, .combine = combine};
  if (op != Op::scatter_nd) node.dims = {dim};
  return add(std::move(node));
}

std::pair<ValueId, ValueId> Builder::sort(ValueId x, int64_t dim, bool descending) {
  ValueId values = add({.op = Op::sort, .operands = {x}, .dims = {dim}, .integer = descending});
  ValueId positions = add({.op = Op::sort, .operands = {values}, .dims = {dim}, .index = 1, .integer = descending});
  return {values, positions};
}

std::pair<ValueId, ValueId> Builder::top_k(ValueId x, int64_t k) {
  ValueId values = add({.op = Op::top_k, .operands = {x}, .integer = k});
  return {values, add({.op = Op::top_k, .operands = {values}, .index = 1, .integer = k})};
}

ValueId Builder::random_bits(Shape shape, ValueId seed, ValueId offset) {
  return add({.op = Op::random_bits, .operands = {seed, offset}, .type = {DType::u32, std::move(shape)}});
}

void Builder::result(ValueId value, Layout layout, int32_t alias) {
  graph_.results.push_back({value, std::move(layout), alias});
}

Graph Builder::take() {
  verify(graph_);
  return std::move(graph_);
}

}  // namespace opentrn::graph
