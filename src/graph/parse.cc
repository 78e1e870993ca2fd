#include <cctype>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "base/error.h"
#include "graph/graph.h"

namespace opentrn::graph {
namespace {

Op parse_op(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Op::rounded); ++i)
    if (name_of(static_cast<Op>(i)) == name) return static_cast<Op>(i);
  throw UserError(fmt::format("unknown operation '{}'", name));
}

Combine parse_combine(std::string_view name) {
  constexpr std::string_view kNames[] = {"set", "add", "multiply", "maximum", "minimum"};
  for (int i = 0; i < 5; ++i)
    if (kNames[i] == name) return static_cast<Combine>(i);
  throw UserError(fmt::format("unknown combine '{}'; known: set, add, multiply, maximum, minimum", name));
}

// One line of the text form, read from left to right.
class Line {
 public:
  explicit Line(std::string_view text) : rest_(text) {}
  bool done() {
    skip();
    return rest_.empty();
  }
  bool accept(std::string_view token) {
    skip();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) throw UserError(fmt::format("expected '{}' at '{}'", token, rest_));
  }
  std::string word() {
    skip();
    size_t n = 0;
    while (n < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[n])) || rest_[n] == '_')) ++n;
    if (n == 0) throw UserError(fmt::format("expected a name at '{}'", rest_));
    std::string out(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return out;
  }
  int64_t integer() {
    skip();
    int64_t value = 0;
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) throw UserError(fmt::format("expected an integer at '{}'", rest_));
    rest_.remove_prefix(end - rest_.data());
    return value;
  }
  double real() {
    skip();
    std::string text(rest_);
    char* end = nullptr;
    double value = std::strtod(text.c_str(), &end);
    if (end == text.c_str()) throw UserError(fmt::format("expected a number at '{}'", rest_));
    rest_.remove_prefix(end - text.c_str());
    return value;
  }
  std::string string() {
    expect("\"");
    std::string out;
    while (!rest_.empty() && rest_[0] != '"') {
      bool escaped = rest_[0] == '\\' && rest_.size() > 1;
      if (escaped) rest_.remove_prefix(1);
      out += escaped && rest_[0] == 'n' ? '\n' : rest_[0];
      rest_.remove_prefix(1);
    }
    expect("\"");
    return out;
  }
  std::vector<int64_t> list() {
    std::vector<int64_t> out;
    expect("[");
    if (accept("]")) return out;
    do out.push_back(integer());
    while (accept(","));
    expect("]");
    return out;
  }
  Type type() {
    DType dtype = parse_dtype(word());
    return {dtype, list()};
  }
  Layout layout() {
    Layout out;
    expect("strides=");
    out.strides = list();
    if (accept("offset=")) out.offset = integer();
    return out;
  }

 private:
  void skip() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0]))) rest_.remove_prefix(1);
  }
  std::string_view rest_;
};

Node parse_node(Line& line, int64_t id) {
  if (line.integer() != id) throw UserError(fmt::format("nodes are numbered in order: expected %{}", id));
  line.expect("=");
  Node node;
  node.op = parse_op(line.word());
  if (line.accept("%")) {
    do node.operands.push_back(static_cast<ValueId>(line.integer()));
    while (line.accept(",") && line.accept("%"));
  }
  while (!line.accept(":")) {
    std::string name = line.word();
    line.expect("=");
    if (name == "dims") node.dims = line.list();
    else if (name == "starts") node.starts = line.list();
    else if (name == "limits") node.limits = line.list();
    else if (name == "strides") node.strides = line.list();
    else if (name == "lhs_batch") node.lhs_batch = line.list();
    else if (name == "rhs_batch") node.rhs_batch = line.list();
    else if (name == "lhs_contract") node.lhs_contract = line.list();
    else if (name == "rhs_contract") node.rhs_contract = line.list();
    else if (name == "index") node.index = line.integer();
    else if (name == "real") node.real = line.real();
    else if (name == "integer") node.integer = line.integer();
    else if (name == "combine") node.combine = parse_combine(line.word());
    else throw UserError(fmt::format("unknown attribute '{}'", name));
  }
  node.type = line.type();
  return node;
}

void parse_line(Line& line, Graph& graph) {
  if (line.accept("%")) {
    graph.nodes.push_back(parse_node(line, static_cast<int64_t>(graph.nodes.size())));
    return;
  }
  std::string kind = line.word();
  if (kind == "graph") {
    graph.name = line.string();
  } else if (kind == "parameter") {
    std::string name = line.string();
    Type type = line.type();
    graph.parameters.push_back({std::move(name), std::move(type), line.layout()});
  } else if (kind == "scalar") {
    std::string name = line.string();
    graph.scalars.push_back({std::move(name), parse_dtype(line.word())});
  } else if (kind == "result") {
    line.expect("%");
    Result result;
    result.value = static_cast<ValueId>(line.integer());
    result.layout = line.layout();
    if (line.accept("alias=")) result.alias = static_cast<int32_t>(line.integer());
    graph.results.push_back(std::move(result));
  } else {
    throw UserError(fmt::format("unknown line '{}'; known: graph, parameter, scalar, %N = ..., result", kind));
  }
}

}  // namespace

Graph parse(std::string_view text) {
  Graph graph;
  for (int number = 1; !text.empty(); ++number) {
    size_t end = text.find('\n');
    std::string_view row = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    row = row.substr(0, row.find("//"));  // comment
    Line line(row);
    if (line.done()) continue;
    try {
      parse_line(line, graph);
      if (!line.done()) throw UserError("unexpected text at the end of the line");
    } catch (const UserError& error) {
      throw UserError(fmt::format("graph text, line {}: {}", number, error.what()));
    }
  }
  verify(graph);
  return graph;
}

}  // namespace opentrn::graph
