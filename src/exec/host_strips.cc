#include "exec/host_strips.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace opentrn::exec::host {
namespace {

using isa::AccessPattern;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;

constexpr int64_t kStripBytes = 64 << 10;   // what the instructions of a run touch per strip: most of it stays in L1 and L2
constexpr int kColumns = 32;                // partitions per strip when they are neighbours in memory: whole cache lines

bool keeps_partitions(const Instruction& i) {
  switch (i.opcode) {
    case Opcode::activation: case Opcode::tensor_tensor: case Opcode::tensor_scalar: case Opcode::scalar_tensor_tensor:
    case Opcode::tensor_copy: case Opcode::tensor_copy_predicated: case Opcode::select: case Opcode::tensor_reduce:
    case Opcode::tensor_tensor_scan: case Opcode::reciprocal: case Opcode::bn_stats: case Opcode::bn_aggr: case Opcode::max8:
    case Opcode::nc_find_index8: case Opcode::nc_match_replace8: case Opcode::memset: case Opcode::iota: case Opcode::affine_select:
    case Opcode::gpsimd_kernel: case Opcode::dma_copy: case Opcode::dma_gather: case Opcode::dma_scatter: return true;
    default: return false;
  }
}

// A load that turns rows into partitions keeps to columns of its source.
bool is_column_load(const Instruction& i) {
  return i.opcode == Opcode::dma_transpose && i.src[0].memory == Memory::hbm && i.src[0].dims.size() == 1 &&
         i.src[0].dims[0].count == i.dst.partitions;
}

class StripMiner {
 public:
  StripMiner(const isa::Program& program, const std::vector<int>& roots, const std::vector<Tile>& tiles, int& registers)
      : program_(program), roots_(roots), tiles_(tiles), registers_(registers), places_(tiles.size()) {}

  std::vector<Place> run(std::vector<Node>& nodes, bool keep_last) {
    const Uses uses = uses_of(nodes, program_, roots_, tiles_.size());
    total_uses_.assign(tiles_.size(), 0);
    for (size_t t = 0; t < tiles_.size(); ++t) {
      Place& place = places_[t];
      total_uses_[t] = uses.of_tile[t].size();
      int end = 0;
      for (const int u : uses.of_tile[t]) {
        const AccessPattern& p = *uses.all[static_cast<size_t>(u)].pattern;
        place.first = end == 0 ? p.partition : std::min<int>(place.first, p.partition);
        end = std::max<int>(end, p.partition + p.partitions);
      }
      place.rows = end - place.first;
      // Long columns of lines a power of two apart would fall into few cache sets.
      place.pitch = (tiles_[t].bytes + 63) / 64 * 64 + (place.rows >= 32 ? 64 : 0);
    }
    if (keep_last) {
      Node last = std::move(nodes.back());
      nodes.pop_back();
      visit(nodes);
      visit(last.body);
      nodes.push_back(std::move(last));
    } else {
      visit(nodes);
    }
    return std::move(places_);
  }

 private:
  // Partitions of all operands of a subtree, nullopt if some instruction does not keep to its partitions.
  static std::optional<int> partitions_of(const Node& node, const isa::Program& program) {
    if (node.is_loop()) {
      std::optional<int> all;
      for (const Node& inner : node.body) {
        const std::optional<int> p = partitions_of(inner, program);
        if (!p || (all && *all != *p)) return std::nullopt;
        all = p;
      }
      return all;
    }
    const Instruction& i = node.instruction;
    if (is_column_load(i)) return i.dst.partitions;
    if (!keeps_partitions(i)) return std::nullopt;
    std::optional<int> all;
    for (const isa::OperandUse& use : isa::operand_uses(i, program)) {
      if (use.indirect) continue;
      if (all && *all != use.pattern->partitions) return std::nullopt;
      all = use.pattern->partitions;
    }
    return all;
  }

  void visit(std::vector<Node>& nodes) {
    std::vector<Node> out;
    for (size_t first = 0; first < nodes.size();) {
      const std::optional<int> partitions = partitions_of(nodes[first], program_);
      size_t end = first + 1;
      if (partitions)
        while (end < nodes.size() && partitions_of(nodes[end], program_) == partitions) ++end;
      bool mined = false;
      if (partitions && *partitions > 1) {
        std::vector<Node> run(std::make_move_iterator(nodes.begin() + static_cast<std::ptrdiff_t>(first)),
                              std::make_move_iterator(nodes.begin() + static_cast<std::ptrdiff_t>(end)));
        mined = mine(run, *partitions, out);
        if (!mined) std::move(run.begin(), run.end(), nodes.begin() + static_cast<std::ptrdiff_t>(first));
      }
      if (!mined) {
        for (; first < end; ++first) {
          if (nodes[first].is_loop()) visit(nodes[first].body);
          out.push_back(std::move(nodes[first]));
        }
      }
      first = end;
    }
    nodes = std::move(out);
  }

  // Rows per strip, 0: not worth it.
  int strip_rows(const Uses& uses, int partitions) const {
    int64_t bytes = 0;
    bool shared = false;
    int least = 1;
    std::vector<int> readers(program_.buffers.size(), 0);
    // The most that is alive at a time: tiles that come and go share memory.
    std::vector<int64_t> alive(uses.leaves.size() + 1, 0);
    for (size_t t = 0; t < tiles_.size(); ++t) {
      const std::vector<int>& of_tile = uses.of_tile[t];
      if (of_tile.empty()) continue;
      shared |= of_tile.size() > 1;
      for (int leaf = uses.all[static_cast<size_t>(of_tile.front())].leaf; leaf <= uses.all[static_cast<size_t>(of_tile.back())].leaf; ++leaf)
        alive[static_cast<size_t>(leaf)] += tiles_[t].bytes;
    }
    bytes = std::ranges::max(alive);
    std::vector<std::pair<int, int64_t>> rows_seen;  // root, offset: rows that several instructions touch count once
    for (const Use& use : uses.all) {
      if (use.on_chip()) continue;
      const std::pair<int, int64_t> place(use.root, use.pattern->offset);
      if (!use.indirect && std::ranges::find(rows_seen, place) == rows_seen.end()) {
        rows_seen.push_back(place);
        bytes += use.pattern->free_elements() * size_of(use.pattern->dtype);
      }
      if (use.reads) shared |= ++readers[static_cast<size_t>(use.pattern->buffer)] > 1;
      if (!use.indirect && (use.pattern->partition_stride == 1 || is_column_load(use.node->instruction)) &&
          use.pattern->free_elements() > 1)
        least = kColumns;
    }
    if (!shared || uses.leaves.size() < 2) return 0;
    int64_t rows = kStripBytes / std::max<int64_t>(1, bytes);
    rows = std::clamp<int64_t>(rows, least, partitions);
    if (rows >= partitions) return 0;
    // A divisor near the wish avoids a rest.
    for (int64_t r = rows; r * 2 > rows && r >= least; --r)
      if (partitions % r == 0) return static_cast<int>(r);
    return static_cast<int>(rows);
  }

  bool mine(std::vector<Node>& run, int partitions, std::vector<Node>& out) {
    const Uses uses = uses_of(run, program_, roots_, tiles_.size());
    const int rows = strip_rows(uses, partitions);
    if (rows == 0) return false;
    for (const std::vector<int>& of_tile : uses.of_tile)
      for (const int u : of_tile)
        if (uses.all[static_cast<size_t>(u)].pattern->partition != uses.all[static_cast<size_t>(of_tile[0])].pattern->partition)
          return false;
    Node loop;
    loop.instruction.opcode = Opcode::loop_begin;
    loop.instruction.reg = static_cast<int16_t>(registers_);
    loop.instruction.count = partitions / rows;
    loop.source = run[0].source;
    std::vector<bool> strip_only(tiles_.size());
    for (size_t t = 0; t < tiles_.size(); ++t) strip_only[t] = !uses.of_tile[t].empty() && uses.of_tile[t].size() == total_uses_[t];
    loop.body = run;
    if (!cut(loop.body, strip_only, 0, rows, loop.instruction.reg)) return false;
    std::vector<Node> mined{std::move(loop)};
    if (!apart(mined, partitions, rows)) return false;
    const int rest = partitions % rows;
    if (rest > 0) {
      std::vector<Node> tail = run;
      if (!cut(tail, strip_only, partitions - rest, rest, -1)) return false;
      std::move(tail.begin(), tail.end(), std::back_inserter(mined));
    }
    ++registers_;
    for (size_t t = 0; t < tiles_.size(); ++t) {
      if (!strip_only[t]) continue;
      places_[t].strip = true;
      places_[t].rows = rows;
      places_[t].pitch = (tiles_[t].bytes + 63) / 64 * 64;
    }
    std::move(mined.begin(), mined.end(), std::back_inserter(out));
    return true;
  }

  static bool add_term(AccessPattern& p, int16_t reg, int64_t bytes) {
    if (reg < 0 || bytes == 0) return true;
    if (p.terms.size() == 6) return false;
    p.terms.push_back({reg, bytes});
    return true;
  }

  // Lets all operands cover `rows` partitions from the run's `first`-th on, moving on with the strip loop.
  bool cut(std::vector<Node>& nodes, const std::vector<bool>& strip_only, int first, int rows, int16_t reg) {
    for (Node& node : nodes) {
      if (node.is_loop()) {
        if (!cut(node.body, strip_only, first, rows, reg)) return false;
        continue;
      }
      Instruction& i = node.instruction;
      // Numbers derived from the position: the partition counts from the run's first one.
      if (i.opcode == Opcode::iota || i.opcode == Opcode::affine_select || i.opcode == Opcode::gpsimd_kernel) {
        int64_t step = i.channel_multiplier;
        if (i.pattern.empty() && step == 0) {
          for (const isa::OperandUse& use : isa::operand_uses(i, program_)) step = std::max(step, use.pattern->free_elements());
        }
        if (first > 0) {
          if (i.s0 && i.s0.kind != isa::Scalar::Kind::immediate) return false;
          const double base = std::trunc(i.s0 ? i.s0.value : 0) + static_cast<double>(step * first);
          if (!(std::abs(base) < 0x1p53)) return false;
          i.s0 = isa::Scalar::imm(base);
        }
        if (reg >= 0 && step != 0) {
          if (i.pattern_terms.size() == 4) return false;
          i.pattern_terms.push_back({reg, step * rows});
        }
      }
      const bool column = is_column_load(i);
      for (const isa::OperandUse& use : isa::operand_uses(i, program_)) {
        auto& p = const_cast<AccessPattern&>(*use.pattern);
        if (use.indirect) continue;
        if (p.memory != Memory::hbm) {
          p.partitions = static_cast<int16_t>(rows);
          const auto tile = static_cast<size_t>(p.slot);
          if (strip_only[tile]) continue;
          p.partition = static_cast<int16_t>(p.partition + first);
          if (!add_term(p, reg, rows * places_[tile].pitch)) return false;
        } else if (column) {
          const int64_t step = p.dims[0].stride * size_of(p.dtype);
          p.dims[0].count = rows;
          p.offset += first * step;
          if (!add_term(p, reg, rows * step)) return false;
        } else {
          const int64_t step = p.partition_stride * size_of(p.dtype);
          p.partitions = static_cast<int16_t>(rows);
          p.offset += first * step;
          if (!add_term(p, reg, rows * step)) return false;
        }
      }
    }
    return true;
  }

  // Whether different strips leave each other's HBM alone. An indirect operand alone with its buffer keeps its order.
  bool apart(std::vector<Node>& mined, int partitions, int rows) const {
    const int64_t count = mined[0].instruction.count;
    mined[0].instruction.count = (partitions + rows - 1) / rows;  // the rest is one more strip
    const Uses uses = uses_of(mined, program_, roots_, tiles_.size());
    mined[0].instruction.count = count;
    for (const Use& a : uses.all) {
      if (a.on_chip() || !a.writes) continue;
      for (const Use& b : uses.all) {
        if (b.on_chip() || b.root != a.root) continue;
        if (a.node == b.node && a.pattern == b.pattern && a.indirect && a.loops.size() == 1) continue;
        // Loops around the run may move the two apart.
        for (const isa::Term& term : a.pattern->terms)
          if (!inside(uses, a, term.reg) && step_of(b, term.reg) != term.bytes) return false;
        for (const isa::Term& term : b.pattern->terms)
          if (!inside(uses, b, term.reg) && step_of(a, term.reg) != term.bytes) return false;
        if (may_conflict_across(uses, a, b, 0, program_)) return false;
      }
    }
    return true;
  }
  static bool inside(const Uses& uses, const Use& use, int16_t reg) {
    return std::ranges::any_of(use.loops, [&](int l) { return uses.loops[static_cast<size_t>(l)].reg == reg; });
  }

  const isa::Program& program_;
  const std::vector<int>& roots_;
  const std::vector<Tile>& tiles_;
  int& registers_;
  std::vector<Place> places_;
  std::vector<size_t> total_uses_;
};

}  // namespace

std::vector<Place> strip_mine(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots,
                              const std::vector<Tile>& tiles, int& loop_registers, bool keep_last) {
  return StripMiner(program, roots, tiles, loop_registers).run(nodes, keep_last);
}

}  // namespace opentrn::exec::host
