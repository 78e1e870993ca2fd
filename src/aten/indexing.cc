#include <algorithm>
#include <numeric>

#include "aten/families.h"
#include "aten/support.h"
#include "base/error.h"
#include "graph/infer.h"

namespace opentrn::aten {
namespace {

// ---- one index along one dimension

// The tensor with its dtype unchanged and at least one dimension, and the dimension.
std::pair<ValueId, int64_t> along(Call& c, const char* name = "self") {
  const ValueId x = c.tensor(name);
  return {at_least_1d(c.b, x), c.wrap(c.integer("dim"), c.b.shape(x).size())};
}

Values index_select(Call& c) {
  auto [x, dim] = along(c);
  return {c.shaped(c.b.gather(Op::gather, x, at_least_1d(c.b, c.tensor("index")), dim))};
}

Values embedding(Call& c) { return {c.to_result(c.b.gather(Op::gather, c.tensor("weight"), c.tensor("indices"), 0))}; }

Values embedding_dense_backward(Call& c) {
  const Shape& shape = c.results[0].shape;
  const int64_t width = shape[1], count = graph::elements(c.b.shape(c.tensor("indices")));
  const Value indices(c.b, c.b.reshape(c.tensor("indices"), {count}));
  Value grad(c.b, c.b.reshape(operand(c, "grad_output", c.results[0].dtype), {count, width}));
  auto column = [&](ValueId x) { return Value(c.b, c.b.reshape(x, {count, 1})); };
  const Value zero(c.b, constant(c.b, grad.dtype(), 0));
  if (c.boolean("scale_grad_by_freq")) {
    const ValueId none = c.b.broadcast(zero.id, {shape[0]}), one = c.b.broadcast(constant(c.b, grad.dtype(), 1), {count});
    const ValueId frequency = c.b.scatter(Op::scatter, none, indices.id, one, 0, Combine::add);
    grad = grad / column(c.b.gather(Op::gather, frequency, indices.id, 0));
  }
  const int64_t padding = c.integer("padding_idx");
  if (padding >= 0) grad = select(equal(column(indices.id), static_cast<double>(padding)), 0.0, grad);
  const ValueId rows = c.b.broadcast(zero.id, shape);
  return {c.to_result(c.b.scatter(Op::scatter, rows, indices.id, grad.id, 0, Combine::add))};
}

Values gather(Call& c) {
  if (graph::elements(c.results[0].shape) == 0) return {filled(c, 0)};
  auto [x, dim] = along(c);
  return {c.shaped(c.b.gather(Op::gather_elements, x, at_least_1d(c.b, c.tensor("index")), dim))};
}

// ---- scatter: self with the elements (or rows) that an index names replaced or combined

struct Scatter {
  ValueId x, index, updates;
  int64_t dim;
};

// Operands of the scatter family in `dtype`; src is cut to the index's shape, a number is spread over it.
Scatter scatter_operands(Call& c, DType dtype) {
  auto [self, dim] = along(c);
  const ValueId index = at_least_1d(c.b, c.tensor("index"));
  const Shape shape = c.b.shape(index);
  ValueId updates;
  if (c.has("src")) {
    updates = at_least_1d(c.b, c.tensor_as("src", dtype));
    const size_t rank = shape.size();
    updates = c.b.slice(updates, std::vector<int64_t>(rank, 0), shape, std::vector<int64_t>(rank, 1));
  } else {
    updates = c.b.broadcast(c.b.convert(c.number("value", c.results[0].dtype), dtype), shape);
  }
  return {c.b.convert(self, dtype), index, updates, dim};
}

Values scattered(Call& c, const Scatter& s, Combine combine) {
  if (empty(c, s.index)) return {c.shaped(s.x)};
  return {c.shaped(c.b.scatter(Op::scatter_elements, s.x, s.index, s.updates, s.dim, combine))};
}

// Sums of bool are "or", which is the maximum of integers; products are the minimum.
Values combined(Call& c, Combine combine) {
  DType dtype = opmath(c.results[0].dtype);
  if (dtype == DType::boolean) {
    dtype = DType::i32;
    combine = combine == Combine::add ? Combine::maximum : combine == Combine::multiply ? Combine::minimum : combine;
  }
  return scattered(c, scatter_operands(c, dtype), combine);
}

Values scatter_set(Call& c) { return scattered(c, scatter_operands(c, c.results[0].dtype), Combine::set); }
Values scatter_add(Call& c) { return combined(c, Combine::add); }

Combine combine_of(const std::string& reduce) {
  if (reduce == "add" || reduce == "sum" || reduce == "mean") return Combine::add;
  if (reduce == "multiply" || reduce == "prod") return Combine::multiply;
  if (reduce == "amax") return Combine::maximum;
  if (reduce == "amin") return Combine::minimum;
  throw UserError("scatter: reduce is 'add', 'multiply', 'sum', 'prod', 'mean', 'amax' or 'amin', not '" + reduce + "'");
}

Values scatter_reduce_named(Call& c) { return combined(c, combine_of(c.arg("reduce").text)); }

Values scatter_reduce(Call& c) {
  const std::string& reduce = c.arg("reduce").text;
  const Combine combine = combine_of(reduce);
  const bool include_self = c.boolean("include_self");
  if (c.results[0].dtype == DType::boolean) throw Unsupported("scatter_reduce of bool");
  const DType dtype = opmath(c.results[0].dtype);
  Scatter s = scatter_operands(c, dtype);
  if (empty(c, s.index)) return {c.shaped(s.x)};
  const Shape shape = c.b.shape(s.x), updates = c.b.shape(s.index);
  auto spread = [&](ValueId into, ValueId values, Combine how) {
    return c.b.scatter(Op::scatter_elements, into, s.index, values, s.dim, how);
  };
  if (!include_self) {
    // Positions that receive something forget what they held. For extremes that is the value of one of their updates.
    const ValueId identity = combine == Combine::maximum || combine == Combine::minimum
                                 ? s.updates
                                 : c.b.broadcast(constant(c.b, dtype, combine == Combine::multiply), updates);
    s.x = spread(s.x, identity, Combine::set);
  }
  ValueId result = spread(s.x, s.updates, combine);
  if (reduce == "mean") {
    const ValueId one = constant(c.b, dtype, 1), zero = constant(c.b, dtype, 0);
    const Value touched(c.b, spread(c.b.broadcast(zero, shape), c.b.broadcast(one, updates), Combine::add));
    const Value count = include_self ? touched + 1.0 : maximum(touched, 1.0);
    result = c.b.binary(is_float(dtype) ? Op::divide : Op::floor_divide, result, count.id);
  }
  return {c.shaped(result)};
}

// index_add, index_copy, index_fill: rows along dim.
Values index_rows(Call& c, Combine combine, DType dtype, ValueId updates) {
  auto [self, dim] = along(c);
  const ValueId index = at_least_1d(c.b, c.tensor("index"));
  if (empty(c, index)) return {c.shaped(self)};
  Shape shape = c.b.shape(self);
  shape[dim] = c.b.shape(index)[0];
  updates = c.b.shape(updates).empty() ? c.b.broadcast(updates, shape) : c.b.reshape(updates, shape);
  return {c.shaped(c.b.scatter(Op::scatter, c.b.convert(self, dtype), index, updates, dim, combine))};
}

Values index_add(Call& c) {
  DType dtype = opmath(c.results[0].dtype);
  Combine combine = Combine::add;
  if (dtype == DType::boolean) dtype = DType::i32, combine = Combine::maximum;
  ValueId source = c.tensor_as("source", dtype);
  if (!number_is(c, "alpha", 1)) source = c.b.binary(Op::multiply, source, c.number("alpha", dtype));
  return index_rows(c, combine, dtype, at_least_1d(c.b, source));
}

Values index_copy(Call& c) {
  return index_rows(c, Combine::set, c.results[0].dtype, at_least_1d(c.b, c.tensor_as("source", c.results[0].dtype)));
}

Values index_fill(Call& c) {
  const DType dtype = c.results[0].dtype;
  return index_rows(c, Combine::set, dtype, c.number("value", dtype));
}

// ---- advanced indexing: several index tensors, broadcast together

// x[..., i, ..., j, ...] as rows of a matrix whose first dimension joins the indexed ones.
struct Advanced {
  std::vector<int64_t> order;  // x's dimensions: the indexed ones, then the others
  Shape sorted;                // x's shape in that order
  Shape lead, rest;            // shape of the broadcast indices; shape of what each selects
  int64_t rows = 1;
  ValueId position = -1;       // row of each index, of shape `lead`; an index out of range gives `rows`
  std::vector<int64_t> result; // permutation that brings [lead, rest] into PyTorch's order of the result
};

Advanced advanced(Call& c, const Shape& shape, const Values& indices) {
  Advanced a;
  std::vector<int64_t> indexed, others;
  for (size_t d = 0; d < shape.size(); ++d)
    (d < indices.size() && indices[d] >= 0 ? indexed : others).push_back(static_cast<int64_t>(d));
  if (indexed.empty()) throw Unsupported(c.op + " without an index tensor");
  a.order = indexed;
  a.order.insert(a.order.end(), others.begin(), others.end());
  for (int64_t d : a.order) a.sorted.push_back(shape[d]);
  for (int64_t d : others) a.rest.push_back(shape[d]);
  for (int64_t d : indexed) {
    if (!is_integer(c.b.dtype(indices[d]))) throw Unsupported(c.op + " with a mask; the bridge turns masks into indices");
    a.lead = graph::broadcast_shapes(a.lead, c.b.shape(indices[d]));
    a.rows *= shape[d];
  }
  std::optional<Value> position, invalid;
  for (int64_t d : indexed) {
    const double size = static_cast<double>(shape[d]);
    const Value given = Value(c.b, indices[d]).convert(DType::i64);
    const Value index = select(given < 0.0, given + size, given);
    if (indexed.size() > 1) {  // a single index is checked by the gather itself
      const Value outside = index < 0.0 || index >= size;
      invalid = invalid ? *invalid || outside : outside;
    }
    position = position ? *position * size + index : index;
  }
  if (invalid) position = select(*invalid, static_cast<double>(a.rows), *position);
  a.position = c.b.broadcast(position->id, a.lead);
  // Adjacent indices leave their dimensions in place; otherwise they come first.
  const bool adjacent = indexed.back() - indexed.front() + 1 == static_cast<int64_t>(indexed.size());
  const int64_t before = adjacent ? indexed.front() : 0, lead = static_cast<int64_t>(a.lead.size());
  for (int64_t d = 0; d < before; ++d) a.result.push_back(lead + d);
  for (int64_t d = 0; d < lead; ++d) a.result.push_back(d);
  for (int64_t d = before; d < static_cast<int64_t>(a.rest.size()); ++d) a.result.push_back(lead + d);
  return a;
}

Shape joined(const Shape& a, const Shape& b) {
  Shape out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& permutation) {
  std::vector<int64_t> out(permutation.size());
  for (size_t i = 0; i < out.size(); ++i) out[permutation[i]] = static_cast<int64_t>(i);
  return out;
}

Values index(Call& c) {
  const ValueId x = c.tensor("self");
  if (graph::elements(c.results[0].shape) == 0) return {filled(c, 0)};
  const Advanced a = advanced(c, c.b.shape(x), c.tensors("indices"));
  const ValueId rows = c.b.reshape(c.b.transpose(x, a.order), joined({a.rows}, a.rest));
  return {c.to_result(c.b.transpose(c.b.gather(Op::gather, rows, a.position, 0), a.result))};
}

Values index_put(Call& c) {
  const ValueId x = c.tensor("self");
  const Advanced a = advanced(c, c.b.shape(x), c.tensors("indices"));
  DType dtype = c.results[0].dtype;
  Combine combine = Combine::set;
  if (c.boolean("accumulate")) {
    combine = dtype == DType::boolean ? Combine::maximum : Combine::add;
    dtype = dtype == DType::boolean ? DType::i32 : opmath(dtype);
  }
  const Shape stacked = joined(a.lead, a.rest);
  Shape result;
  for (int64_t d : a.result) result.push_back(stacked[d]);
  // values may have leading dimensions of size 1 that the result lacks
  ValueId values = c.tensor_as("values", dtype);
  Shape given = c.b.shape(values);
  while (given.size() > result.size() && given.front() == 1) given.erase(given.begin());
  values = c.b.transpose(c.b.broadcast(c.b.reshape(values, given), result), inverse(a.result));
  const ValueId rows = c.b.reshape(c.b.transpose(c.b.convert(x, dtype), a.order), joined({a.rows}, a.rest));
  if (empty(c, values)) return {c.to_result(x)};
  const ValueId put = c.b.scatter(Op::scatter, rows, a.position, values, 0, combine);
  return {c.to_result(c.b.transpose(c.b.reshape(put, a.sorted), inverse(a.order)))};
}

}  // namespace

std::vector<Entry> indexing() {
  return {
      {"aten::embedding", embedding}, {"aten::embedding_dense_backward", embedding_dense_backward},
      {"aten::index_select", index_select}, {"aten::gather", gather},
      {"aten::scatter.src", scatter_set}, {"aten::scatter.value", scatter_set},
      {"aten::scatter.reduce", scatter_reduce_named}, {"aten::scatter.value_reduce", scatter_reduce_named},
      {"aten::scatter_add", scatter_add}, {"aten::scatter_reduce.two", scatter_reduce},
      {"aten::index_add", index_add}, {"aten::index_copy", index_copy},
      {"aten::index_fill.int_Scalar", index_fill}, {"aten::index_fill.int_Tensor", index_fill},
      {"aten::index.Tensor", index}, {"aten::_unsafe_index.Tensor", index}, {"aten::index_put", index_put},
      {"aten::_index_put_impl", index_put}, {"aten::_index_put_impl_", index_put},
      {"aten::_unsafe_index_put", index_put},
  };
}

}  // namespace opentrn::aten
