#include "compiler/planner.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::compiler {

namespace {

// Values in one fused kernel; more are cut into several.
constexpr size_t kMostValues = 72;

bool is_reduction(Op op) { return op >= Op::reduce_sum && op <= Op::argmin; }
bool is_elementwise(Op op) { return (op >= Op::neg && op <= Op::clamp && op != Op::bitcast) || op == Op::rounded; }

}  // namespace

uint64_t Planner::varies_of(const std::vector<int64_t>& strides, const std::vector<int64_t>& sizes) {
  uint64_t mask = 0;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (strides[d] != 0 && sizes[d] > 1) mask |= uint64_t{1} << d;
  return mask;
}

void Planner::fuse(ValueId id, const View& target) {
  prepare(id);
  if (open_ && join(*open_, id, target)) return;
  flush();
  Group group;
  group.fused.sizes = g_.type(id).shape;
  Map map(group.fused.sizes.size());
  std::iota(map.begin(), map.end(), 0);
  for (size_t d = 0; d < map.size(); ++d)
    if (group.fused.sizes[d] == 1) map[d] = -1;
  const int value = build(group, id, map);
  add_output(group, value, map, target);
  open_ = std::move(group);
}

void Planner::prepare(ValueId id) {
  for (ValueId cut = cut_of(id); cut >= 0; cut = cut_of(id)) view_of(cut, true);
  Group trial;
  for (;;) {
    trial = Group();
    trial.fused.sizes = g_.type(id).shape;
    Map map(trial.fused.sizes.size());
    std::iota(map.begin(), map.end(), 0);
    for (size_t d = 0; d < map.size(); ++d)
      if (trial.fused.sizes[d] == 1) map[d] = -1;
    missing_ = -1;
    try {
      build(trial, id, map);
      return;
    } catch (const CannotJoin&) {
      if (missing_ < 0 || missing_ == id) throw InternalError("plan: a kernel cannot be split");
    }
    const ValueId need = missing_;
    if (!view_of(need, true)) throw InternalError("plan: a value could not be placed in HBM");
  }
}

void Planner::cone(ValueId id, std::set<ValueId>& nodes) {
  if (nodes.size() > kMostValues || nodes.count(id) || view_of(id, false)) return;
  for (ValueId operand : g_.nodes[id].operands) cone(operand, nodes);
  nodes.insert(id);
}

ValueId Planner::cut_of(ValueId id) {
  std::set<ValueId> nodes;
  cone(id, nodes);
  if (nodes.size() <= kMostValues) return -1;
  // Node ids are topological: the first value with a large enough cone of its own.
  for (ValueId node : nodes) {
    std::set<ValueId> own;
    cone(node, own);
    if (own.size() > kMostValues / 2 && is_elementwise(g_.nodes[node].op)) return node;
  }
  return -1;
}

bool Planner::join(Group& open, ValueId id, const View& target) {
  const Shape& shape = g_.type(id).shape;
  for (const Map& map : candidate_maps(open.fused, shape)) {
    Group trial = open;
    missing_ = -1;
    try {
      const int value = build(trial, id, map);
      if (trial.fused.values.size() > kMostValues || trial.fused.sizes.size() > open.fused.sizes.size()) continue;
      // A kept dimension that the output does not have would be written many times.
      for (size_t d = 0; d < trial.fused.sizes.size(); ++d) {
        const bool mapped = std::find(map.begin(), map.end(), static_cast<int>(d)) != map.end();
        if (!mapped && !(trial.fused.reduced >> d & 1) && trial.fused.sizes[d] > 1) throw CannotJoin();
      }
      // Reductions that arrive must not take away dimensions that earlier outputs of the kernel keep.
      if (trial.fused.reduced != open.fused.reduced && open.fused.reduced != 0) throw CannotJoin();
      add_output(trial, value, map, target);
      open = std::move(trial);
      return true;
    } catch (const CannotJoin&) {
    }
  }
  return false;
}

std::vector<Map> Planner::candidate_maps(const Fused& fused, const Shape& shape) {
  std::vector<Map> maps;
  Shape kept;
  Map kept_dims;
  for (size_t d = 0; d < fused.sizes.size(); ++d)
    if (!(fused.reduced >> d & 1) && fused.sizes[d] > 1) {
      kept.push_back(fused.sizes[d]);
      kept_dims.push_back(static_cast<int>(d));
    }
  Shape all;
  Map all_dims;
  for (size_t d = 0; d < fused.sizes.size(); ++d)
    if (fused.sizes[d] > 1) {
      all.push_back(fused.sizes[d]);
      all_dims.push_back(static_cast<int>(d));
    }
  auto match = [&](const Shape& sizes, const Map& dims) {
    Map map;
    size_t k = 0;
    for (int64_t size : shape) {
      if (size == 1) {
        map.push_back(-1);
        continue;
      }
      if (k == sizes.size() || sizes[k] != size) return;
      map.push_back(dims[k++]);
    }
    if (k == sizes.size()) maps.push_back(map);
  };
  match(all, all_dims);
  if (fused.reduced) match(kept, kept_dims);
  return maps;
}

void Planner::add_output(Group& group, int value, const Map& map, const View& target) {
  FusedOutput output;
  output.value = value;
  output.buffer = target.buffer;
  output.offset = target.offset;
  output.strides.assign(group.fused.sizes.size(), 0);
  for (size_t d = 0; d < map.size(); ++d)
    if (map[d] >= 0) output.strides[map[d]] = target.strides[d];
  group.fused.outputs.push_back(output);
  group.written.insert(target.buffer);
}

int Planner::add(Group& group, FusedValue value) {
  Fused& f = group.fused;
  f.values.push_back(std::move(value));
  return static_cast<int>(f.values.size()) - 1;
}

int Planner::add_dimension(Group& group, int64_t size) {
  Fused& f = group.fused;
  f.sizes.push_back(size);
  if (f.sizes.size() > 60) throw Unsupported("a fused kernel of more than 60 dimensions");
  for (FusedValue& v : f.values)
    if (!v.strides.empty()) v.strides.push_back(0);
  for (FusedOutput& o : f.outputs) o.strides.push_back(0);
  return static_cast<int>(f.sizes.size()) - 1;
}

void Planner::need(ValueId id) {
  missing_ = id;
  throw CannotJoin();
}

int Planner::build(Group& group, ValueId id, const Map& map) {
  auto known = group.memo.find({id, map});
  if (known != group.memo.end()) return known->second;
  const int value = build_new(group, id, map);
  group.memo[{id, map}] = value;
  return value;
}

int Planner::leaf(Group& group, const View& view, const Map& map, int32_t origin) {
  if (group.written.count(view.buffer)) throw CannotJoin();
  FusedValue v;
  v.kind = FusedValue::Kind::view;
  v.dtype = view.dtype;
  v.buffer = view.buffer;
  v.offset = view.offset;
  v.strides.assign(group.fused.sizes.size(), 0);
  for (size_t d = 0; d < map.size(); ++d)
    if (map[d] >= 0) v.strides[map[d]] += view.strides[d];
  v.varies = varies_of(v.strides, group.fused.sizes);
  v.origin = origin;
  // The same view twice is one load.
  for (size_t k = 0; k < group.fused.values.size(); ++k) {
    const FusedValue& other = group.fused.values[k];
    if (other.kind == v.kind && other.buffer == v.buffer && other.offset == v.offset && other.dtype == v.dtype &&
        other.strides == v.strides)
      return static_cast<int>(k);
  }
  return add(group, v);
}

int Planner::build_new(Group& group, ValueId id, const Map& map) {
  const Node& node = g_.nodes[id];
  if (auto view = view_of(id, false)) return leaf(group, *view, map, node.origin);
  FusedValue v;
  v.op = node.op;
  v.dtype = node.type.dtype;
  v.origin = node.origin;
  switch (node.op) {
    case Op::scalar:
      v.kind = FusedValue::Kind::scalar;
      v.argument = static_cast<int>(node.index);
      return add(group, v);
    case Op::constant:
      v.kind = FusedValue::Kind::constant;
      v.real = node.real;
      v.integer = node.integer;
      return add(group, v);
    case Op::iota: {
      v.kind = FusedValue::Kind::iota;
      v.strides.assign(group.fused.sizes.size(), 0);
      if (map[node.dims[0]] >= 0) v.strides[map[node.dims[0]]] = 1;
      v.varies = varies_of(v.strides, group.fused.sizes);
      return add(group, v);
    }
    case Op::random_bits: {
      for (ValueId operand : node.operands)
        if (g_.nodes[operand].op != Op::scalar) throw Unsupported("random bits from a computed seed");
      v.kind = FusedValue::Kind::random;
      v.argument = static_cast<int>(g_.nodes[node.operands[0]].index);
      v.second_argument = static_cast<int>(g_.nodes[node.operands[1]].index);
      v.strides.assign(group.fused.sizes.size(), 0);
      const auto strides = graph::row_major(node.type.shape);
      for (size_t d = 0; d < map.size(); ++d)
        if (map[d] >= 0) v.strides[map[d]] = strides[d];
      v.varies = varies_of(v.strides, group.fused.sizes);
      return add(group, v);
    }
    case Op::broadcast_in_dim: {
      const Node& operand = g_.nodes[node.operands[0]];
      Map inner(node.dims.size(), -1);
      for (size_t d = 0; d < inner.size(); ++d)
        if (operand.type.shape[d] != 1) inner[d] = map[node.dims[d]];
      return build(group, node.operands[0], inner);
    }
    case Op::transpose: {
      Map inner(map.size());
      for (size_t d = 0; d < map.size(); ++d) inner[node.dims[d]] = map[d];
      return build(group, node.operands[0], inner);
    }
    case Op::reshape: {
      // Dimensions of one element come and go.
      const Shape& from = g_.type(node.operands[0]).shape;
      Shape a, b;
      Map dims;
      for (size_t d = 0; d < node.type.shape.size(); ++d)
        if (node.type.shape[d] != 1) {
          a.push_back(node.type.shape[d]);
          dims.push_back(map[d]);
        }
      for (int64_t size : from)
        if (size != 1) b.push_back(size);
      if (a != b) need(node.operands[0]);
      Map inner;
      size_t k = 0;
      for (int64_t size : from) inner.push_back(size == 1 ? -1 : dims[k++]);
      return build(group, node.operands[0], inner);
    }
    case Op::slice:
    case Op::reverse: need(node.operands[0]);
    default: break;
  }
  if (is_reduction(node.op)) return reduction(group, id, map);
  if (node.op == Op::bitcast || is_elementwise(node.op)) {
    for (ValueId operand : node.operands) {
      v.operands.push_back(build(group, operand, map_for(operand, map)));
      v.varies |= group.fused.values[v.operands.back()].varies;
    }
    return add(group, v);
  }
  need(id);
}

int Planner::reduction(Group& group, ValueId id, const Map& map) {
  const Node& node = g_.nodes[id];
  const Shape& shape = g_.type(node.operands[0]).shape;
  std::vector<bool> gone(shape.size(), false);
  for (int64_t d : node.dims) gone[d] = true;
  Map inner(shape.size(), -1);
  size_t kept = 0;
  const bool keeps_rank = map.size() == shape.size();
  for (size_t d = 0; d < shape.size(); ++d) {
    if (gone[d]) {
      if (keeps_rank) ++kept;
      continue;
    }
    inner[d] = map[kept++];
  }
  Shape reduced_sizes;
  for (size_t d = 0; d < shape.size(); ++d)
    if (gone[d] && shape[d] != 1) reduced_sizes.push_back(shape[d]);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    // Nothing to reduce: the identity.
    FusedValue v;
    v.kind = FusedValue::Kind::constant;
    v.dtype = node.type.dtype;
    v.real = node.op == Op::reduce_prod || node.op == Op::reduce_and ? 1 : 0;
    v.integer = static_cast<int64_t>(v.real);
    return add(group, v);
  }
  Fused& f = group.fused;
  // Every reduction of a kernel reduces the same dimensions.
  Map dims;
  if (f.reduced) {
    for (size_t d = 0; d < f.sizes.size(); ++d)
      if (f.reduced >> d & 1) dims.push_back(static_cast<int>(d));
    Shape sizes;
    for (int d : dims) sizes.push_back(f.sizes[d]);
    if (sizes != reduced_sizes) need(id);
  } else {
    for (int64_t size : reduced_sizes) {
      int found = -1;
      for (size_t d = 0; d < f.sizes.size() && found < 0; ++d) {
        const bool taken = std::find(map.begin(), map.end(), static_cast<int>(d)) != map.end() ||
                           std::find(dims.begin(), dims.end(), static_cast<int>(d)) != dims.end();
        if (!taken && f.sizes[d] == size && (dims.empty() || static_cast<int>(d) > dims.back()))
          found = static_cast<int>(d);
      }
      dims.push_back(found >= 0 ? found : add_dimension(group, size));
    }
  }
  for (int d : inner)
    if (d >= 0 && (f.reduced >> d & 1)) need(id);
  for (int d : dims) {
    if (std::find(inner.begin(), inner.end(), d) != inner.end()) need(id);
    f.reduced |= uint64_t{1} << d;
  }
  size_t k = 0;
  for (size_t d = 0; d < shape.size(); ++d)
    if (gone[d] && shape[d] != 1) inner[d] = dims[k++];
  FusedValue v;
  v.op = node.op;
  v.dtype = node.type.dtype;
  v.origin = node.origin;
  if (dims.empty() && (node.op == Op::argmax || node.op == Op::argmin)) {
    v.kind = FusedValue::Kind::constant;  // the only position
    return add(group, v);
  }
  v.kind = dims.empty() ? FusedValue::Kind::op : FusedValue::Kind::reduce;
  v.operands.push_back(build(group, node.operands[0], inner));
  if (v.kind == FusedValue::Kind::op) {
    // One element per row: the value itself.
    v.op = Op::convert;
    v.varies = group.fused.values[v.operands[0]].varies;
    return add(group, v);
  }
  v.varies = group.fused.values[v.operands[0]].varies & ~group.fused.reduced;
  return add(group, v);
}

}  // namespace opentrn::compiler
