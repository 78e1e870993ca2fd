#include "compiler/planner.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::compiler {

std::vector<Task> Planner::run() {
  make_buffers();
  count_uses();
  choose_destinations();
  for (size_t r = 0; r < g_.results.size(); ++r) result(r);
  for (const auto& [from, to] : copies_) copy(from, to);
  flush();
  return std::move(tasks_);
}

int64_t Planner::extent_bytes(const graph::Type& type, const graph::Layout& layout) {
  int64_t last = layout.offset;
  for (size_t d = 0; d < type.shape.size(); ++d) {
    if (type.shape[d] == 0) return 0;
    last += (type.shape[d] - 1) * layout.strides[d];
  }
  return (last + 1) * size_of(type.dtype);
}

void Planner::make_buffers() {
  for (const graph::Parameter& parameter : g_.parameters)
    p_.buffers.push_back(
        {isa::Buffer::Kind::input, parameter.name, extent_bytes(parameter.type, parameter.layout), -1, {}});
  for (size_t r = 0; r < g_.results.size(); ++r) {
    const graph::Result& result = g_.results[r];
    p_.buffers.push_back({isa::Buffer::Kind::output,
                          fmt::format("out{}", r),
                          extent_bytes(g_.type(result.value), result.layout),
                          result.alias,
                          {}});
  }
  for (const graph::ScalarParameter& scalar : g_.scalars) p_.scalars.push_back({scalar.name, scalar.dtype});
  for (ValueId id = 0; id < static_cast<ValueId>(g_.nodes.size()); ++id)
    if (g_.nodes[id].op == Op::parameter) {
      const graph::Parameter& parameter = g_.parameters[g_.nodes[id].index];
      views_[id] = View{static_cast<int>(g_.nodes[id].index), parameter.type.dtype, parameter.layout.offset,
                        parameter.type.shape, parameter.layout.strides};
    }
}

View Planner::result_view(size_t r) const {
  const graph::Result& result = g_.results[r];
  const graph::Type& type = g_.type(result.value);
  return {static_cast<int>(g_.parameters.size() + r), type.dtype, result.layout.offset, type.shape,
          result.layout.strides};
}

View Planner::scratch(const graph::Type& type) {
  p_.buffers.push_back({isa::Buffer::Kind::scratch,
                        fmt::format("tmp{}", p_.buffers.size()),
                        std::max<int64_t>(1, graph::elements(type.shape)) * size_of(type.dtype),
                        -1,
                        {}});
  return {static_cast<int>(p_.buffers.size()) - 1, type.dtype, 0, type.shape, graph::row_major(type.shape)};
}

void Planner::count_uses() {
  uses_.assign(g_.nodes.size(), 0);
  for (const Node& node : g_.nodes)
    for (ValueId operand : node.operands) ++uses_[operand];
}

void Planner::choose_destinations() {
  for (size_t r = 0; r < g_.results.size(); ++r) {
    if (staged_.count(r)) continue;
    ValueId id = g_.results[r].value;
    View view = result_view(r);
    for (;;) {
      if (!destinations_[id]) destinations_[id] = view;
      const Node& node = g_.nodes[id];
      if (uses_[node.operands.empty() ? id : node.operands[0]] != 1) break;
      if (node.op == Op::reshape) {
        auto inner = reshaped(view, g_.type(node.operands[0]).shape);
        if (!inner) break;
        view = *inner;
      } else if (node.op == Op::transpose) {
        std::vector<int64_t> inverse(node.dims.size());
        for (size_t i = 0; i < inverse.size(); ++i) inverse[node.dims[i]] = static_cast<int64_t>(i);
        view = transposed(view, inverse);
      } else {
        break;
      }
      id = node.operands[0];
      if (g_.nodes[id].op == Op::parameter) break;
    }
  }
}

void Planner::result(size_t r) {
  const ValueId id = g_.results[r].value;
  if (graph::elements(g_.type(id).shape) == 0) return;
  const View target = result_view(r);
  if (staged_.count(r)) {
    View from = scratch(g_.type(id));
    if (auto existing = view_of(id, false))
      copy(*existing, from);
    else
      compute(id, from);
    copies_.push_back({from, target});
    return;
  }
  auto existing = view_of(id, false);
  if (!existing && destinations_[id] && destinations_[id]->buffer == target.buffer) existing = materialise(id);
  if (existing && same(*existing, target)) return;
  if (existing)
    copy(*existing, target);
  else
    compute(id, target);
}

bool Planner::same(const View& a, const View& b) {
  if (a.buffer != b.buffer || a.offset != b.offset || a.dtype != b.dtype) return false;
  for (size_t d = 0; d < a.shape.size(); ++d)
    if (a.shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
  return a.shape == b.shape;
}

std::optional<View> Planner::view_of(ValueId id, bool force) {
  if (views_[id]) return views_[id];
  const Node& node = g_.nodes[id];
  std::optional<View> view;
  switch (node.op) {
    case Op::reshape: {
      auto from = view_of(node.operands[0], force);
      if (from) view = reshaped(*from, node.type.shape);
      if (from && !view && force) {
        // No strides express it: make the operand contiguous first.
        View whole = scratch(g_.type(node.operands[0]));
        copy(*from, whole);
        view = reshaped(whole, node.type.shape);
      }
      break;
    }
    case Op::transpose:
      if (auto from = view_of(node.operands[0], force)) view = transposed(*from, node.dims);
      break;
    case Op::slice:
      if (auto from = view_of(node.operands[0], force)) view = sliced(*from, node.starts, node.limits, node.strides);
      break;
    case Op::broadcast_in_dim:
      if (auto from = view_of(node.operands[0], force)) view = broadcast(*from, node.type.shape, node.dims);
      break;
    case Op::reverse:
      if (auto from = view_of(node.operands[0], force)) view = reversed(*from, node.dims);
      break;
    case Op::bitcast:
      if (auto from = view_of(node.operands[0], force)) {
        view = *from;
        view->dtype = node.type.dtype;
      }
      break;
    default:
      if (force) return materialise(id);
      return std::nullopt;
  }
  if (view) views_[id] = view;
  return view;
}

View Planner::materialise(ValueId id) {
  if (views_[id]) return *views_[id];
  const View target = destinations_[id] ? *destinations_[id] : scratch(g_.type(id));
  compute(id, target);
  views_[id] = target;
  return target;
}

View Planner::contiguous(const View& view) {
  const auto strides = graph::row_major(view.shape);
  bool already = true;
  for (size_t d = 0; d < view.shape.size(); ++d) already &= view.shape[d] == 1 || view.strides[d] == strides[d];
  if (already) return view;
  View whole = scratch({view.dtype, view.shape});
  copy(view, whole);
  return whole;
}

View Planner::reshape_view(const View& view, const Shape& shape) {
  if (auto direct = reshaped(view, shape)) return *direct;
  return *reshaped(contiguous(view), shape);
}

namespace {

// Whether the result's memory has bytes between its elements that belong to something else.
bool has_gaps(const graph::Type& type, const graph::Layout& layout) {
  int64_t extent = 1;
  for (size_t d = 0; d < type.shape.size(); ++d) extent += (type.shape[d] - 1) * layout.strides[d];
  return extent != graph::elements(type.shape);
}

// Results in memory with gaps that several tasks write, or read again: computed densely first, then copied.
std::set<size_t> pieced_together(const Graph& graph) {
  std::vector<int> uses(graph.nodes.size(), 0);
  for (const Node& node : graph.nodes)
    for (ValueId operand : node.operands) ++uses[operand];
  for (const graph::Result& result : graph.results) ++uses[result.value];
  std::set<size_t> found;
  for (size_t r = 0; r < graph.results.size(); ++r) {
    const graph::Result& result = graph.results[r];
    if (result.alias >= 0 || !has_gaps(graph.type(result.value), result.layout)) continue;
    ValueId id = result.value;
    bool shared = uses[id] > 1;
    while (graph.nodes[id].op == Op::reshape || graph.nodes[id].op == Op::transpose) {
      id = graph.nodes[id].operands[0];
      shared |= uses[id] > 1;
    }
    const Op op = graph.nodes[id].op;
    if (shared || op == Op::concatenate || op == Op::pad || op == Op::scatter) found.insert(r);
  }
  return found;
}

}  // namespace

std::vector<Task> plan(const graph::Graph& graph, isa::Program& program) {
  std::set<size_t> staged = pieced_together(graph);
  for (;;) {
    isa::Program attempt = program;
    std::vector<Task> tasks = Planner(graph, attempt, staged).run();
    const std::set<size_t> found = conflicts(tasks, attempt, graph);
    const size_t before = staged.size();
    staged.insert(found.begin(), found.end());
    if (staged.size() == before) {
      program = std::move(attempt);
      return tasks;
    }
  }
}

}  // namespace opentrn::compiler
