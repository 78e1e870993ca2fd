// From a core's instruction list to a tree with tiles, its operands, and the proof that tiles behave like slots.
#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "base/error.h"
#include "exec/host_ir.h"

namespace opentrn::exec::host {
namespace {

using isa::AccessPattern;
using isa::ByteSet;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;

// Replaces slot registers by tiles in every operand.
template <typename F>
void each_operand(Instruction& i, F&& f) {
  f(i.dst);
  f(i.dst1);
  for (AccessPattern& pattern : i.src) f(pattern);
  f(i.s0.tile);
  f(i.s1.tile);
}

class TreeBuilder {
 public:
  TreeBuilder(const isa::Program& program, int core) : core_(program.cores[static_cast<size_t>(core)]) {
    tile_of_.assign(static_cast<size_t>(core_.slot_registers), -1);
  }

  CoreCode build() {
    code_.loop_registers = core_.loop_registers;
    size_t at = 0;
    body(at, code_.nodes, true);
    return std::move(code_);
  }

 private:
  void body(size_t& at, std::vector<Node>& nodes, bool top) {
    for (; at < core_.code.size(); ++at) {
      const Instruction& i = core_.code[at];
      switch (i.opcode) {
        case Opcode::event_semaphore: break;
        case Opcode::rotate: {
          // A register is written in one place, so that a reader sees the rotation of its own iteration.
          if (static_cast<size_t>(i.reg) >= tile_of_.size()) tile_of_.resize(static_cast<size_t>(i.reg) + 1, -1);
          int& tile = tile_of_[static_cast<size_t>(i.reg)];
          if (tile >= 0) throw Unplannable{"a slot register is written twice"};
          if (code_.tiles.size() > INT16_MAX) throw Unplannable{"too many tiles"};  // operands name them in `slot`
          tile = static_cast<int>(code_.tiles.size());
          code_.tiles.push_back({i.pool, core_.pools[static_cast<size_t>(i.pool)].bytes, static_cast<int>(at)});
          break;
        }
        case Opcode::loop_begin: {
          Node loop;
          loop.instruction = i;
          loop.source = static_cast<int>(at);
          ++at;
          body(at, loop.body, false);
          nodes.push_back(std::move(loop));
          break;
        }
        case Opcode::loop_end: return;
        case Opcode::barrier:
          if (!top) throw Unplannable{"a barrier inside a loop"};
          [[fallthrough]];
        default: {
          Node node;
          node.instruction = i;
          node.instruction.waits.clear();
          node.instruction.posts.clear();
          node.source = static_cast<int>(at);
          each_operand(node.instruction, [&](AccessPattern& p) {
            if (p.memory != Memory::sbuf && p.memory != Memory::psum) return;
            if (p.slot < 0) throw Unplannable{"an operand without slot register"};
            const int tile = static_cast<size_t>(p.slot) < tile_of_.size() ? tile_of_[static_cast<size_t>(p.slot)] : -1;
            if (tile < 0) throw Unplannable{"a slot register is read before it is written"};
            p.slot = static_cast<int16_t>(tile);
          });
          nodes.push_back(std::move(node));
        }
      }
    }
  }

  const isa::CoreProgram& core_;
  CoreCode code_;
  std::vector<int> tile_of_;
};

class UseCollector {
 public:
  UseCollector(const isa::Program& program, const std::vector<int>& roots, Uses& uses)
      : program_(program), roots_(roots), uses_(uses) {}

  void collect(std::vector<Node>& nodes) {
    for (Node& node : nodes) {
      if (node.is_loop()) {
        const int index = static_cast<int>(uses_.loops.size());
        uses_.loops.push_back({&node, node.instruction.reg, node.instruction.count, static_cast<int>(uses_.leaves.size()), 0});
        path_.push_back(index);
        collect(node.body);
        path_.pop_back();
        uses_.loops[static_cast<size_t>(index)].end = static_cast<int>(uses_.leaves.size());
        continue;
      }
      const int leaf = static_cast<int>(uses_.leaves.size());
      uses_.leaves.push_back(&node);
      for (const isa::OperandUse& operand : isa::operand_uses(node.instruction, program_)) {
        Use use;
        use.node = &node;
        use.pattern = const_cast<AccessPattern*>(operand.pattern);  // of a node that the caller may change
        use.leaf = leaf;
        use.reads = operand.reads;
        use.writes = operand.writes;
        use.indirect = operand.indirect;
        use.loops = path_;
        if (!use.on_chip()) use.root = roots_[static_cast<size_t>(use.pattern->buffer)];
        const int tile = use.tile();
        if (tile >= 0) uses_.of_tile[static_cast<size_t>(tile)].push_back(static_cast<int>(uses_.all.size()));
        uses_.all.push_back(std::move(use));
      }
    }
  }

 private:
  const isa::Program& program_;
  const std::vector<int>& roots_;
  Uses& uses_;
  SmallVector<int, 12> path_;
};

struct Interval {
  int64_t begin, end;
};

// The runs of bytes of a set, at most `limit` of them.
bool append_runs(const ByteSet& set, size_t limit, std::vector<Interval>& to) {
  if (to.size() + static_cast<size_t>(set.runs()) > limit) return false;
  int64_t index[isa::kMaxSteps] = {};
  int64_t at = set.base;
  for (;;) {
    to.push_back({at, at + set.run});
    size_t d = 0;
    for (; d < set.steps.size(); ++d) {
      if (++index[d] < set.steps[d].count) {
        at += set.steps[d].bytes;
        break;
      }
      at -= set.steps[d].bytes * (set.steps[d].count - 1);
      index[d] = 0;
    }
    if (d == set.steps.size()) return true;
  }
}

constexpr size_t kMaxRuns = 4096;

bool covered(const ByteSet& read, const std::vector<ByteSet>& written) {
  for (const ByteSet& w : written)
    if (w.steps.empty() && w.base <= read.base && read.end() <= w.base + w.run) return true;
  std::vector<Interval> have, want;
  for (const ByteSet& w : written)
    if (!append_runs(w, kMaxRuns, have)) return false;
  if (!append_runs(read, kMaxRuns, want)) return false;
  std::ranges::sort(have, {}, &Interval::begin);
  size_t n = 0;
  for (const Interval& run : have) {
    if (n > 0 && run.begin <= have[n - 1].end) have[n - 1].end = std::max(have[n - 1].end, run.end);
    else have[n++] = run;
  }
  have.resize(n);
  return std::ranges::all_of(want, [&](const Interval& run) {
    auto after = std::ranges::upper_bound(have, run.begin, {}, &Interval::begin);
    return after != have.begin() && run.end <= std::prev(after)->end;
  });
}

}  // namespace

std::vector<int> alias_roots(const isa::Program& program) {
  std::vector<int> roots(program.buffers.size());
  for (size_t b = 0; b < roots.size(); ++b) {
    const int32_t alias = program.buffers[b].alias;
    roots[b] = alias < 0 ? static_cast<int>(b) : roots[static_cast<size_t>(alias)];
  }
  return roots;
}

CoreCode tree_of(const isa::Program& program, int core) { return TreeBuilder(program, core).build(); }

Uses uses_of(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots, size_t tiles) {
  Uses uses;
  uses.of_tile.resize(tiles);
  uses.all.reserve(4 * nodes.size());
  UseCollector(program, roots, uses).collect(nodes);
  return uses;
}

size_t common_loops(const Use& a, const Use& b) {
  size_t n = 0;
  while (n < a.loops.size() && n < b.loops.size() && a.loops[n] == b.loops[n]) ++n;
  return n;
}

int64_t step_of(const Use& use, int16_t reg) {
  int64_t bytes = 0;
  for (const isa::Term& term : use.pattern->terms)
    if (term.reg == reg) bytes += term.bytes;
  return bytes;
}

ByteSet bytes_over(const Uses& uses, const Use& use, size_t from, const isa::Program& program) {
  if (use.indirect) {  // any row
    ByteSet whole;
    whole.run = program.buffers[static_cast<size_t>(use.pattern->buffer)].bytes;
    return whole;
  }
  try {
    ByteSet set = isa::byte_set(*use.pattern);
    for (size_t l = use.loops.size(); l-- > from;) {
      const Loop& loop = uses.loops[static_cast<size_t>(use.loops[l])];
      set.add({step_of(use, loop.reg), loop.count});
    }
    return set;
  } catch (const std::length_error&) {
    throw Unplannable{"an access with too many dimensions"};
  }
}

bool may_conflict(const Uses& uses, const Use& a, const Use& b, size_t shared, const isa::Program& program) {
  if (a.root != b.root) return false;
  for (size_t l = 0; l < shared; ++l) {
    const int16_t reg = uses.loops[static_cast<size_t>(a.loops[l])].reg;
    if (a.indirect || b.indirect || step_of(a, reg) != step_of(b, reg)) {
      shared = l;  // the distance varies: any iterations
      break;
    }
  }
  return isa::overlap(bytes_over(uses, a, shared, program), bytes_over(uses, b, shared, program));
}

bool may_conflict_across(const Uses& uses, const Use& a, const Use& b, size_t at, const isa::Program& program) {
  if (a.root != b.root) return false;
  const Loop& loop = uses.loops[static_cast<size_t>(a.loops[at])];
  if (loop.count <= 1) return false;
  bool same = !a.indirect && !b.indirect;
  for (size_t l = 0; l <= at && same; ++l) {
    const int16_t reg = uses.loops[static_cast<size_t>(a.loops[l])].reg;
    same = step_of(a, reg) == step_of(b, reg);
  }
  if (!same) return isa::overlap(bytes_over(uses, a, 0, program), bytes_over(uses, b, 0, program));
  const int64_t step = step_of(a, loop.reg);
  const ByteSet first = bytes_over(uses, a, at + 1, program);
  ByteSet second = bytes_over(uses, b, at + 1, program);
  if (step == 0) return isa::overlap(first, second);
  const ByteSet unmoved = second;
  try {
    second.base += step;
    second.add({step, loop.count - 1});
    if (isa::overlap(first, second)) return true;
    second = unmoved;
    second.base -= step;
    second.add({-step, loop.count - 1});
  } catch (const std::length_error&) {
    return true;
  }
  return isa::overlap(first, second);
}

void check_tiles(const CoreCode& code, const Uses& uses, const isa::CoreProgram& core) {
  // Loops around each rotation, by position in the core's code.
  struct Span {
    int begin, end;  // positions
    int64_t count;
  };
  std::vector<Span> spans;
  std::vector<size_t> open;
  for (size_t at = 0; at < core.code.size(); ++at) {
    if (core.code[at].opcode == Opcode::loop_begin) {
      open.push_back(spans.size());
      spans.push_back({static_cast<int>(at), 0, core.code[at].count});
    } else if (core.code[at].opcode == Opcode::loop_end) {
      spans[open.back()].end = static_cast<int>(at);
      open.pop_back();
    }
  }
  struct Life {
    int begin = -1, end = -1;  // positions, whole loops where a use lies in a loop that the rotation is not in
  };
  std::vector<Life> lives(code.tiles.size());
  for (size_t t = 0; t < code.tiles.size(); ++t) {
    const int rotation = code.tiles[t].rotation;
    Life& life = lives[t];
    for (const int u : uses.of_tile[t]) {
      const Use& use = uses.all[static_cast<size_t>(u)];
      int begin = use.node->source, end = begin;
      for (const Span& span : spans) {
        const bool around_use = span.begin < use.node->source && use.node->source < span.end;
        const bool around_rotation = span.begin < rotation && rotation < span.end;
        if (around_rotation && !around_use) throw Unplannable{"a tile is used outside the loop that takes it"};
        if (around_use && !around_rotation) {
          begin = std::min(begin, span.begin);
          end = std::max(end, span.end);
        }
      }
      if (begin < rotation) throw Unplannable{"a tile is used before its rotation"};
      life.begin = life.begin < 0 ? begin : std::min(life.begin, begin);
      life.end = std::max(life.end, end);
    }
  }
  for (size_t t = 0; t < code.tiles.size(); ++t) {
    const Tile& tile = code.tiles[t];
    const isa::Pool& pool = core.pools[static_cast<size_t>(tile.pool)];
    if (lives[t].end < 0) continue;
    int64_t taken = 0;  // slots of the pool while the tile is in use
    for (size_t o = 0; o < code.tiles.size(); ++o) {
      const Tile& other = code.tiles[o];
      if (o == t) continue;
      if (other.pool == tile.pool) {
        if (other.rotation < tile.rotation || other.rotation > lives[t].end) continue;
        int64_t times = 1;
        for (const Span& span : spans)
          if (span.begin < other.rotation && other.rotation < span.end && !(span.begin < tile.rotation && tile.rotation < span.end))
            times *= span.count;
        taken += times;
        if (taken >= pool.depth) throw Unplannable{"a slot is taken again while its tile is in use"};
        continue;
      }
      const isa::Pool& second = core.pools[static_cast<size_t>(other.pool)];
      const bool apart = pool.memory != second.memory || pool.offset + pool.bytes * pool.depth <= second.offset ||
                         second.offset + second.bytes * second.depth <= pool.offset;
      if (!apart && lives[o].end >= lives[t].begin && lives[o].begin >= 0 && lives[o].begin <= lives[t].end)
        throw Unplannable{"overlapping pools are in use at the same time"};
    }
  }
}

bool elements_apart(const AccessPattern& pattern) {
  const int64_t size = size_of(pattern.dtype);
  SmallVector<isa::Step, 5> steps;  // the smallest first
  const auto add = [&](int64_t stride, int64_t count) {
    if (count == 1) return;
    steps.push_back({std::abs(stride * size), count});
    for (size_t s = steps.size() - 1; s > 0 && steps[s].bytes < steps[s - 1].bytes; --s) std::swap(steps[s], steps[s - 1]);
  };
  for (const isa::Dim& d : pattern.dims) add(d.stride, d.count);
  if (pattern.memory == Memory::hbm) add(pattern.partition_stride, pattern.partitions);
  int64_t reach = size;
  for (const isa::Step& step : steps) {
    if (step.bytes < reach) return false;
    reach += step.bytes * (step.count - 1);
  }
  return true;
}

bool reads_what_was_written(const Uses& uses, const Use& read) {
  static const isa::Program kNone;  // on-chip operands do not refer to its buffers
  const AccessPattern& pattern = *read.pattern;
  const int first = pattern.partition, end = first + pattern.partitions;
  struct Write {
    const Use* use;
    size_t common;
  };
  std::vector<Write> writes;
  std::vector<int> edges{first, end};
  for (const int u : uses.of_tile[static_cast<size_t>(read.tile())]) {
    const Use& use = uses.all[static_cast<size_t>(u)];
    if (!use.writes || use.leaf >= read.leaf) continue;
    const size_t common = common_loops(use, read);
    bool aligned = true;  // in a loop that both are in, the write of this iteration must be the one that is read
    for (size_t l = 0; l < common; ++l) {
      const int16_t reg = uses.loops[static_cast<size_t>(read.loops[l])].reg;
      aligned &= step_of(use, reg) == step_of(read, reg);
    }
    if (!aligned) continue;
    writes.push_back({&use, common});
    for (const int edge : {static_cast<int>(use.pattern->partition), use.pattern->partition + use.pattern->partitions})
      if (edge > first && edge < end) edges.push_back(edge);
  }
  std::ranges::sort(edges);
  // All iterations of the read's loops from the `from`-th on, against the writes that have then been made.
  const auto covered_from = [&](size_t from, int begin_partition, int end_partition) {
    std::vector<ByteSet> here;
    for (const Write& write : writes) {
      const AccessPattern& p = *write.use->pattern;
      if (write.common < from || p.partition > begin_partition || p.partition + p.partitions < end_partition) continue;
      bool fixed = true;
      for (size_t l = from; l < write.common; ++l)
        fixed &= step_of(*write.use, uses.loops[static_cast<size_t>(write.use->loops[l])].reg) == 0;
      if (fixed) here.push_back(bytes_over(uses, *write.use, write.common, kNone));
    }
    return !here.empty() && covered(bytes_over(uses, read, from, kNone), here);
  };
  for (size_t e = 0; e + 1 < edges.size(); ++e) {
    if (edges[e] == edges[e + 1]) continue;
    bool found = false;
    for (size_t from = read.loops.size() + 1; from-- > 0 && !found;) found = covered_from(from, edges[e], edges[e + 1]);
    if (!found) return false;
  }
  return true;
}

}  // namespace opentrn::exec::host
