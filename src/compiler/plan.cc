#include "compiler/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::compiler {
namespace {

using graph::Graph;
using graph::Node;
using graph::Op;
using graph::Shape;
using graph::ValueId;
using Map = std::vector<int>;  // iteration dimension of each dimension of a value, -1 for a dimension of one element

// Values in one fused kernel; more are cut into several.
constexpr size_t kMostValues = 72;

bool is_reduction(Op op) { return op >= Op::reduce_sum && op <= Op::argmin; }
bool is_elementwise(Op op) {
  return (op >= Op::neg && op <= Op::clamp && op != Op::bitcast) || op == Op::rounded;
}

// Why an expression cannot join the kernel that is open.
struct CannotJoin {};

// A fused kernel that is being put together.
struct Group {
  Fused fused;
  std::map<std::pair<ValueId, Map>, int> memo;
  std::set<int> written;  // buffers
};

class Planner {
 public:
  Planner(const Graph& graph, isa::Program& program, const std::set<size_t>& staged)
      : g_(graph), p_(program), staged_(staged), views_(graph.nodes.size()), destinations_(graph.nodes.size()) {}

  std::vector<Task> run() {
    make_buffers();
    count_uses();
    choose_destinations();
    for (size_t r = 0; r < g_.results.size(); ++r) result(r);
    for (const auto& [from, to] : copies_) copy(from, to);
    flush();
    return std::move(tasks_);
  }


 private:
  // ---- buffers --------------------------------------------------------------------------------------------------
  static int64_t extent_bytes(const graph::Type& type, const graph::Layout& layout) {
    int64_t last = layout.offset;
    for (size_t d = 0; d < type.shape.size(); ++d) {
      if (type.shape[d] == 0) return 0;
      last += (type.shape[d] - 1) * layout.strides[d];
    }
    return (last + 1) * size_of(type.dtype);
  }

  void make_buffers() {
    for (const graph::Parameter& parameter : g_.parameters)
      p_.buffers.push_back({isa::Buffer::Kind::input, parameter.name, extent_bytes(parameter.type, parameter.layout), -1, {}});
    for (size_t r = 0; r < g_.results.size(); ++r) {
      const graph::Result& result = g_.results[r];
      p_.buffers.push_back({isa::Buffer::Kind::output, fmt::format("out{}", r),
                            extent_bytes(g_.type(result.value), result.layout), result.alias, {}});
    }
    for (const graph::ScalarParameter& scalar : g_.scalars) p_.scalars.push_back({scalar.name, scalar.dtype});
    for (ValueId id = 0; id < static_cast<ValueId>(g_.nodes.size()); ++id)
      if (g_.nodes[id].op == Op::parameter) {
        const graph::Parameter& parameter = g_.parameters[g_.nodes[id].index];
        views_[id] = View{static_cast<int>(g_.nodes[id].index), parameter.type.dtype, parameter.layout.offset,
                          parameter.type.shape, parameter.layout.strides};
      }
  }

  View result_view(size_t r) const {
    const graph::Result& result = g_.results[r];
    const graph::Type& type = g_.type(result.value);
    return {static_cast<int>(g_.parameters.size() + r), type.dtype, result.layout.offset, type.shape, result.layout.strides};
  }

  View scratch(const graph::Type& type) {
    p_.buffers.push_back({isa::Buffer::Kind::scratch, fmt::format("tmp{}", p_.buffers.size()),
                          std::max<int64_t>(1, graph::elements(type.shape)) * size_of(type.dtype), -1, {}});
    return {static_cast<int>(p_.buffers.size()) - 1, type.dtype, 0, type.shape, graph::row_major(type.shape)};
  }

  void count_uses() {
    uses_.assign(g_.nodes.size(), 0);
    for (const Node& node : g_.nodes)
      for (ValueId operand : node.operands) ++uses_[operand];
  }

  // A value that is a result is computed into the result's memory; through reshapes and transposes, too.
  void choose_destinations() {
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

  void result(size_t r) {
    const ValueId id = g_.results[r].value;
    if (graph::elements(g_.type(id).shape) == 0) return;
    const View target = result_view(r);
    if (staged_.count(r)) {
      View from = scratch(g_.type(id));
      if (auto existing = view_of(id, false)) copy(*existing, from);
      else compute(id, from);
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

  static bool same(const View& a, const View& b) {
    if (a.buffer != b.buffer || a.offset != b.offset || a.dtype != b.dtype) return false;
    for (size_t d = 0; d < a.shape.size(); ++d)
      if (a.shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
    return a.shape == b.shape;
  }

  // ---- views ----------------------------------------------------------------------------------------------------
  // The value as a view of HBM. Without `force` only if nothing has to be computed for it.
  std::optional<View> view_of(ValueId id, bool force) {
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

  View materialise(ValueId id) {
    if (views_[id]) return *views_[id];
    const View target = destinations_[id] ? *destinations_[id] : scratch(g_.type(id));
    compute(id, target);
    views_[id] = target;
    return target;
  }

  View contiguous(const View& view) {
    const auto strides = graph::row_major(view.shape);
    bool already = true;
    for (size_t d = 0; d < view.shape.size(); ++d) already &= view.shape[d] == 1 || view.strides[d] == strides[d];
    if (already) return view;
    View whole = scratch({view.dtype, view.shape});
    copy(view, whole);
    return whole;
  }

  View reshape_view(const View& view, const Shape& shape) {
    if (auto direct = reshaped(view, shape)) return *direct;
    return *reshaped(contiguous(view), shape);
  }

  // ---- tasks ----------------------------------------------------------------------------------------------------
  void flush() {
    if (open_) {
      tasks_.push_back(std::move(open_->fused));
      open_.reset();
    }
  }

  void push(Task task) {
    flush();
    tasks_.push_back(std::move(task));
  }

  // Computes a value into `target`.
  void compute(ValueId id, const View& target) {
    if (graph::elements(g_.type(id).shape) == 0) return;
    dispatch(id, target);
    if (!views_[id]) views_[id] = target;
  }

  void dispatch(ValueId id, const View& target) {
    const Node& node = g_.nodes[id];
    switch (node.op) {
      case Op::dot_general: return dot(node, target);
      case Op::gather: return gather(node, target);
      case Op::scatter: return scatter(node, target);
      case Op::concatenate: return concatenate(node, target);
      case Op::pad: return pad(node, target);
      case Op::cumulative_sum: case Op::cumulative_prod: case Op::cumulative_max: case Op::cumulative_min:
        return scan(node, target);
      case Op::top_k: case Op::sort: return top_k(id, target);
      case Op::gather_elements: case Op::gather_nd: case Op::scatter_elements: case Op::scatter_nd:
        throw Unsupported(fmt::format("operation {} on {}", graph::name_of(node.op), name_of(node.type.dtype)));
      case Op::slice: case Op::reverse: case Op::reshape: {
        // Views of something computed, unless the operand is one already.
        const View from = *view_of(id, true);
        if (!same(from, target)) copy(from, target);
        return;
      }
      default: return fuse(id, target);
    }
  }

  void copy(const View& from, const View& target) {
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

  static uint64_t varies_of(const std::vector<int64_t>& strides, const std::vector<int64_t>& sizes) {
    uint64_t mask = 0;
    for (size_t d = 0; d < sizes.size(); ++d)
      if (strides[d] != 0 && sizes[d] > 1) mask |= uint64_t{1} << d;
    return mask;
  }

  // ---- fused kernels ----------------------------------------------------------------------------------------------
  void fuse(ValueId id, const View& target) {
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

  // Materialises what must lie in HBM before the kernel of `id` starts, so that no task has to be pushed while it is
  // being built.
  void prepare(ValueId id) {
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

  // Operations that computing `id` takes, down to what lies in HBM.
  void cone(ValueId id, std::set<ValueId>& nodes) {
    if (nodes.size() > kMostValues || nodes.count(id) || view_of(id, false)) return;
    for (ValueId operand : g_.nodes[id].operands) cone(operand, nodes);
    nodes.insert(id);
  }

  // A value to place in HBM because the expression is too large for one kernel, -1 if it is not.
  ValueId cut_of(ValueId id) {
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

  bool join(Group& open, ValueId id, const View& target) {
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

  static std::vector<Map> candidate_maps(const Fused& fused, const Shape& shape) {
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

  void add_output(Group& group, int value, const Map& map, const View& target) {
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

  int add(Group& group, FusedValue value) {
    Fused& f = group.fused;
    f.values.push_back(std::move(value));
    return static_cast<int>(f.values.size()) - 1;
  }

  // Adds a dimension to the iteration space; everything so far does not vary over it.
  int add_dimension(Group& group, int64_t size) {
    Fused& f = group.fused;
    f.sizes.push_back(size);
    if (f.sizes.size() > 60) throw Unsupported("a fused kernel of more than 60 dimensions");
    for (FusedValue& v : f.values)
      if (!v.strides.empty()) v.strides.push_back(0);
    for (FusedOutput& o : f.outputs) o.strides.push_back(0);
    return static_cast<int>(f.sizes.size()) - 1;
  }

  [[noreturn]] void need(ValueId id) {
    missing_ = id;
    throw CannotJoin();
  }

  int build(Group& group, ValueId id, const Map& map) {
    auto known = group.memo.find({id, map});
    if (known != group.memo.end()) return known->second;
    const int value = build_new(group, id, map);
    group.memo[{id, map}] = value;
    return value;
  }

  int leaf(Group& group, const View& view, const Map& map, int32_t origin) {
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

  int build_new(Group& group, ValueId id, const Map& map) {
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
      case Op::slice: case Op::reverse: need(node.operands[0]);
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

  // Scalars meet tensors in element-wise operations only through broadcasts, but select and clamp take 0-d operands.
  Map map_for(ValueId operand, const Map& map) const {
    return g_.type(operand).shape.empty() ? Map() : map;
  }

  int reduction(Group& group, ValueId id, const Map& map) {
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
          if (!taken && f.sizes[d] == size && (dims.empty() || static_cast<int>(d) > dims.back())) found = static_cast<int>(d);
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

  // ---- other tasks --------------------------------------------------------------------------------------------------
  void dot(const Node& node, const View& target) {
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

  void fill_zero(const View& target) {
    Fused f;
    f.sizes = target.shape;
    FusedValue v;
    v.kind = FusedValue::Kind::constant;
    v.dtype = target.dtype;
    f.values.push_back(v);
    f.outputs.push_back({0, target.buffer, target.offset, target.strides});
    push(std::move(f));
  }

  // [before dim, dim, after dim] as three dimensions.
  static Shape three(const Shape& shape, int64_t dim) {
    int64_t outer = 1, inner = 1;
    for (int64_t d = 0; d < dim; ++d) outer *= shape[d];
    for (size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
    return {outer, shape[dim], inner};
  }

  void gather(const Node& node, const View& target) {
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

  void scatter(const Node& node, const View& target) {
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
      if (from) copy(*from, target);
      else compute(node.operands[0], target);
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

  bool written_in_place(const View& from, const View& target) const {
    if (from.buffer == target.buffer) return same(from, target);
    const isa::Buffer& buffer = p_.buffers[target.buffer];
    if (buffer.alias != from.buffer) return false;
    View moved = from;
    moved.buffer = target.buffer;
    return same(moved, target);
  }

  void concatenate(const Node& node, const View& target) {
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
      if (auto from = view_of(operand, false)) copy(*from, part);
      else compute(operand, part);
    }
  }

  void pad(const Node& node, const View& target) {
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
    if (auto from = view_of(node.operands[0], false)) copy(*from, inside);
    else compute(node.operands[0], inside);
  }

  void scan(const Node& node, const View& target) {
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

  void top_k(ValueId id, const View& target) {
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

  const Graph& g_;
  isa::Program& p_;
  const std::set<size_t>& staged_;
  std::vector<std::optional<View>> views_, destinations_;
  std::vector<int> uses_;
  std::vector<Task> tasks_;
  std::optional<Group> open_;
  std::vector<std::pair<View, View>> copies_;
  ValueId missing_ = -1;
};

// Calls f(buffer, strides, offset, written) for every access of a task.
template <typename F>
void for_accesses(const Task& task, F f) {
  if (const auto* fused = std::get_if<Fused>(&task)) {
    for (const FusedValue& v : fused->values)
      if (v.kind == FusedValue::Kind::view) f(v.buffer, &v.strides, v.offset, false);
    for (const FusedOutput& o : fused->outputs) f(o.buffer, &o.strides, o.offset, true);
    return;
  }
  auto each = [&](std::initializer_list<const View*> reads, std::initializer_list<const View*> writes) {
    for (const View* v : reads) f(v->buffer, static_cast<const std::vector<int64_t>*>(nullptr), v->offset, false);
    for (const View* v : writes) f(v->buffer, static_cast<const std::vector<int64_t>*>(nullptr), v->offset, true);
  };
  if (const auto* t = std::get_if<Matmul>(&task)) each({&t->lhs, &t->rhs}, {&t->out});
  if (const auto* t = std::get_if<Gather>(&task)) each({&t->source, &t->indices}, {&t->out});
  if (const auto* t = std::get_if<Scatter>(&task)) each({&t->indices, &t->updates}, {&t->target});
  if (const auto* t = std::get_if<Scan>(&task)) each({&t->in}, {&t->out});
  if (const auto* t = std::get_if<TopK>(&task)) each({&t->in}, {&t->values, &t->positions});
}

bool depends(const Fused& fused, int value, int buffer, int64_t offset, const std::vector<int64_t>& strides) {
  const FusedValue& v = fused.values[value];
  if (v.kind == FusedValue::Kind::view) return v.buffer == buffer && v.offset == offset && v.strides == strides;
  return std::any_of(v.operands.begin(), v.operands.end(),
                     [&](int o) { return depends(fused, o, buffer, offset, strides); });
}

// Results written in place whose old values are still needed: by a later task, or by the same task elsewhere than at
// the element it overwrites.
std::set<size_t> conflicts(const std::vector<Task>& tasks, const isa::Program& program, const Graph& graph) {
  std::set<size_t> found;
  for (size_t r = 0; r < graph.results.size(); ++r) {
    const int target = static_cast<int>(graph.parameters.size() + r);
    const int source = program.buffers[target].alias;
    if (source < 0) continue;
    size_t first_write = tasks.size();
    for (size_t t = 0; t < tasks.size(); ++t) {
      bool writes = false;
      for_accesses(tasks[t], [&](int buffer, auto*, int64_t, bool written) { writes |= written && buffer == target; });
      if (writes && first_write == tasks.size()) first_write = t;
      if (t < first_write) continue;
      for_accesses(tasks[t], [&](int buffer, const std::vector<int64_t>* strides, int64_t offset, bool written) {
        if (written || buffer != source) return;
        if (t > first_write || !strides) {
          found.insert(r);
          return;
        }
        // The store comes after the load only if it needs the loaded value.
        const Fused& fused = std::get<Fused>(tasks[t]);
        for (const FusedOutput& o : fused.outputs)
          if (o.buffer == target &&
              (o.offset != offset || o.strides != *strides || !depends(fused, o.value, source, offset, *strides)))
            found.insert(r);
      });
    }
  }
  return found;
}

}  // namespace

std::vector<Task> plan(const graph::Graph& graph, isa::Program& program) {
  std::set<size_t> staged;
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
