#include "compiler/simplify.h"

#include <algorithm>
#include <map>

#include "graph/builder.h"

namespace opentrn::compiler {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Node;
using graph::Op;
using graph::Shape;
using graph::ValueId;

// A reduction with fewer results than this leaves most partitions idle.
constexpr int64_t kFewResults = 128;
constexpr int64_t kLongReduction = 4096;
// A reduction of this many elements per result, not along the innermost dimension, is a chain of element-wise operations.
constexpr int64_t kShortReduction = 8;
// Longest row that a selection keeps in SBUF.
constexpr int64_t kLongestRow = 8192;

bool splittable(Op op) { return op >= Op::reduce_sum && op <= Op::reduce_or; }

class Simplifier {
 public:
  explicit Simplifier(const Graph& graph) : g_(graph), b_(graph.name), values_(graph.nodes.size(), -1) {}

  Graph run() {
    std::vector<bool> live(g_.nodes.size(), false);
    for (const graph::Result& result : g_.results) live[result.value] = true;
    for (size_t k = g_.nodes.size(); k-- > 0;)
      if (live[k])
        for (ValueId operand : g_.nodes[k].operands) live[operand] = true;
    // Parameters and scalars keep their positions, used or not.
    for (size_t k = 0; k < g_.nodes.size(); ++k)
      if (g_.nodes[k].op == Op::parameter || g_.nodes[k].op == Op::scalar) live[k] = true;
    std::vector<ValueId> parameters(g_.parameters.size(), -1), scalars(g_.scalars.size(), -1);
    for (size_t p = 0; p < g_.parameters.size(); ++p)
      parameters[p] = b_.parameter(g_.parameters[p].type, g_.parameters[p].layout, g_.parameters[p].name);
    for (size_t s = 0; s < g_.scalars.size(); ++s) scalars[s] = b_.scalar(g_.scalars[s].dtype, g_.scalars[s].name);
    for (size_t k = 0; k < g_.nodes.size(); ++k) {
      if (!live[k]) continue;
      const Node& node = g_.nodes[k];
      b_.set_origin(node.origin);
      if (node.op == Op::parameter)
        values_[k] = parameters[node.index];
      else if (node.op == Op::scalar)
        values_[k] = scalars[node.index];
      else
        values_[k] = rewrite(node);
    }
    for (const graph::Result& result : g_.results) b_.result(values_[result.value], result.layout, result.alias);
    return b_.take();
  }

 private:
  ValueId operand(const Node& node, size_t k) const { return values_[node.operands[k]]; }

  ValueId rewrite(const Node& node) {
    if (splittable(node.op)) return reduction(node);
    switch (node.op) {
      case Op::gather_elements: return gather_elements(node);
      case Op::scatter_elements: return scatter_elements(node);
      case Op::gather_nd: {
        const auto [flat, rows] = flat_source(node, operand(node, 0), last_size(node.operands[1]));
        return b_.reshape(b_.gather(Op::gather, flat, position_nd(node), 0), node.type.shape);
      }
      case Op::scatter_nd: {
        const int64_t depth = last_size(node.operands[1]);
        const auto [flat, rows] = flat_source(node, operand(node, 0), depth);
        const ValueId position = position_nd(node);
        Shape updates = b_.shape(position);
        updates.insert(updates.end(), b_.shape(flat).begin() + 1, b_.shape(flat).end());
        const ValueId set =
            b_.scatter(Op::scatter, flat, position, b_.reshape(operand(node, 2), updates), 0, node.combine);
        return b_.reshape(set, node.type.shape);
      }
      case Op::top_k: return top_k(node);
      default: return copy(node);
    }
  }

  // A row too long for SBUF: the k best of each piece, then the k best of those.
  ValueId top_k(const Node& node) {
    if (node.index == 1) {
      const ValueId first = values_[node.operands[0]];
      auto known = top_positions_.find(first);
      if (known != top_positions_.end()) return known->second;
      return copy(node);
    }
    const ValueId x = operand(node, 0);
    const Shape shape = b_.shape(x);
    const int64_t n = shape.back(), k = node.integer;
    const int64_t piece = std::max(kLongestRow, 2 * k);
    if (n <= piece) return copy(node);
    const int64_t dim = static_cast<int64_t>(shape.size()) - 1;
    std::vector<ValueId> values, positions;
    for (int64_t from = 0; from < n; from += piece) {
      const int64_t to = std::min(n, from + piece);
      std::vector<int64_t> starts(shape.size(), 0), limits = shape, ones(shape.size(), 1);
      starts[dim] = from;
      limits[dim] = to;
      const auto [v, p] = b_.top_k(b_.slice(x, starts, limits, ones), std::min(k, to - from));
      values.push_back(v);
      positions.push_back(b_.binary(Op::add, p, integer(from)));
    }
    const auto [best, at] = b_.top_k(b_.concatenate(values, dim), k);
    const ValueId candidates = b_.concatenate(positions, dim);
    const ValueId position = element_position(at, b_.shape(candidates), dim);
    const int64_t count = graph::elements(b_.shape(at));
    const ValueId flat = b_.reshape(candidates, {graph::elements(b_.shape(candidates))});
    top_positions_[best] = b_.reshape(b_.gather(Op::gather, flat, b_.reshape(position, {count}), 0), b_.shape(at));
    return best;
  }

  ValueId copy(const Node& node) {
    Node moved = node;
    for (ValueId& o : moved.operands) o = values_[o];
    return b_.append(std::move(moved));
  }

  // ---- reductions -------------------------------------------------------------------------------------------------
  ValueId reduction(const Node& node) { return reduce(node.op, operand(node, 0), node.dims, node.type.shape); }

  ValueId reduce(Op op, ValueId x, std::vector<int64_t> dims, const Shape& result_shape) {
    const Shape shape = b_.shape(x);
    int64_t reduced = 1, kept = 1;
    std::vector<bool> gone(shape.size(), false);
    for (int64_t d : dims) gone[d] = true;
    for (size_t d = 0; d < shape.size(); ++d) (gone[d] ? reduced : kept) *= shape[d];
    if (reduced > 1 && reduced <= kShortReduction && kept >= kFewResults && !gone.back()) return unrolled(op, x, dims, result_shape);
    if (kept == 0 || reduced == 0 || kept >= kFewResults || reduced < kLongReduction)
      return b_.reshape(b_.reduce(op, x, dims), result_shape);
    std::sort(dims.begin(), dims.end());
    // The innermost reduced dimension first, when the others leave enough rows.
    std::vector<int64_t> outer;
    for (int64_t d : dims)
      if (d != dims.back()) outer.push_back(d);
    int64_t outer_rows = kept;
    for (int64_t d : outer) outer_rows *= shape[d];
    if (outer_rows >= kFewResults / 2 && !outer.empty()) {
      const ValueId partial = b_.reduce(op, x, {dims.back()}, /*keep=*/false);
      for (int64_t& d : outer)
        if (d > dims.back()) --d;
      return reduce(op, partial, outer, result_shape);
    }
    // Cut the longest reduced dimension in two: [.., n, ..] as [.., pieces, n / pieces, ..] and the rest of n.
    int64_t dim = dims[0];
    for (int64_t d : dims)
      if (shape[d] > shape[dim]) dim = d;
    const int64_t n = shape[dim];
    const int64_t pieces = std::min<int64_t>(kFewResults, std::max<int64_t>(2, n / 16));
    const int64_t length = n / pieces, whole = pieces * length;
    if (length < 2) return b_.reshape(b_.reduce(op, x, dims), result_shape);
    auto part = [&](int64_t from, int64_t to) {
      if (from == 0 && to == n) return x;
      std::vector<int64_t> starts(shape.size(), 0), limits = shape, ones(shape.size(), 1);
      starts[dim] = from;
      limits[dim] = to;
      return b_.slice(x, starts, limits, ones);
    };
    Shape cut = shape;
    cut[dim] = length;
    cut.insert(cut.begin() + dim, pieces);
    std::vector<int64_t> inner;
    for (int64_t d : dims) inner.push_back(d >= dim ? d + 1 : d);
    const ValueId partial = b_.reduce(op, b_.reshape(part(0, whole), cut), inner, false);
    // What is left of `partial`: the kept dimensions and `pieces`, in order.
    int64_t at = 0;
    for (int64_t d = 0; d < dim; ++d) at += !gone[d];
    ValueId total = b_.reduce(op, partial, {at}, false);
    if (whole < n) {
      const ValueId rest = b_.reduce(op, part(whole, n), dims, false);
      total = b_.binary(combination(op), total, rest);
    }
    return b_.reshape(total, result_shape);
  }

  static Op combination(Op op) {
    switch (op) {
      case Op::reduce_sum: return Op::add;
      case Op::reduce_prod: return Op::multiply;
      case Op::reduce_max: return Op::maximum;
      case Op::reduce_min: return Op::minimum;
      case Op::reduce_and: return Op::logical_and;
      default: return Op::logical_or;
    }
  }

  // One slice for every position of the reduced dimensions, combined element by element.
  ValueId unrolled(Op op, ValueId x, const std::vector<int64_t>& dims, const Shape& result_shape) {
    const Shape shape = b_.shape(x);
    int64_t count = 1;
    for (int64_t d : dims) count *= shape[d];
    ValueId total = -1;
    for (int64_t k = 0; k < count; ++k) {
      std::vector<int64_t> starts(shape.size(), 0), limits = shape, ones(shape.size(), 1);
      int64_t rest = k;
      for (int64_t d : dims) {
        starts[d] = rest % shape[d];
        limits[d] = starts[d] + 1;
        rest /= shape[d];
      }
      const ValueId part = b_.slice(x, starts, limits, ones);
      total = total < 0 ? part : b_.binary(combination(op), total, part);
    }
    return b_.reshape(total, result_shape);
  }

  // ---- indexing -----------------------------------------------------------------------------------------------------
  int64_t last_size(ValueId id) const { return g_.type(id).shape.back(); }

  ValueId integer(int64_t value) { return b_.constant_int(DType::i64, value); }

  // The position where the index is inside [0, size), else -1, which the indirect transfer reports.
  ValueId checked(ValueId index, int64_t size, ValueId position) {
    const ValueId inside = b_.binary(Op::logical_and, b_.binary(Op::compare_ge, index, integer(0)),
                                     b_.binary(Op::compare_lt, index, integer(size)));
    return b_.select(inside, position, integer(-1));
  }

  // i[..] * stride(dim) + sum of the other coordinates, into x of `shape` in row-major order.
  ValueId element_position(ValueId indices, const Shape& shape, int64_t dim) {
    const auto strides = graph::row_major(shape);
    const ValueId index = b_.convert(indices, DType::i64);
    ValueId position = b_.binary(Op::multiply, index, integer(strides[dim]));
    const Shape& over = b_.shape(index);
    for (int64_t d = 0; d < static_cast<int64_t>(over.size()); ++d) {
      if (d == dim || over[d] == 1) continue;
      const ValueId coordinate = b_.iota({DType::i64, over}, d);
      position = b_.binary(Op::add, position, b_.binary(Op::multiply, coordinate, integer(strides[d])));
    }
    return checked(index, shape[dim], position);
  }

  ValueId gather_elements(const Node& node) {
    const ValueId x = operand(node, 0);
    const Shape shape = b_.shape(x);
    const ValueId position = element_position(operand(node, 1), shape, node.dims[0]);
    const int64_t count = graph::elements(node.type.shape);
    const ValueId flat = b_.reshape(x, {graph::elements(shape)});
    return b_.reshape(b_.gather(Op::gather, flat, b_.reshape(position, {count}), 0), node.type.shape);
  }

  ValueId scatter_elements(const Node& node) {
    const ValueId x = operand(node, 0);
    const Shape shape = b_.shape(x);
    const ValueId position = element_position(operand(node, 1), shape, node.dims[0]);
    const int64_t count = graph::elements(b_.shape(operand(node, 1)));
    const ValueId flat = b_.reshape(x, {graph::elements(shape)});
    const ValueId set = b_.scatter(Op::scatter, flat, b_.reshape(position, {count}),
                                   b_.reshape(operand(node, 2), {count}), 0, node.combine);
    return b_.reshape(set, shape);
  }

  // x with its first `depth` dimensions as one.
  std::pair<ValueId, int64_t> flat_source(const Node&, ValueId x, int64_t depth) {
    const Shape shape = b_.shape(x);
    int64_t rows = 1;
    for (int64_t d = 0; d < depth; ++d) rows *= shape[d];
    Shape flat{rows};
    flat.insert(flat.end(), shape.begin() + depth, shape.end());
    return {b_.reshape(x, flat), rows};
  }

  // Row of the flat source for every index tuple; the last dimension of the indices is the tuple.
  ValueId position_nd(const Node& node) {
    const Shape shape = b_.shape(operand(node, 0));
    const ValueId indices = operand(node, 1);
    const Shape over = b_.shape(indices);
    const int64_t depth = over.back();
    const Shape tuples(over.begin(), over.end() - 1);
    ValueId position = -1, inside = -1;
    int64_t stride = 1;
    for (int64_t d = depth; d-- > 0;) {
      std::vector<int64_t> starts(over.size(), 0), limits = over, ones(over.size(), 1);
      starts.back() = d;
      limits.back() = d + 1;
      const ValueId index = b_.convert(b_.reshape(b_.slice(indices, starts, limits, ones), tuples), DType::i64);
      const ValueId part = stride == 1 ? index : b_.binary(Op::multiply, index, integer(stride));
      const ValueId ok = b_.binary(Op::logical_and, b_.binary(Op::compare_ge, index, integer(0)),
                                   b_.binary(Op::compare_lt, index, integer(shape[d])));
      position = position < 0 ? part : b_.binary(Op::add, position, part);
      inside = inside < 0 ? ok : b_.binary(Op::logical_and, inside, ok);
      stride *= shape[d];
    }
    return b_.select(inside, position, integer(-1));
  }

  const Graph& g_;
  Builder b_;
  std::vector<ValueId> values_;
  std::map<ValueId, ValueId> top_positions_;
};

}  // namespace

Graph simplify(const Graph& graph) { return Simplifier(graph).run(); }

}  // namespace opentrn::compiler
