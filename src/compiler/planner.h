// Splits a graph into tasks: what the parts of the planning share.
//   plan.cc            buffers, views of values, results and their memory
//   plan_fused.cc      which operations go into one fused kernel
//   plan_tasks.cc      the tasks of all other operations
//   plan_conflicts.cc  results written in place whose old values are still needed
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/plan.h"

namespace opentrn::compiler {

using graph::Graph;
using graph::Node;
using graph::Op;
using graph::Shape;
using graph::ValueId;
using Map = std::vector<int>;  // iteration dimension of each dimension of a value, -1 for a dimension of one element

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

  std::vector<Task> run();

 private:
  // ---- buffers --------------------------------------------------------------------------------------------------
  static int64_t extent_bytes(const graph::Type& type, const graph::Layout& layout);

  void make_buffers();

  View result_view(size_t r) const;

  View scratch(const graph::Type& type);

  void count_uses();

  // A value that is a result is computed into the result's memory; through reshapes and transposes, too.
  void choose_destinations();

  void result(size_t r);

  static bool same(const View& a, const View& b);

  // ---- views ----------------------------------------------------------------------------------------------------
  // The value as a view of HBM. Without `force` only if nothing has to be computed for it.
  std::optional<View> view_of(ValueId id, bool force);

  View materialise(ValueId id);

  View contiguous(const View& view);

  View reshape_view(const View& view, const Shape& shape);

  // ---- tasks ----------------------------------------------------------------------------------------------------
  void flush();

  void push(Task task);

  // Computes a value into `target`.
  void compute(ValueId id, const View& target);

  void dispatch(ValueId id, const View& target);

  void copy(const View& from, const View& target);

  static uint64_t varies_of(const std::vector<int64_t>& strides, const std::vector<int64_t>& sizes);

  // ---- fused kernels ----------------------------------------------------------------------------------------------
  void fuse(ValueId id, const View& target);

  // Materialises what must lie in HBM before the kernel of `id` starts, so that no task has to be pushed while it is
  // being built.
  void prepare(ValueId id);

  // Operations that computing `id` takes, down to what lies in HBM.
  void cone(ValueId id, std::set<ValueId>& nodes);

  // A value to place in HBM because the expression is too large for one kernel, -1 if it is not.
  ValueId cut_of(ValueId id);

  bool join(Group& open, ValueId id, const View& target);

  static std::vector<Map> candidate_maps(const Fused& fused, const Shape& shape);

  void add_output(Group& group, int value, const Map& map, const View& target);

  int add(Group& group, FusedValue value);

  // Adds a dimension to the iteration space; everything so far does not vary over it.
  int add_dimension(Group& group, int64_t size);

  [[noreturn]] void need(ValueId id);

  int build(Group& group, ValueId id, const Map& map);

  int leaf(Group& group, const View& view, const Map& map, int32_t origin);

  int build_new(Group& group, ValueId id, const Map& map);

  // Scalars meet tensors in element-wise operations only through broadcasts, but select and clamp take 0-d operands.
  Map map_for(ValueId operand, const Map& map) const { return g_.type(operand).shape.empty() ? Map() : map; }

  int reduction(Group& group, ValueId id, const Map& map);

  // ---- other tasks --------------------------------------------------------------------------------------------------
  void dot(const Node& node, const View& target);

  void fill_zero(const View& target);

  // [before dim, dim, after dim] as three dimensions.
  static Shape three(const Shape& shape, int64_t dim);

  void gather(const Node& node, const View& target);

  void scatter(const Node& node, const View& target);

  bool written_in_place(const View& from, const View& target) const;

  void concatenate(const Node& node, const View& target);

  void pad(const Node& node, const View& target);

  void scan(const Node& node, const View& target);

  void top_k(ValueId id, const View& target);

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

// Results written in place whose old values are still needed: by a later task, or by the same task elsewhere than at
// the element it overwrites.
std::set<size_t> conflicts(const std::vector<Task>& tasks, const isa::Program& program, const Graph& graph);

}  // namespace opentrn::compiler
