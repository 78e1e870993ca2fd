#include "exec/host_matmul.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace opentrn::exec::host {
namespace {

using isa::AccessPattern;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;
using isa::Term;

constexpr int64_t kMost = std::numeric_limits<int16_t>::max();  // partitions of an access pattern

bool is_matmul(const Node& node) { return node.instruction.opcode == Opcode::nc_matmul; }

int64_t row_bytes(const AccessPattern& p) { return p.partition_stride * size_of(p.dtype); }

// The same operand but for its place.
bool alike(const AccessPattern& a, const AccessPattern& b) {
  return a.memory == b.memory && a.dtype == b.dtype && a.buffer == b.buffer && a.slot == b.slot && a.dims == b.dims &&
         a.terms == b.terms && a.partition_stride == b.partition_stride;
}

// Both operands of a multiplication lie in HBM, where no other operand of the nodes is written.
class Operands {
 public:
  Operands(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots, size_t tiles)
      : roots_(roots), written_(roots.size(), false) {
    const Uses uses = uses_of(nodes, program, roots, tiles);
    for (const Use& use : uses.all)
      if (!use.on_chip() && use.writes) written_[static_cast<size_t>(use.root)] = true;
  }
  bool constant(const AccessPattern& p) const {
    return p.memory == Memory::hbm && !written_[static_cast<size_t>(roots_[static_cast<size_t>(p.buffer)])];
  }
  int root(const AccessPattern& p) const { return p.memory == Memory::hbm ? roots_[static_cast<size_t>(p.buffer)] : -1; }
  bool constant(const Instruction& i) const { return constant(i.src[0]) && constant(i.src[1]); }

 private:
  const std::vector<int>& roots_;
  std::vector<bool> written_;
};

// Sums may go on from block to block: they are kept in f32, and the fast way to multiply bf16, which adds products of two
// consecutive k at a time, is taken for all blocks or for none.
bool may_join(const Instruction& i) {
  return i.dst.dtype == DType::f32 && (size_of(i.src[0].dtype) == 4 || i.src[0].partitions % 2 == 0);
}

// loop { a; b } of multiplications into different tiles becomes loop { a } loop { b }; a loop over consecutive blocks of K
// becomes one multiplication.
void separate(std::vector<Node>& nodes, const Operands& operands) {
  std::vector<Node> out;
  for (Node& node : nodes) {
    if (!node.is_loop()) {
      out.push_back(std::move(node));
      continue;
    }
    separate(node.body, operands);
    bool apart = true;
    for (size_t a = 0; a < node.body.size() && apart; ++a) {
      const Instruction& i = node.body[a].instruction;
      apart = is_matmul(node.body[a]) && operands.constant(i) && i.dst.memory != Memory::hbm;
      for (size_t b = 0; b < a && apart; ++b) apart = node.body[b].instruction.dst.slot != i.dst.slot;
    }
    if (!apart) {
      out.push_back(std::move(node));
      continue;
    }
    for (Node& inner : node.body) {
      Instruction& i = inner.instruction;
      const int16_t reg = node.instruction.reg;
      const int64_t count = node.instruction.count;
      const auto step = [reg](const AccessPattern& p) {
        int64_t bytes = 0;
        for (const Term& term : p.terms)
          if (term.reg == reg) bytes += term.bytes;
        return bytes;
      };
      bool consecutive = i.accumulate && may_join(i) && step(i.dst) == 0 && i.src[0].partitions * count <= kMost;
      for (const AccessPattern& p : i.src) consecutive = consecutive && step(p) == p.partitions * row_bytes(p);
      if (consecutive) {
        for (AccessPattern& p : i.src) {
          p.partitions = static_cast<int16_t>(p.partitions * count);
          for (size_t t = 0; t < p.terms.size();) {
            if (p.terms[t].reg == reg) p.terms.erase(t);
            else ++t;
          }
        }
        out.push_back(std::move(inner));
        continue;
      }
      Node loop;
      loop.instruction = node.instruction;
      loop.source = node.source;
      loop.body.push_back(std::move(inner));
      out.push_back(std::move(loop));
    }
  }
  nodes = std::move(out);
}

bool touches(const Node& node, int16_t slot) {
  if (node.is_loop()) return std::ranges::any_of(node.body, [slot](const Node& inner) { return touches(inner, slot); });
  const Instruction& i = node.instruction;
  const auto at = [slot](const AccessPattern& p) { return (p.memory == Memory::sbuf || p.memory == Memory::psum) && p.slot == slot; };
  return at(i.dst) || at(i.dst1) || at(i.s0.tile) || at(i.s1.tile) || std::ranges::any_of(i.src, at);
}

// A later accumulation into the same tile over the next block of K is taken into the earlier multiplication.
void join_blocks(std::vector<Node>& nodes, const Operands& operands) {
  for (size_t a = 0; a < nodes.size(); ++a) {
    if (nodes[a].is_loop()) {
      join_blocks(nodes[a].body, operands);
      continue;
    }
    if (!is_matmul(nodes[a]) || nodes[a].instruction.dst.memory == Memory::hbm) continue;
    Instruction& first = nodes[a].instruction;
    if (!operands.constant(first) || !may_join(first)) continue;
    for (size_t b = a + 1; b < nodes.size(); ++b) {
      if (!touches(nodes[b], first.dst.slot)) continue;
      if (!is_matmul(nodes[b])) break;
      const Instruction& next = nodes[b].instruction;
      bool follows = next.accumulate && may_join(next) && next.dst == first.dst && operands.constant(next) &&
                     first.src[0].partitions + next.src[0].partitions <= kMost;
      for (size_t s = 0; s < 2 && follows; ++s) {
        const AccessPattern &p = first.src[s], &q = next.src[s];
        follows = alike(p, q) && q.offset - p.offset == p.partitions * row_bytes(p);
      }
      if (!follows) break;
      for (size_t s = 0; s < 2; ++s)
        first.src[s].partitions = static_cast<int16_t>(first.src[s].partitions + next.src[s].partitions);
      nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(b));
      --b;
    }
  }
}

// Whether `b` may be executed where `a` stands: nothing between them depends on the order.
bool moves_up(const std::vector<Node>& nodes, size_t a, size_t b, const Operands& operands) {
  const AccessPattern& moved = nodes[b].instruction.dst;
  for (size_t between = a + 1; between < b; ++between) {
    const AccessPattern& other = nodes[between].instruction.dst;
    if (!operands.constant(nodes[between].instruction) || !(other.terms == moved.terms) ||
        (other.memory == moved.memory && operands.root(other) == operands.root(moved) &&
         isa::overlap(isa::byte_set(other), isa::byte_set(moved))))
      return false;
  }
  return true;
}

// Multiplications of the same moving operand by the next columns of the stationary one, into the next rows.
void join_neighbours(std::vector<Node>& nodes, const Operands& operands) {
  for (size_t a = 0; a < nodes.size(); ++a) {
    if (nodes[a].is_loop()) {
      join_neighbours(nodes[a].body, operands);
      continue;
    }
    if (!is_matmul(nodes[a])) continue;
    Instruction& first = nodes[a].instruction;
    if (!operands.constant(first) || first.dst.memory != Memory::hbm || first.src[0].dims.size() != 1) continue;
    for (size_t b = a + 1; b < nodes.size() && is_matmul(nodes[b]);) {
      const Instruction& next = nodes[b].instruction;
      AccessPattern& stationary = first.src[0];
      const AccessPattern& q = next.src[0];
      const int64_t rows = stationary.dims[0].count;
      AccessPattern as_first = q;  // rows may differ at the edge
      if (q.dims.size() == 1) as_first.dims[0].count = static_cast<int32_t>(rows);
      AccessPattern both = first.dst;
      both.partitions = static_cast<int16_t>(std::min<int64_t>(kMost, both.partitions + next.dst.partitions));
      const bool follows =
          next.accumulate == first.accumulate && next.src[1] == first.src[1] && alike(stationary, as_first) &&
          q.partitions == stationary.partitions && alike(first.dst, next.dst) &&
          q.offset - stationary.offset == rows * stationary.dims[0].stride * size_of(q.dtype) &&
          next.dst.offset - first.dst.offset == rows * row_bytes(first.dst) && rows + q.dims[0].count <= kMost &&
          elements_apart(both);  // where rows overlap the later one counts
      if (!follows || !operands.constant(next) || !moves_up(nodes, a, b, operands)) {
        ++b;
        continue;
      }
      stationary.dims[0].count += q.dims[0].count;
      first.dst = both;
      nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(b));
    }
  }
}

}  // namespace

void join_accumulations(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots, size_t tiles) {
  const Operands operands(nodes, program, roots, tiles);
  separate(nodes, operands);
  join_blocks(nodes, operands);
}

void join_rows(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots, size_t tiles) {
  join_neighbours(nodes, Operands(nodes, program, roots, tiles));
}

}  // namespace opentrn::exec::host
