#include "exec/host_units.h"

#include <algorithm>

namespace opentrn::exec::host {
namespace {

using isa::Opcode;

// One phase of a core: the top-level nodes between two barriers.
class Phase {
 public:
  Phase(const isa::Program& program, const CoreCode& code, const Uses& uses, int begin, int end,
        const std::vector<int>& item_of_leaf)
      : program_(program), code_(code), uses_(uses), begin_(begin), end_(end), range_(code.nodes.size(), -1) {
    of_item_.resize(code.nodes.size());
    for (size_t u = 0; u < uses.all.size(); ++u) {
      const int item = item_of_leaf[static_cast<size_t>(uses.all[u].leaf)];
      if (item >= begin && item < end) of_item_[static_cast<size_t>(item)].push_back(static_cast<int>(u));
    }
    last_use_.assign(uses.of_tile.size(), -1);
    for (int item = begin; item < end; ++item) {
      if (node(item).is_loop() || writes_hbm(item)) range(item) = item;
      for (const int u : this->uses(item))
        if (use(u).on_chip()) last_use_[static_cast<size_t>(use(u).tile())] = item;
    }
    join_tiles();
  }

  // Units in program order, with stages counted from 0.
  std::vector<Unit> units() {
    std::vector<std::pair<int, int>> ranges = collect();
    // What a unit loads for itself must be what it would have found; else it begins where the load stood.
    for (bool changed = true; changed;) {
      changed = false;
      std::vector<bool> needed(code_.nodes.size(), false);
      for (const auto& [first, last] : ranges) {
        for (const int item : slice(first, last)) {
          needed[static_cast<size_t>(item)] = true;
          if (!loads_something_changed(item, first)) continue;
          join(item, last);
          changed = true;
          break;
        }
        if (changed) break;
      }
      for (int item = begin_; item < end_ && !changed; ++item) {
        if (range(item) >= 0 || needed[static_cast<size_t>(item)] || !may_fault(node(item).instruction)) continue;
        range(item) = item;
        changed = true;
      }
      if (changed) {
        join_tiles();
        ranges = collect();
      }
    }
    std::vector<Unit> units;
    std::vector<std::vector<int>> hbm;  // each unit's uses
    for (const auto& [first, last] : ranges) {
      Unit unit;
      const std::vector<int> before = slice(first, last);
      for (const int item : before) unit.nodes.push_back(node(item));
      for (int item = first; item <= last; ++item) unit.nodes.push_back(node(item));
      unit.parallel = first == last && node(first).is_loop() && node(first).instruction.count > 1 && parallel(first, before);
      std::vector<int> mine;
      for (int item = first; item <= last; ++item) append_hbm(item, mine);
      for (const int item : before) append_hbm(item, mine);
      for (size_t v = 0; v < units.size(); ++v)
        if (conflict(mine, hbm[v])) unit.stage = std::max(unit.stage, units[v].stage + 1);
      units.push_back(std::move(unit));
      hbm.push_back(std::move(mine));
    }
    return units;
  }

 private:
  const Node& node(int item) const { return code_.nodes[static_cast<size_t>(item)]; }
  const std::vector<int>& uses(int item) const { return of_item_[static_cast<size_t>(item)]; }
  const Use& use(int u) const { return uses_.all[static_cast<size_t>(u)]; }
  int& range(int item) { return range_[static_cast<size_t>(item)]; }

  // A fault is a result even where nobody needs the values.
  static bool may_fault(const isa::Instruction& i) { return i.opcode == Opcode::dma_gather && !i.skip_out_of_bounds; }

  bool writes_hbm(int item) const {
    return std::ranges::any_of(uses(item), [&](int u) { return use(u).writes && !use(u).on_chip(); });
  }

  // All items from the first's to the last's range become one range.
  void join(int first, int last) {
    int low = std::min(first, last), high = std::max(first, last);
    for (bool grown = true; grown;) {
      grown = false;
      for (int item = begin_; item < end_; ++item) {
        if (range(item) < 0 || item < low || item > high) continue;
        for (int other = begin_; other < end_; ++other) {
          if (range(other) != range(item) || (other >= low && other <= high)) continue;
          low = std::min(low, other);
          high = std::max(high, other);
          grown = true;
        }
      }
    }
    for (int item = low; item <= high; ++item) range(item) = low;
  }

  // Items between which a tile carries values that cannot be computed again go into one range.
  void join_tiles() {
    for (bool changed = true; changed;) {
      changed = false;
      const std::vector<int> before = range_;
      for (size_t t = 0; t < uses_.of_tile.size(); ++t) {
        std::vector<std::pair<int, bool>> accesses;  // item, writes
        for (int item = begin_; item < end_; ++item)
          for (const int u : uses(item))
            if (use(u).tile() == static_cast<int>(t)) accesses.emplace_back(item, use(u).writes);
        int writer = -1;  // the last one inside a range
        for (const auto& [item, writes] : accesses) {
          if (writer >= 0 && item != writer && range(item) != range(writer)) {
            if (range(item) < 0) range(item) = item;  // depends on a range: not repeatable
            join(writer, item);
          }
          if (writes && range(item) >= 0) writer = item;
        }
      }
      changed = before != range_;
    }
  }

  // First and last item of each range in order; neighbours that are not loops go together.
  std::vector<std::pair<int, int>> collect() {
    std::vector<std::pair<int, int>> ranges;
    bool straight = false;
    for (int item = begin_; item < end_; ++item) {
      if (range(item) < 0) continue;
      if (!ranges.empty() && range(ranges.back().first) == range(item)) {
        ranges.back().second = item;
        straight &= !node(item).is_loop();
        continue;
      }
      if (!ranges.empty() && straight && !node(item).is_loop() && alone(item) && !fills_for_others(ranges.back().second + 1, item)) {
        std::fill(range_.begin() + ranges.back().second + 1, range_.begin() + item + 1, range(ranges.back().first));
        ranges.back().second = item;
        continue;
      }
      ranges.emplace_back(item, item);
      straight = !node(item).is_loop();
    }
    return ranges;
  }
  // Whether what lies between two items fills a tile that is used behind them: other ranges repeat it for themselves.
  bool fills_for_others(int begin, int end) const {
    for (int item = begin; item < end; ++item)
      for (const int u : uses(item))
        if (use(u).writes && use(u).on_chip() && last_use_[static_cast<size_t>(use(u).tile())] > end) return true;
    return false;
  }
  bool alone(int item) const {
    return std::ranges::count(range_, range_[static_cast<size_t>(item)]) == 1;
  }

  // The instructions before a range that fill tiles it uses, in order.
  std::vector<int> slice(int first, int last) const {
    std::vector<bool> wanted(uses_.of_tile.size(), false), taken(code_.nodes.size(), false);
    const auto want = [&](int item) {
      for (const int u : uses(item))
        if (use(u).tile() >= 0) wanted[static_cast<size_t>(use(u).tile())] = true;
    };
    for (int item = first; item <= last; ++item) want(item);
    for (bool changed = true; changed;) {
      changed = false;
      for (int item = begin_; item < first; ++item) {
        if (taken[static_cast<size_t>(item)] || range_[static_cast<size_t>(item)] >= 0) continue;
        if (!std::ranges::any_of(uses(item), [&](int u) { return use(u).tile() >= 0 && use(u).writes && wanted[static_cast<size_t>(use(u).tile())]; }))
          continue;
        taken[static_cast<size_t>(item)] = true;
        want(item);
        changed = true;
      }
    }
    std::vector<int> items;
    for (int item = begin_; item < first; ++item)
      if (taken[static_cast<size_t>(item)]) items.push_back(item);
    return items;
  }

  bool loads_something_changed(int item, int before) const {
    for (int other = item + 1; other < before; ++other)
      for (const int w : uses(other))
        for (const int r : uses(item))
          if (use(w).writes && !use(w).on_chip() && !use(r).on_chip() && may_conflict(uses_, use(w), use(r), 0, program_)) return true;
    return false;
  }

  bool parallel(int item, const std::vector<int>& before) const {
    const Loop* loop = nullptr;
    for (const Loop& l : uses_.loops)
      if (l.node == &node(item)) loop = &l;
    for (const int w : uses(item)) {
      const Use& write = use(w);
      if (!write.writes) continue;
      if (write.on_chip()) {
        // A tile that lives outside the loop would carry values from one iteration to the next.
        const int rotation = code_.tiles[static_cast<size_t>(write.tile())].rotation;
        if (rotation < node(item).source) return false;
        continue;
      }
      for (const int x : uses(item))
        if (!use(x).on_chip() && may_conflict_across(uses_, write, use(x), 0, program_)) return false;
      for (const int other : before)
        for (const int r : uses(other))
          if (!use(r).on_chip() && may_conflict(uses_, write, use(r), 0, program_)) return false;
    }
    return loop != nullptr;
  }

  void append_hbm(int item, std::vector<int>& to) const {
    for (const int u : uses(item))
      if (!use(u).on_chip()) to.push_back(u);
  }

  bool conflict(const std::vector<int>& a, const std::vector<int>& b) const {
    for (const int x : a)
      for (const int y : b)
        if ((use(x).writes || use(y).writes) && may_conflict(uses_, use(x), use(y), 0, program_)) return true;
    return false;
  }

  const isa::Program& program_;
  const CoreCode& code_;
  const Uses& uses_;
  const int begin_, end_;
  std::vector<int> last_use_;              // per tile: the last item that refers to it
  std::vector<int> range_;                 // per item: the first item of its range, -1: repeatable, on-chip only
  std::vector<std::vector<int>> of_item_;  // uses
};

}  // namespace

std::vector<Unit> units_of(const isa::Program& program, int core, const CoreCode& code, const Uses& uses) {
  std::vector<int> item_of_leaf, phase_of_item;
  const auto count_leaves = [](const auto& self, const Node& node) -> size_t {
    if (!node.is_loop()) return 1;
    size_t n = 0;
    for (const Node& inner : node.body) n += self(self, inner);
    return n;
  };
  int phase = 0;
  std::vector<std::pair<int, int>> phases{{0, 0}};
  for (size_t item = 0; item < code.nodes.size(); ++item) {
    item_of_leaf.insert(item_of_leaf.end(), count_leaves(count_leaves, code.nodes[item]), static_cast<int>(item));
    phase_of_item.push_back(phase);
    if (code.nodes[item].instruction.opcode == Opcode::barrier) {
      phases.back().second = static_cast<int>(item);
      phases.emplace_back(static_cast<int>(item) + 1, 0);
      ++phase;
    }
  }
  phases.back().second = static_cast<int>(code.nodes.size());
  for (const std::vector<int>& of_tile : uses.of_tile) {
    for (const int u : of_tile) {
      const auto phase_of = [&](int index) {
        return phase_of_item[static_cast<size_t>(item_of_leaf[static_cast<size_t>(uses.all[static_cast<size_t>(index)].leaf)])];
      };
      if (phase_of(u) != phase_of(of_tile.front())) throw Unplannable{"a tile is used on both sides of a barrier"};
    }
  }
  std::vector<Unit> units;
  for (size_t p = 0; p < phases.size(); ++p) {
    for (Unit& unit : Phase(program, code, uses, phases[p].first, phases[p].second, item_of_leaf).units()) {
      unit.core = core;
      unit.phase = static_cast<int>(p);
      units.push_back(std::move(unit));
    }
  }
  return units;
}

}  // namespace opentrn::exec::host
