#include "compiler/planner.h"

#include <algorithm>

namespace opentrn::compiler {

namespace {

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

}  // namespace

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

}  // namespace opentrn::compiler
