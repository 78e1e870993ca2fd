// Runs the text of a graph on literal values: the notation of the graph layer's tests.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "graph/element.h"
#include "graph/evaluate.h"

namespace opentrn::graph {

using Values = std::vector<double>;

// Evaluates the graph on compact row-major inputs and returns its first result as numbers, row-major.
inline std::vector<Values> run_all(const Graph& graph, const std::vector<Values>& inputs, const Values& scalars = {}) {
  std::vector<std::vector<std::byte>> in, out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DType dtype = graph.parameters[i].type.dtype;
    in.emplace_back(inputs[i].size() * size_of(dtype));
    for (size_t j = 0; j < inputs[i].size(); ++j) store<double>(dtype, in[i].data(), static_cast<int64_t>(j), inputs[i][j]);
  }
  auto extent = [](const Type& type, const Layout& layout) {
    int64_t last = layout.offset;
    for (size_t d = 0; d < type.shape.size(); ++d) last += (type.shape[d] - 1) * layout.strides[d];
    return elements(type.shape) ? last + 1 : 0;
  };
  for (const Result& r : graph.results) {
    const Type& type = graph.type(r.value);
    out.emplace_back(extent(type, r.layout) * size_of(type.dtype));
  }
  std::vector<const std::byte*> parameters;
  std::vector<std::byte*> results;
  std::vector<ScalarInput> scalar_inputs;
  for (auto& bytes : in) parameters.push_back(bytes.data());
  for (auto& bytes : out) results.push_back(bytes.data());
  for (double value : scalars) scalar_inputs.push_back({value, static_cast<int64_t>(value)});
  evaluate(graph, parameters, scalar_inputs, results);
  std::vector<Values> values(out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const DType dtype = graph.type(graph.results[i].value).dtype;
    for (int64_t j = 0; j < static_cast<int64_t>(out[i].size()) / size_of(dtype); ++j)
      values[i].push_back(load<double>(dtype, out[i].data(), j));
  }
  return values;
}

inline Values run(const std::string& text, const std::vector<Values>& inputs, const Values& scalars = {}) {
  return run_all(parse(text), inputs, scalars)[0];
}

// " strides=[...]" of a compact tensor of a type such as "f32[2,3]".
inline std::string compact_strides(const std::string& type) {
  Shape shape;
  for (size_t at = type.find('[') + 1, used = 0; type[at] != ']'; at += used + (type[at + used] == ','))
    shape.push_back(std::stoll(type.substr(at), &used));
  return fmt::format(" strides=[{}]", fmt::join(row_major(shape), ","));
}

// One operation on compact inputs of the given types: run_node("add %0, %1 : f32[2]", {"f32[2]", "f32[2]"}, ...).
inline Values run_node(const std::string& node, const std::vector<std::string>& types, const std::vector<Values>& inputs) {
  std::string text = "graph \"test\"\n", nodes;
  for (size_t i = 0; i < types.size(); ++i) {
    text += fmt::format("parameter \"\" {}{}\n", types[i], compact_strides(types[i]));
    nodes += fmt::format("%{} = parameter index={} : {}\n", i, i, types[i]);
  }
  const std::string type = node.substr(node.rfind(' ') + 1);
  return run(text + nodes + fmt::format("%{} = {}\nresult %{}{}\n", types.size(), node, types.size(), compact_strides(type)),
             inputs);
}

}  // namespace opentrn::graph
