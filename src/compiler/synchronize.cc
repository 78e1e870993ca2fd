#include "compiler/synchronize.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::compiler {
namespace {

using isa::AccessPattern;
using isa::Engine;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;

// An engine (0 .. 4) or a DMA queue (5 ..).
using Lane = int;
constexpr int kLanes = isa::kEngines + isa::kMaxQueues;

Lane lane_of(const Instruction& i) {
  return isa::is_dma(i.opcode) ? isa::kEngines + i.queue : static_cast<int>(i.engine);
}

// An instruction's accesses to a tile; a loop's are those of all its instructions.
struct TileUse {
  int16_t pool = -1, slot = -1;
  Lane lane = 0;
  bool reads = false, writes = false;
  size_t operands = 0;
};

struct Node {
  Instruction instruction;            // loop_begin for a loop
  std::vector<TileUse> tiles;
  uint32_t lanes = 0;                 // bit set of those that execute something here
  std::vector<std::unique_ptr<Node>> body;
  std::vector<Instruction> before, after;  // events
  bool loop() const { return instruction.opcode == Opcode::loop_begin; }
};

using Body = std::vector<std::unique_ptr<Node>>;

struct Use {
  bool reads = false, writes = false;
  explicit operator bool() const { return reads || writes; }
};
using Uses = std::array<Use, kLanes>;

template <typename F>
void for_operands(const Instruction& i, F f) {
  // f(operand, read, written)
  const bool keeps = i.accumulate || i.opcode == Opcode::tensor_copy_predicated;
  if (i.dst) f(i.dst, keeps, true);
  if (i.dst1) f(i.dst1, false, true);
  for (const AccessPattern& src : i.src) f(src, true, false);
  if (i.s0.kind == isa::Scalar::Kind::tile) f(i.s0.tile, true, false);
  if (i.s1.kind == isa::Scalar::Kind::tile) f(i.s1.tile, true, false);
}

class Synchronizer {
 public:
  Synchronizer(const std::vector<isa::Pool>& pools, std::vector<isa::Semaphore>& semaphores)
      : pools_(pools), semaphores_(semaphores) {
    for (auto& engine : queue_engine_) engine = Engine::sync;
  }

  std::vector<Instruction> run(std::vector<Instruction> code) {
    build(code);
    find_queue_engines(top_);
    collect(top_, false);
    for (auto& [pool, sites] : sites_) synchronize_pool(pool, sites);
    std::vector<Instruction> result;
    flatten(top_, result);
    return result;
  }

 private:
  struct Site {       // one `rotate`
    Body* body = nullptr;
    size_t position = 0;    // of the rotate in the body
    int16_t slot = -1;
    bool repeated = false;  // inside a loop
  };

  struct Edge {
    Lane from, to;
    bool operator<(const Edge& other) const { return std::tie(from, to) < std::tie(other.from, other.to); }
  };

  // How the accesses of one tile begin and end in a body.
  struct Phases {
    std::map<Lane, Node*> first;  // lanes of the first access, and the item it is in
    std::map<Lane, Node*> last;   // lanes that must be through before the memory is overwritten
    Node* last_item = nullptr;
  };

  void build(std::vector<Instruction>& code) {
    std::vector<Body*> stack{&top_};
    for (Instruction& i : code) {
      if (i.opcode == Opcode::loop_end) {
        stack.pop_back();
        continue;
      }
      stack.back()->push_back(std::make_unique<Node>());
      Node* node = stack.back()->back().get();
      node->instruction = std::move(i);
      if (node->loop()) stack.push_back(&node->body);
    }
    if (stack.size() != 1) throw InternalError("synchronize: loops are not nested");
    for (const auto& node : top_) summarise(*node);
  }

  static void add(std::vector<TileUse>& tiles, const TileUse& use) {
    for (TileUse& t : tiles)
      if (t.slot == use.slot && t.pool == use.pool && t.lane == use.lane) {
        t.reads |= use.reads;
        t.writes |= use.writes;
        t.operands += use.operands;
        return;
      }
    tiles.push_back(use);
  }

  // Instructions are large: what the passes below ask again and again is gathered once.
  static void summarise(Node& node) {
    if (node.loop()) {
      for (const auto& child : node.body) {
        summarise(*child);
        node.lanes |= child->lanes;
        for (const TileUse& use : child->tiles) add(node.tiles, use);
      }
      return;
    }
    const Lane lane = lane_of(node.instruction);
    if (node.instruction.opcode != Opcode::rotate) node.lanes = 1u << lane;
    for_operands(node.instruction, [&](const AccessPattern& ap, bool reads, bool writes) {
      if (ap.memory != Memory::hbm) add(node.tiles, {ap.buffer, ap.slot, lane, reads, writes, 1});
    });
  }

  void find_queue_engines(const Body& body) {
    for (const auto& node : body) {
      if (isa::is_dma(node->instruction.opcode)) queue_engine_[node->instruction.queue] = node->instruction.engine;
      find_queue_engines(node->body);
    }
  }

  void collect(Body& body, bool repeated) {
    for (size_t k = 0; k < body.size(); ++k) {
      Node& node = *body[k];
      if (node.instruction.opcode == Opcode::rotate)
        sites_[node.instruction.pool].push_back({&body, k, node.instruction.reg, repeated});
      if (node.loop()) collect(node.body, true);
    }
  }

  Engine engine_of(Lane lane) const {
    return lane < isa::kEngines ? static_cast<Engine>(lane) : queue_engine_[lane - isa::kEngines];
  }

  Uses uses_of(const Node& node, int16_t pool, int16_t slot) const {
    Uses uses{};
    for (const TileUse& t : node.tiles)
      if (t.slot == slot && t.pool == pool) {
        uses[t.lane].reads |= t.reads;
        uses[t.lane].writes |= t.writes;
      }
    return uses;
  }

  // A semaphore that this kernel does not use yet. Kernels of a core take turns with them: each leaves every
  // semaphore as it found it.
  int16_t semaphore(int initial) {
    for (size_t k = 0; k < semaphores_.size(); ++k)
      if (semaphores_[k].initial == initial && taken_.insert(static_cast<int16_t>(k)).second)
        return static_cast<int16_t>(k);
    semaphores_.push_back({fmt::format("{}{}", initial == 0 ? "ready" : "free", semaphores_.size()), initial});
    taken_.insert(static_cast<int16_t>(semaphores_.size() - 1));
    return static_cast<int16_t>(semaphores_.size() - 1);
  }

  static bool uses_lane(const Node& node, Lane lane, int16_t pool, int16_t slot) {
    return std::any_of(node.tiles.begin(), node.tiles.end(),
                       [&](const TileUse& t) { return t.slot == slot && t.pool == pool && t.lane == lane; });
  }

  static Instruction& event(std::vector<Instruction>& events, Engine engine, bool room_for_wait) {
    for (Instruction& e : events)
      if (e.engine == engine && (room_for_wait ? e.waits.size() < 8 && e.posts.empty() : e.posts.size() < 8)) return e;
    events.emplace_back();
    events.back().opcode = Opcode::event_semaphore;
    events.back().engine = engine;
    return events.back();
  }

  // Posts `semaphore` when `lane` is through with the tile in `item`. Returns how many tokens that makes.
  int post_after(Node& item, Lane lane, int16_t sem, int16_t pool, int16_t slot, int tokens = 1) {
    if (!item.loop()) {
      if (lane_of(item.instruction) == lane && item.instruction.posts.size() < 8) {
        item.instruction.posts.push_back({sem, tokens});
        return tokens;
      }
      event(item.after, engine_of(lane), false).posts.push_back({sem, tokens});
      return tokens;
    }
    if (lane < isa::kEngines) {
      event(item.after, engine_of(lane), false).posts.push_back({sem, 1});
      return 1;
    }
    // A queue: its last transfer in the loop posts at every execution.
    for (size_t k = item.body.size(); k-- > 0;)
      if (uses_lane(*item.body[k], lane, pool, slot))
        return static_cast<int>(item.instruction.count) * post_after(*item.body[k], lane, sem, pool, slot);
    throw InternalError("synchronize: a lane without an access");
  }

  void wait_before(Node& item, Lane lane, int16_t sem, int count) {
    Instruction& i = item.instruction;
    if (!item.loop() && lane_of(i) == lane && i.waits.size() < 8)
      i.waits.push_back({sem, count});
    else
      event(item.before, engine_of(lane), true).waits.push_back({sem, count});
  }

  void connect(Node& from_item, Lane from, Node& to_item, Lane to, int16_t pool, int16_t slot) {
    const int16_t sem = semaphore(0);
    const bool late = from >= isa::kEngines && to == static_cast<int>(Engine::tensor) && !from_item.loop();
    Node* use = &to_item;
    int trips = 1;
    while (late && use->loop() && works_before_use(*use, to, pool, slot)) {
      trips *= static_cast<int>(use->instruction.count);
      use = first_use(*use, to, pool, slot);
    }
    const int tokens = post_after(from_item, from, sem, pool, slot, trips) / trips;
    wait_before(*use, to, sem, tokens);
  }

  static Node* first_use(const Node& loop, Lane lane, int16_t pool, int16_t slot) {
    for (const auto& child : loop.body)
      if (uses_lane(*child, lane, pool, slot)) return child.get();
    throw InternalError("synchronize: a lane without an access");
  }

  // Whether the lane executes something in the loop before its first use of the tile.
  static bool works_before_use(const Node& loop, Lane lane, int16_t pool, int16_t slot) {
    for (const auto& child : loop.body) {
      if (uses_lane(*child, lane, pool, slot)) return child->loop() && works_before_use(*child, lane, pool, slot);
      if (has_lane(*child, lane)) return true;
    }
    return false;
  }

  static bool has_lane(const Node& node, Lane lane) { return (node.lanes >> lane & 1) != 0; }

  // Orders the accesses of the tile inside body[begin..], loops included.
  Phases order(Body& body, size_t begin, int16_t pool, int16_t slot) {
    Phases phases;
    std::map<Lane, Node*> writers, readers;
    std::set<Edge> ordered;  // since the last write
    std::set<Lane> covered;  // writers that some reader waited for
    for (size_t k = begin; k < body.size(); ++k) {
      Node& item = *body[k];
      const Uses uses = uses_of(item, pool, slot);
      std::vector<Lane> lanes;
      bool writes = false;
      for (Lane lane = 0; lane < kLanes; ++lane)
        if (uses[lane]) {
          lanes.push_back(lane);
          writes |= uses[lane].writes;
        }
      if (lanes.empty()) continue;
      if (item.loop() && lanes.size() > 1 && writes) order_loop(item, pool, slot);
      if (!phases.last_item)
        for (Lane lane : lanes) phases.first[lane] = &item;
      for (Lane lane : lanes) {
        for (auto& [writer, node] : writers)
          if (writer != lane && ordered.insert({writer, lane}).second) {
            connect(*node, writer, item, lane, pool, slot);
            covered.insert(writer);
          }
        if (uses[lane].writes)
          for (auto& [reader, node] : readers)
            if (reader != lane && ordered.insert({reader, lane}).second) connect(*node, reader, item, lane, pool, slot);
      }
      if (writes) {
        writers.clear();
        readers.clear();
        ordered.clear();
        covered.clear();
      }
      for (Lane lane : lanes) {
        if (uses[lane].writes) writers[lane] = &item;
        if (uses[lane].reads) readers[lane] = &item;
      }
      phases.last_item = &item;
    }
    phases.last = readers;
    for (auto& [writer, node] : writers)
      if (!covered.count(writer)) phases.last.emplace(writer, node);
    return phases;
  }

  // A tile from outside that several lanes use in a loop, at least one writing: ordered inside the body, and from each
  // iteration to the next. The token of the first iteration is posted before the loop and taken back after it.
  void order_loop(Node& loop, int16_t pool, int16_t slot) {
    const Phases phases = order(loop.body, 0, pool, slot);
    for (auto& [last, last_item] : phases.last)
      for (auto& [first, first_item] : phases.first) {
        if (last == first) continue;
        const int16_t sem = semaphore(0);
        const int tokens = post_after(*last_item, last, sem, pool, slot);
        wait_before(*first_item, first, sem, tokens);
        Instruction& prime = event(loop.before, engine_of(last), false);
        prime.posts.push_back({sem, tokens});
        Instruction drain;
        drain.opcode = Opcode::event_semaphore;
        drain.engine = engine_of(first);
        drain.waits.push_back({sem, tokens});
        loop.after.push_back(drain);
      }
  }

  void synchronize_pool(int16_t pool, std::vector<Site>& sites) {
    std::vector<Phases> phases;
    std::set<Lane> first, last;
    for (Site& site : sites) {
      // The slot register is this site's own, so every use of it in the body belongs to this tile.
      phases.push_back(order(*site.body, site.position + 1, pool, site.slot));
      for (auto& [lane, node] : phases.back().first) first.insert(lane);
      for (auto& [lane, node] : phases.back().last) last.insert(lane);
    }
    check_scopes(pool, sites);
    const bool reused = sites.size() > static_cast<size_t>(pools_[pool].depth) ||
                        std::any_of(sites.begin(), sites.end(), [](const Site& s) { return s.repeated; });
    if (!reused) return;
    for (Lane from : last)
      for (Lane to : first) {
        if (from == to) continue;
        const int16_t sem = semaphore(pools_[pool].depth);
        for (size_t s = 0; s < sites.size(); ++s) release(sites[s], phases[s], from, to, sem, pool);
      }
  }

  // One token per use of a slot: posted by `from` when it is through with the tile, taken by `to` before it begins.
  void release(Site& site, Phases& phases, Lane from, Lane to, int16_t sem, int16_t pool) {
    Node& rotate = *(*site.body)[site.position];
    Node& end = phases.last_item ? *phases.last_item : rotate;
    auto begins = phases.first.find(to);
    if (begins != phases.first.end())
      wait_before(*begins->second, to, sem, 1);
    else
      event(rotate.after, engine_of(to), true).waits.push_back({sem, 1});
    auto ends = phases.last.find(from);
    if (ends == phases.last.end()) {
      // This use of the slot does not involve the lane. Its post must still follow the tile's real last users.
      Instruction& post = event_after(end, engine_of(from));
      for (auto& [lane, node] : phases.last) {
        if (lane == from || engine_lane(lane) == static_cast<int>(engine_of(from))) continue;
        const int16_t done = semaphore(0);
        post.waits.push_back({done, post_after(*node, lane, done, pool, site.slot)});
      }
      post.posts.push_back({sem, 1});
      return;
    }
    Node& last = *ends->second;
    if (!last.loop() || from < isa::kEngines) {
      post_after(last, from, sem, pool, site.slot);
      return;
    }
    // A queue that used the tile inside a loop: gather its tokens into one.
    const int16_t each = semaphore(0);
    const int tokens = post_after(last, from, each, pool, site.slot);
    Instruction& gather = event_after(end, engine_of(from));
    gather.waits.push_back({each, tokens});
    gather.posts.push_back({sem, 1});
  }

  static int engine_lane(Lane lane) { return lane < isa::kEngines ? lane : -1; }

  static Instruction& event_after(Node& item, Engine engine) {
    item.after.emplace_back();
    item.after.back().opcode = Opcode::event_semaphore;
    item.after.back().engine = engine;
    return item.after.back();
  }

  // Every use of a slot register lies behind its rotate, in the same body or deeper.
  void check_scopes(int16_t pool, const std::vector<Site>& sites) const {
    for (const Site& site : sites) {
      size_t inside = 0;
      for (size_t k = site.position + 1; k < site.body->size(); ++k) inside += count_uses(*(*site.body)[k], pool, site.slot);
      size_t all = 0;
      for (const auto& node : top_) all += count_uses(*node, pool, site.slot);
      if (inside != all)
        throw InternalError(fmt::format("synchronize: a tile of pool {} is used outside the body that took it",
                                        pools_[pool].name));
    }
  }

  static size_t count_uses(const Node& node, int16_t pool, int16_t slot) {
    size_t n = 0;
    for (const TileUse& t : node.tiles)
      if (t.slot == slot && t.pool == pool) n += t.operands;
    return n;
  }

  static void flatten(const Body& body, std::vector<Instruction>& result) {
    for (const auto& node : body) {
      result.insert(result.end(), node->before.begin(), node->before.end());
      result.push_back(node->instruction);
      if (node->loop()) {
        flatten(node->body, result);
        Instruction end;
        end.opcode = Opcode::loop_end;
        end.reg = node->instruction.reg;
        result.push_back(end);
      }
      result.insert(result.end(), node->after.begin(), node->after.end());
    }
  }

  const std::vector<isa::Pool>& pools_;
  std::vector<isa::Semaphore>& semaphores_;
  Body top_;
  std::map<int16_t, std::vector<Site>> sites_;
  std::array<Engine, isa::kMaxQueues> queue_engine_{};
  std::set<int16_t> taken_;
};

}  // namespace

std::vector<Instruction> synchronize(std::vector<Instruction> code, const std::vector<isa::Pool>& pools,
                                     std::vector<isa::Semaphore>& semaphores) {
  return Synchronizer(pools, semaphores).run(std::move(code));
}

}  // namespace opentrn::compiler
