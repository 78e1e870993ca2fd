#include "runtime/kernel_key.h"

#include "compiler/compile.h"
#include "isa/serialize.h"
#include "runtime/build_id.h"
#include "runtime/kernel.h"
#include "runtime/settings.h"
#include "spec/chip.h"

namespace opentrn::runtime {
namespace {

// What every key starts with: machine and makers. Settings are replaced, never changed, so their address tells whether
// the last answer still holds.
Hash start() {
  thread_local const Settings* known = nullptr;
  thread_local Hash hash;
  const Settings& s = settings();
  if (known == &s) return hash;
  known = &s;
  hash = Hash();
  hash.add(std::string_view(spec::chip(s.chip).hash));
  hash.add(s.lnc);
  hash.add(compiler::kCompilerVersion);
  hash.add(uint64_t{isa::Program::kVersion});
  hash.add(std::string_view(build_id()));
  return hash;
}

// Small fields of a node in one word.
uint64_t word(const graph::Node& node) {
  return uint64_t{static_cast<uint8_t>(node.op)} | uint64_t{static_cast<uint8_t>(node.type.dtype)} << 8 |
         uint64_t{static_cast<uint8_t>(node.combine)} << 16 | uint64_t{node.operands.size()} << 24;
}

void add(Hash& hash, const graph::Layout& layout) {
  hash.add(layout.strides);
  hash.add(layout.offset);
}

}  // namespace

Key key_of(const graph::Graph& graph) {
  Hash hash = start();
  hash.add(uint64_t{graph.nodes.size()} | uint64_t{graph.parameters.size()} << 32);
  for (const graph::Node& node : graph.nodes) {
    hash.add(word(node));
    for (graph::ValueId operand : node.operands) hash.add(operand);
    hash.add(node.type.shape);
    // Most nodes have none of these: one word says which follow.
    uint64_t present = 0;
    const std::vector<int64_t>* lists[] = {&node.dims,      &node.starts,    &node.limits,       &node.strides,
                                           &node.lhs_batch, &node.rhs_batch, &node.lhs_contract, &node.rhs_contract};
    for (size_t i = 0; i < std::size(lists); ++i) present |= uint64_t{!lists[i]->empty()} << i;
    const uint64_t real_bits = std::bit_cast<uint64_t>(node.real);
    present |= uint64_t{node.index != 0} << 8 | uint64_t{real_bits != 0} << 9 | uint64_t{node.integer != 0} << 10;
    hash.add(present);
    for (const auto* list : lists)
      if (!list->empty()) hash.add(*list);
    if (node.index != 0) hash.add(node.index);
    if (real_bits != 0) hash.add(real_bits);
    if (node.integer != 0) hash.add(node.integer);
  }
  for (const graph::Parameter& parameter : graph.parameters) {
    hash.add(static_cast<int>(parameter.type.dtype));
    hash.add(parameter.type.shape);
    add(hash, parameter.layout);
  }
  hash.add(uint64_t{graph.scalars.size()} | uint64_t{graph.results.size()} << 32);
  for (const graph::ScalarParameter& scalar : graph.scalars) hash.add(static_cast<int>(scalar.dtype));
  for (const graph::Result& result : graph.results) {
    hash.add(result.value);
    hash.add(result.alias);
    add(hash, result.layout);
  }
  return hash.finish();
}

Key key_of(const isa::Program& program) {
  Hash hash = start();
  hash.add(std::string_view("program"));
  hash.add(std::string_view(isa::digest(program)));
  return hash.finish();
}

std::string kernel_key(const graph::Graph& graph) { return key_of(graph).hex(); }

}  // namespace opentrn::runtime
