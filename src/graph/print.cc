#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "graph/infer.h"

namespace opentrn::graph {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    out += c;
  }
  return out + '"';
}

// Shortest text that reads back as the same double.
std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return fmt::format("{}", value);
}

std::string layout(const Layout& layout) {
  std::string out = fmt::format(" strides=[{}]", fmt::join(layout.strides, ","));
  if (layout.offset) out += fmt::format(" offset={}", layout.offset);
  return out;
}

std::string_view name_of(Combine combine) {
  static constexpr std::string_view kNames[] = {"set", "add", "multiply", "maximum", "minimum"};
  return kNames[static_cast<size_t>(combine)];
}

}  // namespace

std::string print(const Graph& graph) {
  std::string out = fmt::format("graph {}\n", quoted(graph.name));
  for (const Parameter& p : graph.parameters)
    out += fmt::format("parameter {} {}{}\n", quoted(p.name), to_string(p.type), layout(p.layout));
  for (const ScalarParameter& s : graph.scalars) out += fmt::format("scalar {} {}\n", quoted(s.name), name_of(s.dtype));
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    out += fmt::format("%{} = {}", id, graph::name_of(node.op));
    for (size_t i = 0; i < node.operands.size(); ++i) out += fmt::format("{}%{}", i ? ", " : " ", node.operands[i]);
    auto list = [&](const char* name, const std::vector<int64_t>& values) {
      if (!values.empty()) out += fmt::format(" {}=[{}]", name, fmt::join(values, ","));
    };
    list("dims", node.dims);
    list("starts", node.starts);
    list("limits", node.limits);
    list("strides", node.strides);
    list("lhs_batch", node.lhs_batch);
    list("rhs_batch", node.rhs_batch);
    list("lhs_contract", node.lhs_contract);
    list("rhs_contract", node.rhs_contract);
    if (node.index) out += fmt::format(" index={}", node.index);
    if (node.real != 0 || std::signbit(node.real)) out += " real=" + number(node.real);
    if (node.integer) out += fmt::format(" integer={}", node.integer);
    if (node.combine != Combine::set) out += fmt::format(" combine={}", name_of(node.combine));
    out += fmt::format(" : {}\n", to_string(node.type));
  }
  for (const Result& r : graph.results) {
    out += fmt::format("result %{}{}", r.value, layout(r.layout));
    if (r.alias >= 0) out += fmt::format(" alias={}", r.alias);
    out += '\n';
  }
  return out;
}

}  // namespace opentrn::graph
