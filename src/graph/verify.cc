#include <fmt/format.h>

#include "base/error.h"
#include "graph/infer.h"

namespace opentrn::graph {
namespace {

void verify_result(const Graph& graph, size_t i) {
  const Result& result = graph.results[i];
  auto fail = [&](const std::string& rule) { throw UserError(fmt::format("graph '{}', result {}: {}", graph.name, i, rule)); };
  if (result.value < 0 || result.value >= static_cast<ValueId>(graph.nodes.size()))
    fail(fmt::format("value %{} does not exist", result.value));
  const Type& type = graph.type(result.value);
  if (result.layout.strides.size() != type.shape.size())
    fail(fmt::format("{} strides for {}", result.layout.strides.size(), to_string(type)));
  for (int64_t stride : result.layout.strides)
    if (stride < 0) fail(fmt::format("stride {}; strides are not negative", stride));
  if (result.layout.offset < 0) fail(fmt::format("offset {} is negative", result.layout.offset));
  if (result.alias < -1 || result.alias >= static_cast<int32_t>(graph.parameters.size()))
    fail(fmt::format("alias {} of {} parameters", result.alias, graph.parameters.size()));
  if (result.alias < 0) return;
  const Parameter& parameter = graph.parameters[result.alias];
  if (!(parameter.type == type) || !(parameter.layout == result.layout))
    fail(fmt::format("overwrites parameter {} of type {}: type and layout must be the same, got {}", result.alias,
                     to_string(parameter.type), to_string(type)));
}

}  // namespace

void verify(const Graph& graph) {
  // infer() sees only what comes before a node, so that an operand defined later is an error.
  Graph before;
  before.parameters = graph.parameters;
  before.scalars = graph.scalars;
  before.nodes.reserve(graph.nodes.size());
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    auto where = [&] { return fmt::format("graph '{}', node %{}: ", graph.name, id); };
    Type type;
    try {
      type = infer(before, node);
    } catch (const UserError& error) {
      throw UserError(where() + error.what());
    }
    if (!(type == node.type))
      throw UserError(where() + fmt::format("{} gives {}, not {}", name_of(node.op), to_string(type), to_string(node.type)));
    before.nodes.push_back(node);
  }
  for (size_t i = 0; i < graph.results.size(); ++i) verify_result(graph, i);
}

}  // namespace opentrn::graph
