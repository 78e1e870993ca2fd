#include <algorithm>

#include "aten/families.h"
#include "aten/support.h"
#include "base/error.h"

namespace opentrn::aten {
namespace {

// clone, contiguous, _to_copy, copy: the value in the result's dtype and shape.
template <bool from_source>
Values copy(Call& c) {
  return {c.to_result(c.tensor(from_source ? "src" : "self"))};
}

Values view_copy(Call& c) { return {c.b.reshape(c.tensor("self"), c.results[0].shape)}; }

// A view with another dtype of the same size; the bridge handles views that change the last dimension.
Values view_dtype(Call& c) { return {c.b.bitcast(c.tensor("self"), c.results[0].dtype)}; }

Values cat(Call& c) {
  const Type& type = c.results[0];
  const int64_t dim = c.wrap(c.integer("dim"), type.shape.size());
  Values parts;
  for (ValueId x : c.tensors("tensors"))
    // An empty vector may stand beside tensors of any shape.
    if (c.b.shape(x) != Shape{0} || type.shape.size() == 1) parts.push_back(c.b.convert(x, type.dtype));
  if (parts.empty()) return {filled(c, 0)};
  return {c.to_result(c.b.concatenate(parts, dim))};
}

Values stack(Call& c) {
  const Type& type = c.results[0];
  const int64_t dim = c.wrap(c.integer("dim"), type.shape.size());
  Shape one = type.shape;
  one[dim] = 1;
  Values parts;
  for (ValueId x : c.tensors("tensors")) parts.push_back(c.b.reshape(c.b.convert(x, type.dtype), one));
  return {c.b.concatenate(parts, dim)};
}

ValueId slice_dim(Builder& b, ValueId x, int64_t dim, int64_t start, int64_t limit, int64_t step = 1) {
  const Shape shape = b.shape(x);
  std::vector<int64_t> starts(shape.size(), 0), limits = shape, steps(shape.size(), 1);
  starts[dim] = start;
  limits[dim] = limit;
  steps[dim] = step;
  return b.slice(x, starts, limits, steps);
}

Values flip(Call& c) {
  const ValueId x = c.tensor("self");
  std::vector<int64_t> dims;
  for (int64_t d : c.integers("dims")) dims.push_back(c.wrap(d, c.b.shape(x).size()));
  if (c.b.shape(x).empty()) dims.clear();
  return {c.b.reverse(x, dims)};
}

Values roll(Call& c) {
  ValueId x = c.tensor("self");
  std::vector<int64_t> shifts = c.integers("shifts"), dims = c.integers("dims");
  if (dims.empty()) {  // rolled as if flat
    x = c.b.reshape(x, {graph::elements(c.b.shape(x))});
    dims = {0};
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = c.wrap(dims[i], c.b.shape(x).size()), size = c.b.shape(x)[dim];
    if (size == 0) continue;
    const int64_t shift = ((shifts[i] % size) + size) % size;
    if (shift == 0) continue;
    x = c.b.concatenate({slice_dim(c.b, x, dim, size - shift, size), slice_dim(c.b, x, dim, 0, size - shift)}, dim);
  }
  return {c.shaped(x)};
}

Values repeat(Call& c) {
  const ValueId x = c.tensor("self");
  const std::vector<int64_t> repeats = c.integers("repeats");
  const Shape& own = c.b.shape(x);
  Shape split, wide;  // [1, size] and [repeat, size] for each dimension
  for (size_t d = 0; d < repeats.size(); ++d) {
    const int64_t missing = static_cast<int64_t>(repeats.size() - own.size());
    const int64_t size = static_cast<int64_t>(d) < missing ? 1 : own[d - missing];
    split.insert(split.end(), {1, size});
    wide.insert(wide.end(), {repeats[d], size});
  }
  return {c.shaped(c.b.broadcast(c.b.reshape(x, split), wide))};
}

Values repeat_interleave(Call& c) {
  ValueId x = c.tensor("self");
  if (!c.has("dim")) x = c.b.reshape(x, {graph::elements(c.b.shape(x))});
  const int64_t dim = c.has("dim") ? c.wrap(c.integer("dim"), c.b.shape(x).size()) : 0;
  Shape split = c.b.shape(x);
  split.insert(split.begin() + dim + 1, 1);
  Shape wide = split;
  wide[dim + 1] = c.integer("repeats");
  return {c.shaped(c.b.broadcast(c.b.reshape(x, split), wide))};
}

Values constant_pad(Call& c) {
  ValueId x = c.tensor("self");
  const std::vector<int64_t> amounts = c.integers("pad");  // pairs, from the last dimension
  const int64_t rank = static_cast<int64_t>(c.b.shape(x).size());
  std::vector<int64_t> low(rank, 0), high(rank, 0);
  for (size_t i = 0; i + 1 < amounts.size(); i += 2) {
    const int64_t dim = rank - 1 - static_cast<int64_t>(i / 2), size = c.b.shape(x)[dim];
    const int64_t cut_low = std::max<int64_t>(-amounts[i], 0), cut_high = std::max<int64_t>(-amounts[i + 1], 0);
    x = slice_dim(c.b, x, dim, cut_low, size - cut_high);  // negative amounts cut
    low[dim] = std::max<int64_t>(amounts[i], 0);
    high[dim] = std::max<int64_t>(amounts[i + 1], 0);
  }
  return {c.b.pad(x, c.number("value", c.b.dtype(x)), low, high)};
}

// Gradients of views: zeros with grad_output in the places that the view showed.
ValueId placed(Call& c, ValueId grad, int64_t dim, int64_t start, int64_t step) {
  const Type& type = c.results[0];
  const int64_t count = c.b.shape(grad)[dim];
  if (graph::elements(c.b.shape(grad)) == 0) return filled(c, 0);
  std::vector<int64_t> low(type.shape.size(), 0), high = low, interior = low;
  low[dim] = start;
  interior[dim] = step - 1;
  high[dim] = type.shape[dim] - start - ((count - 1) * step + 1);
  return c.b.pad(grad, constant(c.b, type.dtype, 0), low, high, interior);
}

Values select_backward(Call& c) {
  const Shape& shape = c.results[0].shape;
  const int64_t dim = c.wrap(c.integer("dim"), shape.size()), size = shape[dim];
  const int64_t index = c.integer("index") < 0 ? c.integer("index") + size : c.integer("index");
  Shape one = shape;
  one[dim] = 1;
  return {placed(c, c.b.reshape(c.tensor_as("grad_output", c.results[0].dtype), one), dim, index, 1)};
}

Values slice_backward(Call& c) {
  const Shape& shape = c.results[0].shape;
  const int64_t dim = c.wrap(c.integer("dim"), shape.size()), size = shape[dim];
  int64_t start = c.integer("start");
  start = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
  return {placed(c, c.tensor_as("grad_output", c.results[0].dtype), dim, start, c.integer("step"))};
}


Values diagonal_backward(Call& c) {
  const Type& type = c.results[0];
  const size_t rank = type.shape.size();
  const int64_t dim1 = c.wrap(c.integer("dim1"), rank), dim2 = c.wrap(c.integer("dim2"), rank), offset = c.integer("offset");
  Value grad(c.b, c.tensor_as("grad_output", type.dtype));  // the other dimensions, then the diagonal
  if (empty(c, grad.id)) return {filled(c, 0)};
  // The diagonal is laid along dim1 or dim2, whichever it begins at 0 of, padded to its size and kept where it belongs.
  const int64_t last = static_cast<int64_t>(grad.shape().size()) - 1, lies = offset >= 0 ? dim1 : dim2;
  std::vector<int64_t> low(last + 1, 0), high = low, dims;
  high[last] = type.shape[lies] - grad.shape()[last];
  grad = {c.b, c.b.pad(grad.id, constant(c.b, type.dtype, 0), low, high)};
  std::vector<int64_t> order;  // moves the diagonal among the others, in ascending order of result dimensions
  for (int64_t d = 0, other = 0; d < static_cast<int64_t>(rank); ++d) {
    if (d == (lies == dim1 ? dim2 : dim1)) continue;
    dims.push_back(d);
    order.push_back(d == lies ? last : other++);
  }
  const ValueId spread = c.b.broadcast_in_dim(c.b.transpose(grad.id, order), type.shape, dims);
  const Value row(c.b, c.b.iota({DType::i32, type.shape}, dim1)), column(c.b, c.b.iota({DType::i32, type.shape}, dim2));
  const Value on_diagonal = equal(column, row + static_cast<double>(offset));
  return {select(on_diagonal, Value(c.b, spread), 0.0).id};
}

}  // namespace

std::vector<Entry> shape() {
  return {
      {"aten::clone", copy<false>}, {"aten::_to_copy", copy<false>}, {"aten::lift_fresh_copy", copy<false>},
      {"aten::contiguous", copy<false>}, {"aten::copy", copy<true>}, {"aten::expand_copy", copy<false>},
      {"aten::view_copy", view_copy}, {"aten::_reshape_copy", view_copy}, {"aten::view_copy.dtype", view_dtype},
      {"aten::cat", cat}, {"aten::stack", stack}, {"aten::flip", flip}, {"aten::roll", roll}, {"aten::repeat", repeat},
      {"aten::repeat_interleave.self_int", repeat_interleave}, {"aten::constant_pad_nd", constant_pad},
      {"aten::select_backward", select_backward}, {"aten::slice_backward", slice_backward},
      {"aten::diagonal_backward", diagonal_backward},
  };
}

}  // namespace opentrn::aten
