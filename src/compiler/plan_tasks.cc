#include "compiler/planner.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::compiler {
namespace {

// A selection passes over its row once for every element it finds; beyond this many steps per row that is no method.
constexpr int64_t kMostSelectionSteps = int64_t{1} << 23;

}  // namespace

void Planner::flush() {
  if (open_) {
    tasks_.push_back(std::move(open_->fused));
    open_.reset();
  }
}

void Planner::push(Task task) {
  flush();
  tasks_.push_back(std::move(task));
}

void Planner::compute(ValueId id, const View& target) {
  if (graph::elements(g_.type(id).shape) == 0) return;
  dispatch(id, target);
  if (!views_[id]) views_[id] = target;
}

void Planner::dispatch(ValueId id, const View& target) {
  const Node& node = g_.nodes[id];
  switch (node.op) {
    case Op::dot_general: return dot(node, target);
    case Op::gather: return gather(node, target);
    case Op::scatter: return scatter(node, target);
    case Op::concatenate: return concatenate(node, target);
    case Op::pad: return pad(node, target);
    case Op::cumulative_sum:
    case Op::cumulative_prod:
    case Op::cumulative_max:
    case Op::cumulative_min: return scan(node, target);
    case Op::top_k:
    case Op::sort: return top_k(id, target);
    case Op::gather_elements:
    case Op::gather_nd:
    case Op::scatter_elements:
    case Op::scatter_nd:
      throw Unsupported(fmt::format("operation {} on {}", graph::name_of(node.op), name_of(node.type.dtype)));
    case Op::slice:
    case Op::reverse:
    case Op::reshape: {
      // Views of something computed, unless the operand is one already.
      const View from = *view_of(id, true);
      if (!same(from, target)) copy(from, target);
      return;
    }
    default: return fuse(id, target);
  }
}

void Planner::copy(const View& from, const View& target) {
  Group group;
  Fused& f = group.fused;
  f.sizes = target.shape;
  FusedValue v;
  v.kind = FusedValue::Kind::view;
  v.dtype = from.dtype;
  v.buffer = from.buffer;
  v.offset = from.offset;
  v.strides = from.strides;
  v.varies = varies_of(from.strides, f.sizes);
  f.values.push_back(v);
  f.outputs.push_back({0, target.buffer, target.offset, target.strides});
  push(std::move(f));
}

void Planner::dot(const Node& node, const View& target) {
  View lhs = *view_of(node.operands[0], true), rhs = *view_of(node.operands[1], true);
  auto others = [](const View& v, const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    std::vector<int64_t> rest;
    for (int64_t d = 0; d < static_cast<int64_t>(v.shape.size()); ++d)
      if (std::find(a.begin(), a.end(), d) == a.end() && std::find(b.begin(), b.end(), d) == b.end()) rest.push_back(d);
    return rest;
  };
  auto product = [](const View& v, const std::vector<int64_t>& dims) {
    int64_t n = 1;
    for (int64_t d : dims) n *= v.shape[d];
    return n;
  };
  const auto lhs_free = others(lhs, node.lhs_batch, node.lhs_contract);
  const auto rhs_free = others(rhs, node.rhs_batch, node.rhs_contract);
  const int64_t m = product(lhs, lhs_free), n = product(rhs, rhs_free), k = product(lhs, node.lhs_contract);
  Shape batch;
  for (int64_t d : node.lhs_batch) batch.push_back(lhs.shape[d]);
  if (k == 0) return fill_zero(target);
  auto arrange = [&](const View& v, const std::vector<int64_t>& b, const std::vector<int64_t>& first,
                     const std::vector<int64_t>& second, int64_t rows, int64_t columns) {
    std::vector<int64_t> order = b;
    order.insert(order.end(), first.begin(), first.end());
    order.insert(order.end(), second.begin(), second.end());
    Shape shape = batch;
    shape.push_back(rows);
    shape.push_back(columns);
    return reshape_view(transposed(v, order), shape);
  };
  Matmul matmul;
  matmul.lhs = arrange(lhs, node.lhs_batch, lhs_free, node.lhs_contract, m, k);
  matmul.rhs = arrange(rhs, node.rhs_batch, node.rhs_contract, rhs_free, k, n);
  for (View* v : {&matmul.lhs, &matmul.rhs})
    if (v->dtype != DType::f32 && v->dtype != DType::bf16 && v->dtype != DType::f16)
      throw Unsupported(fmt::format("matrix multiplication of {}", name_of(v->dtype)));
  Shape shape = batch;
  shape.push_back(m);
  shape.push_back(n);
  p_.model_flops += 2 * graph::elements(shape) * k;
  if (auto out = reshaped(target, shape)) {
    matmul.out = *out;
    push(matmul);
  } else {
    matmul.out = scratch({target.dtype, shape});
    push(matmul);
    copy(*reshaped(matmul.out, target.shape), target);
  }
}

void Planner::fill_zero(const View& target) {
  Fused f;
  f.sizes = target.shape;
  FusedValue v;
  v.kind = FusedValue::Kind::constant;
  v.dtype = target.dtype;
  f.values.push_back(v);
  f.outputs.push_back({0, target.buffer, target.offset, target.strides});
  push(std::move(f));
}

Shape Planner::three(const Shape& shape, int64_t dim) {
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < dim; ++d) outer *= shape[d];
  for (size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  return {outer, shape[dim], inner};
}

void Planner::gather(const Node& node, const View& target) {
  const Shape& source_shape = g_.type(node.operands[0]).shape;
  const int64_t dim = node.dims[0];
  Gather task;
  task.indices = *view_of(node.operands[1], true);
  const int64_t count = task.indices.elements();
  task.indices = reshape_view(task.indices, {count});
  View source = *view_of(node.operands[0], true);
  Shape shape = three(source_shape, dim);
  task.source = reshape_view(source, shape);
  const Shape out{shape[0], count, shape[2]};
  if (auto direct = reshaped(target, out)) {
    task.out = *direct;
    push(task);
  } else {
    task.out = scratch({target.dtype, out});
    push(task);
    copy(*reshaped(task.out, target.shape), target);
  }
}

void Planner::scatter(const Node& node, const View& target) {
  if (node.combine != graph::Combine::set && node.combine != graph::Combine::add)
    throw Unsupported("scatter with multiply, maximum or minimum");
  const DType dtype = node.type.dtype;
  if (node.combine == graph::Combine::add && dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16)
    throw Unsupported(fmt::format("scatter-add of {}: DMA engines accumulate in f32", name_of(dtype)));
  const Shape& shape = node.type.shape;
  const int64_t dim = node.dims[0];
  const View indices = *view_of(node.operands[1], true);
  const View updates = *view_of(node.operands[2], true);
  // The initial values, unless they are there already (written in place).
  if (auto from = view_of(node.operands[0], false); !from || !written_in_place(*from, target)) {
    if (from)
      copy(*from, target);
    else
      compute(node.operands[0], target);
  }
  Scatter task;
  task.accumulate = node.combine == graph::Combine::add;
  const int64_t count = indices.elements();
  if (count == 0) return;
  task.indices = reshape_view(indices, {count});
  const Shape rows = three(shape, dim);
  task.updates = reshape_view(updates, {rows[0], count, rows[2]});
  if (auto direct = reshaped(target, rows)) {
    task.target = *direct;
    push(task);
  } else {
    View whole = scratch({target.dtype, shape});
    copy(target, whole);
    task.target = *reshaped(whole, rows);
    push(task);
    copy(whole, target);
  }
}

bool Planner::written_in_place(const View& from, const View& target) const {
  if (from.buffer == target.buffer) return same(from, target);
  const isa::Buffer& buffer = p_.buffers[target.buffer];
  if (buffer.alias != from.buffer) return false;
  View moved = from;
  moved.buffer = target.buffer;
  return same(moved, target);
}

void Planner::concatenate(const Node& node, const View& target) {
  int64_t at = 0;
  const int64_t dim = node.dims[0];
  for (ValueId operand : node.operands) {
    const Shape& shape = g_.type(operand).shape;
    if (graph::elements(shape) == 0) continue;
    std::vector<int64_t> starts(shape.size(), 0), limits = target.shape;
    starts[dim] = at;
    limits[dim] = at + shape[dim];
    at += shape[dim];
    const View part = sliced(target, starts, limits, {});
    if (auto from = view_of(operand, false))
      copy(*from, part);
    else
      compute(operand, part);
  }
}

void Planner::pad(const Node& node, const View& target) {
  const Node& value = g_.nodes[node.operands[1]];
  Fused f;
  f.sizes = target.shape;
  if (value.op == Op::constant || value.op == Op::scalar) {
    FusedValue v;
    v.kind = value.op == Op::constant ? FusedValue::Kind::constant : FusedValue::Kind::scalar;
    v.dtype = value.type.dtype;
    v.real = value.real;
    v.integer = value.integer;
    v.argument = static_cast<int>(value.index);
    f.values.push_back(v);
    f.outputs.push_back({0, target.buffer, target.offset, target.strides});
    push(std::move(f));
  } else {
    copy(broadcast(*view_of(node.operands[1], true), target.shape, {}), target);
  }
  const Shape& shape = g_.type(node.operands[0]).shape;
  if (graph::elements(shape) == 0) return;
  std::vector<int64_t> limits, steps;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t step = 1 + (node.strides.empty() ? 0 : node.strides[d]);
    steps.push_back(step);
    limits.push_back(node.starts[d] + (shape[d] - 1) * step + 1);
    if (node.starts[d] < 0 || node.limits[d] < 0) throw Unsupported("negative padding");
  }
  const View inside = sliced(target, node.starts, limits, steps);
  if (auto from = view_of(node.operands[0], false))
    copy(*from, inside);
  else
    compute(node.operands[0], inside);
}

void Planner::scan(const Node& node, const View& target) {
  Scan task;
  task.op = node.op;
  std::vector<int64_t> last;
  for (int64_t d = 0; d < static_cast<int64_t>(target.shape.size()); ++d)
    if (d != node.dims[0]) last.push_back(d);
  last.push_back(node.dims[0]);
  task.in = transposed(*view_of(node.operands[0], true), last);
  task.out = transposed(target, last);
  push(task);
}

void Planner::top_k(ValueId id, const View& target) {
  const Node& node = g_.nodes[id];
  // Both results come from one task: the values' node is operand 0 of the positions' node.
  const ValueId first = node.index == 1 ? node.operands[0] : id;
  ValueId second = -1;
  for (ValueId k = 0; k < static_cast<ValueId>(g_.nodes.size()); ++k)
    if (g_.nodes[k].op == node.op && g_.nodes[k].index == 1 && g_.nodes[k].operands[0] == first) second = k;
  TopK task;
  const Node& chosen = g_.nodes[first];
  task.in = *view_of(chosen.operands[0], true);
  std::vector<int64_t> last;
  const int64_t rank = static_cast<int64_t>(task.in.shape.size());
  const int64_t dim = chosen.op == Op::sort ? chosen.dims[0] : rank - 1;
  for (int64_t d = 0; d < rank; ++d)
    if (d != dim) last.push_back(d);
  last.push_back(dim);
  task.in = transposed(task.in, last);
  task.k = chosen.op == Op::sort ? task.in.shape.back() : chosen.integer;
  task.descending = chosen.op == Op::top_k || (chosen.integer & 1) != 0;
  if (task.k * task.in.shape.back() > kMostSelectionSteps)
    throw Unsupported(fmt::format("{} of the {} best of {}: selection takes a pass over the row for each",
                                  graph::name_of(chosen.op), task.k, task.in.shape.back()));
  auto place = [&](ValueId v) {
    if (v == id) return target;
    const View view = destinations_[v] ? *destinations_[v] : scratch(g_.type(v));
    views_[v] = view;
    return view;
  };
  task.values = transposed(place(first), last);
  task.positions = transposed(second >= 0 ? place(second) : scratch({DType::i64, g_.type(first).shape}), last);
  push(task);
}

}  // namespace opentrn::compiler
