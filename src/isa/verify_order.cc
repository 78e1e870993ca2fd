#include "isa/verify_order.h"

#include <unordered_set>

#include <fmt/format.h>

#include "isa/names.h"
#include "isa/order_plan.h"
#include "isa/order_state.h"
#include "isa/text.h"

namespace opentrn::isa {
namespace {

constexpr int64_t kWalkLimit = 4'000'000;  // instructions walked before the proof gives up
constexpr int64_t kFullWalk = 100'000;     // up to here a verdict against a program is checked without cutting loops
constexpr int64_t kMaxRuns = 64;           // runs of a strided operand that are looked at one by one

class OrderWalk {
 public:
  // `in_full`: walk every iteration of every loop.
  OrderWalk(const Program& program, bool in_full, Findings& findings)
      : program_(program), in_full_(in_full), findings_(findings) {}

  void check() {
    std::vector<int> roots(program_.buffers.size());
    buffers_.resize(roots.size());
    for (size_t b = 0; b < roots.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      roots[b] = buffer.alias >= 0 ? roots[buffer.alias] : static_cast<int>(b);
      if (buffer.kind == Buffer::Kind::input || buffer.kind == Buffer::Kind::constant)
        buffers_[roots[b]].has_contents = true;
    }
    plans_.resize(program_.cores.size());
    for (size_t c = 0; c < plans_.size(); ++c)
      if (!plan_order(program_, static_cast<int>(c), roots, lanes_, plans_[c]))
        return findings_.add(static_cast<int>(c), -1, "the loops' token counts do not fit 64 bits");
    align_barriers(plans_);
    if (in_full_)
      for (OrderPlan& plan : plans_)
        for (PlannedLoop& loop : plan.loops) loop.walk = loop.trip;
    for (const OrderPlan& plan : plans_)
      for (const Access& access : plan.accesses)
        if (access.memory == Memory::hbm && access.writes) buffers_[access.index].ever_written = true;
    for (const OrderPlan& plan : plans_)
      if (plan.barriers != plans_[0].barriers)
        return findings_.add(
            static_cast<int>(&plan - plans_.data()), -1,
            fmt::format("this core meets {} barriers, core 0 meets {}", plan.barriers, plans_[0].barriers));
    clocks_.resize(lanes_);
    for (size_t c = 0; c < plans_.size(); ++c) prepare(static_cast<int>(c));
    if (!walk()) return;
    for (size_t c = 0; c < plans_.size(); ++c) finish(static_cast<int>(c));
    outputs(roots);
  }

 private:
  void prepare(int c) {
    const CoreProgram& core = program_.cores[c];
    const OrderPlan& plan = plans_[c];
    CoreState& s = cores_.emplace_back();
    s.value.assign(core.loop_registers, 0);
    s.range.assign(core.loop_registers, Range{});
    s.semaphores.resize(core.semaphores.size());
    for (size_t k = 0; k < core.semaphores.size(); ++k) {
      SemaphoreState& semaphore = s.semaphores[k];
      semaphore.shared = plan.posters[k] == -2 || plan.waiters[k] == -2;
      if (core.semaphores[k].initial > 0) {
        semaphore.tokens.emplace_back().count = core.semaphores[k].initial;
        semaphore.total = core.semaphores[k].initial;
      }
    }
    int slots = 0;
    for (const Pool& pool : core.pools) {
      s.first_slot.push_back(slots);
      slots += pool.depth;
    }
    s.slots.resize(slots);
    s.rotations.assign(core.pools.size(), 0);
    s.registers.resize(core.slot_registers);
    s.clashes.resize(core.pools.size());
  }

  // All cores to their next barrier, again and again. False when the walk was given up.
  bool walk() {
    while (true) {
      int at_barrier = 0;
      for (size_t c = 0; c < cores_.size(); ++c) {
        if (!run(static_cast<int>(c))) return false;
        at_barrier += cores_[c].pc < program_.cores[c].code.size();
      }
      if (at_barrier == 0) return true;
      if (at_barrier != static_cast<int>(cores_.size())) {
        findings_.add(0, -1, "the cores meet at barriers in loops of different shape; the order cannot be proved");
        return false;
      }
      barrier();
    }
  }

  void barrier() {
    Clock all;
    for (int l = 0; l < lanes_; ++l) all.time[l] = clocks_[l].time[l];
    for (Clock& clock : clocks_) clock = all;
    for (BufferState& buffer : buffers_) buffer.history.clear();
    for (size_t c = 0; c < cores_.size(); ++c) {
      CoreState& s = cores_[c];
      for (Slot& slot : s.slots) slot.history.clear();
      // Pools without further use hold nothing any more; what remains keeps its contents.
      const OrderPlan& plan = plans_[c];
      std::erase_if(s.active, [&](int pool) { return plan.last_use[pool] < static_cast<int>(s.pc); });
      for (auto& list : s.clashes)
        std::erase_if(list, [&](int pool) { return plan.last_use[pool] < static_cast<int>(s.pc); });
      ++s.pc;
    }
  }

  // Walks core c until a barrier or its end.
  bool run(int c) {
    const CoreProgram& core = program_.cores[c];
    const OrderPlan& plan = plans_[c];
    CoreState& s = cores_[c];
    for (; s.pc < core.code.size(); ++s.pc) {
      const Instruction& i = core.code[s.pc];
      if (++steps_ > kWalkLimit) {
        findings_.add(c, -1,
                      fmt::format("the order proof gave up after {} instructions; the program has too many loop "
                                  "levels or pools that are too deep",
                                  kWalkLimit));
        return false;
      }
      if (findings_.full()) return false;
      switch (i.opcode) {
        case Opcode::loop_begin: {
          s.loops.push_back({plan.steps[s.pc].loop, 0, ++entries_});
          s.value[i.reg] = 0;
          const PlannedLoop& loop = plan.loops[s.loops.back().loop];
          s.range[i.reg] = Range{};
          if (loop.walk < loop.trip) s.range[i.reg].entry = s.loops.back().entry;
          break;
        }
        case Opcode::loop_end: {
          const PlannedLoop& loop = plan.loops[plan.steps[s.pc].loop];
          LoopState& state = s.loops.back();
          if (++state.iteration == loop.walk) {
            s.range[loop.reg] = Range{};
            s.loops.pop_back();
            break;
          }
          const int64_t first_ranged = loop.walk < loop.trip ? loop.walk - loop.ranged : loop.trip;
          s.value[loop.reg] = std::min(state.iteration, first_ranged);
          s.range[loop.reg].value = s.value[loop.reg];
          s.range[loop.reg].instance = ++instances_;
          if (state.iteration >= first_ranged) {
            const int64_t count = loop.trip - first_ranged;
            s.range[loop.reg].count = count;
            state.weight = state.iteration == first_ranged ? count - loop.ranged + 1 : 1;
          }
          if (state.iteration == first_ranged) skip_ahead(c, loop);
          s.pc = loop.begin;
          break;
        }
        case Opcode::rotate: rotate(c, i); break;
        case Opcode::barrier: return true;
        default: step(c, i, plan.steps[s.pc]);
      }
    }
    return true;
  }

  // The semaphores as the iterations that are not walked leave them, before the last ones.
  void skip_ahead(int c, const PlannedLoop& loop) {
    CoreState& s = cores_[c];
    for (auto [index, net] : loop.net) {
      SemaphoreState& semaphore = s.semaphores[index];
      const int64_t amount = net * (loop.trip - loop.walk);
      if (amount > 0) {
        Token token;
        token.count = amount;
        // The skipped posts came after those walked, in the same lane.
        if (plans_[c].posters[index] >= 0 && !semaphore.tokens.empty()) token.clock = semaphore.tokens.back().clock;
        semaphore.tokens.push_back(token);
        semaphore.total += amount;
      } else {
        Clock clock;
        consume(c, index, -amount, clock, nullptr, loop.begin);
        if (plans_[c].waiters[index] >= 0) clocks_[plans_[c].waiters[index]].join(clock, lanes_);
      }
    }
  }

  void rotate(int c, const Instruction& i) {
    CoreState& s = cores_[c];
    const Pool& pool = program_.cores[c].pools[i.pool];
    const int slot = static_cast<int>(s.rotations[i.pool]++ % pool.depth);
    Slot& state = s.slots[s.first_slot[i.pool] + slot];
    ++state.generation;
    state.written.clear();
    s.registers[i.reg] = {i.pool, slot, state.generation};
    if (s.rotations[i.pool] == 1) activate(c, i.pool);
  }

  void activate(int c, int pool) {
    CoreState& s = cores_[c];
    const Pool& p = program_.cores[c].pools[pool];
    for (int other : s.active) {
      const Pool& q = program_.cores[c].pools[other];
      if (p.memory == q.memory && p.offset < q.offset + q.bytes * q.depth && q.offset < p.offset + p.bytes * p.depth) {
        s.clashes[pool].push_back(other);
        s.clashes[other].push_back(pool);
      }
    }
    s.active.push_back(pool);
  }

  // Takes tokens first in, first out; joins what their posters knew.
  void consume(int c, int index, int64_t count, Clock& clock, WaitEvent* event, int instruction) {
    SemaphoreState& semaphore = cores_[c].semaphores[index];
    if (semaphore.total < count) {
      if (!semaphore.broken)
        findings_.add(c, instruction,
                      fmt::format("waits for {} of semaphore '{}', but only {} are left when everything before it in "
                                  "program order has completed: this never ends",
                                  count, program_.cores[c].semaphores[index].name, semaphore.total));
      semaphore.broken = true;
      count = semaphore.total;
    }
    semaphore.total -= count;
    while (count > 0) {
      Token& token = semaphore.tokens[semaphore.head];
      clock.join(token.clock, lanes_);
      if (event && token.post >= 0) event->consumed.push_back(token.post);
      const int64_t taken = std::min(count, token.count);
      token.count -= taken;
      count -= taken;
      if (token.count == 0) ++semaphore.head;
    }
    // The newest token stays for skip_ahead, which asks what the last poster knew.
    if (semaphore.head > 32 && 2 * semaphore.head > semaphore.tokens.size()) {
      const size_t used = std::min(semaphore.head, semaphore.tokens.size() - 1);
      semaphore.tokens.erase(semaphore.tokens.begin(), semaphore.tokens.begin() + used);
      semaphore.head -= used;
    }
  }

  bool in_range(const CoreState& s) const {
    const OrderPlan& plan = plans_[&s - cores_.data()];
    for (const LoopState& loop : s.loops)
      if (s.range[plan.loops[loop.loop].reg].count > 1) return true;
    return false;
  }

  static int64_t weight(const CoreState& s) {
    int64_t product = 1;
    for (const LoopState& loop : s.loops)
      product = std::min<int64_t>(product * std::min<int64_t>(loop.weight, 1 << 20), int64_t{1} << 40);
    return product;
  }

  void step(int c, const Instruction& i, const PlannedStep& planned) {
    CoreState& s = cores_[c];
    const int index = static_cast<int>(s.pc);
    Clock& engine = clocks_[planned.engine_lane];
    for (const Signal& wait : i.waits) {
      SemaphoreState& semaphore = s.semaphores[wait.semaphore];
      if (!semaphore.shared) {
        consume(c, wait.semaphore, wait.count, engine, nullptr, index);
        continue;
      }
      WaitEvent event;
      consume(c, wait.semaphore, wait.count, engine, &event, index);
      event.count = wait.count;
      event.weight = weight(s);
      event.ranged = in_range(s);
      event.lane = planned.engine_lane;
      event.instruction = index;
      semaphore.pairing.waits.push_back(std::move(event));
    }
    ++engine.time[planned.engine_lane];
    for (const Signal& wait : i.waits)
      if (s.semaphores[wait.semaphore].shared) s.semaphores[wait.semaphore].pairing.waits.back().clock = engine;
    if (planned.lane != planned.engine_lane) {
      trigger(c, i, planned, index);
      Clock& queue = clocks_[planned.lane];
      queue.join(engine, lanes_);
      ++queue.time[planned.lane];
    }
    const Clock& clock = clocks_[planned.lane];
    accesses(c, planned, index, clock);
    for (const Signal& post : i.posts) {
      SemaphoreState& semaphore = s.semaphores[post.semaphore];
      Token token;
      token.count = post.count;
      token.clock = clock;
      if (semaphore.shared) {
        token.post = static_cast<int>(semaphore.pairing.posts.size());
        semaphore.pairing.posts.push_back({clock, post.count, weight(s), planned.lane, index});
      }
      semaphore.tokens.push_back(token);
      semaphore.total += post.count;
    }
  }

  // A queue keeps the order in which it is triggered: two engines may share it only if that order is fixed.
  void trigger(int c, const Instruction& i, const PlannedStep& planned, int index) {
    CoreState::Trigger& last = cores_[c].triggers[i.queue];
    const Clock& engine = clocks_[planned.engine_lane];
    if (last.lane >= 0 && last.lane != planned.engine_lane && engine.time[last.lane] < last.time &&
        once(c, index, c, -1))
      findings_.add(c, index,
                    fmt::format("queue q{} is triggered by two engines and nothing orders their triggers; "
                                "use one queue for each engine",
                                i.queue));
    last = {planned.engine_lane, engine.time[planned.engine_lane]};
  }

  // ---- memory
  void accesses(int c, const PlannedStep& planned, int index, const Clock& clock) {
    const OrderPlan& plan = plans_[c];
    Record* const records = records_;
    for (int a = 0; a < planned.accesses; ++a) {
      const Access& access = plan.accesses[planned.first_access + a];
      Record& record = records[a];
      record.access = &access;
      record.ranges.clear();
      record.core = static_cast<int16_t>(c);
      record.instruction = index;
      record.lane = static_cast<int16_t>(planned.lane);
      record.time = clock.time[planned.lane];
      if (!locate(c, record)) {
        record.access = nullptr;
        continue;
      }
      if (access.memory == Memory::hbm)
        check_hbm(record, clock);
      else
        check_on_chip(record, clock);
    }
    for (int a = 0; a < planned.accesses; ++a)
      if (records[a].access) add(records[a], clock);
  }

  // Fills in the addresses. False when the slot register does not hold a tile of the pool.
  bool locate(int c, Record& record) {
    CoreState& s = cores_[c];
    const Access& access = *record.access;
    int64_t base = access.set.base;
    if (access.memory != Memory::hbm) {
      const SlotRegister& reg = s.registers[access.slot];
      const Pool& pool = program_.cores[c].pools[access.index];
      if (reg.pool != access.index) {
        if (once(c, record.instruction, c, -2))
          findings_.add(c, record.instruction,
                        reg.pool < 0 ? fmt::format("slot register t{} is used before a rotate writes it", access.slot)
                                     : fmt::format("slot register t{} holds a slot of pool '{}', not of '{}'",
                                                   access.slot, program_.cores[c].pools[reg.pool].name, pool.name));
        return false;
      }
      if (s.slots[s.first_slot[reg.pool] + reg.slot].generation != reg.generation) {
        if (once(c, record.instruction, c, -2))
          findings_.add(c, record.instruction,
                        fmt::format("slot register t{} names a tile whose slot in pool '{}' was taken again by a later "
                                    "rotate (the pool has {} slots)",
                                    access.slot, pool.name, pool.depth));
        return false;
      }
      base += pool.offset + reg.slot * pool.bytes;
    }
    for (const Term& term : access.terms) {
      base += term.bytes * s.value[term.reg];
      const Range& range = s.range[term.reg];
      if (range.entry == 0) continue;
      record.ranges.push_back(range);
      record.ranges.back().bytes = term.bytes;
    }
    record.base = base;
    record.low = base;
    record.high = base + (access.set.end() - access.set.base);
    for (const Range& range : record.ranges) {
      const int64_t reach = range.bytes * (range.count - 1);
      (reach < 0 ? record.low : record.high) += reach;
    }
    record.divisor = divisor_of(record);
    return true;
  }

  void check_hbm(const Record& record, const Clock& clock) {
    BufferState& buffer = buffers_[record.access->index];
    if (record.access->reads && !buffer.has_contents && !buffer.written.covers(record.low, record.high) &&
        once(record.core, record.instruction, record.core, -3))
      findings_.add(record.core, record.instruction,
                    fmt::format("reads bytes {} to {} of '{}', of which byte {} was never written", record.low,
                                record.high - 1, program_.buffers[record.access->index].name,
                                buffer.written.first_missing(record.low, record.high)));
    if (!buffer.ever_written) return;
    buffer.history.check(record, record.access->writes, clock, lanes_,
                         [&](const Record& earlier) { race(earlier, record); });
  }

  Slot& slot_of(const Record& record) {
    CoreState& s = cores_[record.core];
    const SlotRegister& reg = s.registers[record.access->slot];
    return s.slots[s.first_slot[reg.pool] + reg.slot];
  }

  void check_on_chip(const Record& record, const Clock& clock) {
    CoreState& s = cores_[record.core];
    const Access& access = *record.access;
    Slot& slot = slot_of(record);
    const PartitionMask mask = partition_mask(access.partition, access.partitions);
    if (access.reads) {
      if (!covered(slot.written, record, mask, false)) {
        if (once(record.core, record.instruction, record.core, -3))
          findings_.add(record.core, record.instruction,
                        fmt::format("reads a tile of pool '{}' that was not (or not completely) written since its "
                                    "rotate",
                                    program_.cores[record.core].pools[access.index].name));
      } else if (access.accumulates && !covered(slot.written, record, mask, true)) {
        if (once(record.core, record.instruction, record.core, -4))
          findings_.add(record.core, record.instruction,
                        "accumulates onto psum contents that no nc_matmul wrote; the result is undefined");
      }
    }
    auto report = [&](const Record& earlier) { race(earlier, record); };
    slot.history.check(record, access.writes, clock, lanes_, report);
    for (int other : s.clashes[access.index]) {
      const Pool& pool = program_.cores[record.core].pools[other];
      for (int k = 0; k < pool.depth; ++k) {
        const int64_t low = pool.offset + k * pool.bytes;
        if (low >= record.high || low + pool.bytes <= record.low) continue;
        Slot& clashing = s.slots[s.first_slot[other] + k];
        clashing.history.check(record, access.writes, clock, lanes_, report);
        if (access.writes) clashing.written.forget(record.low, record.high, mask);
      }
    }
  }

  template <typename F>
  static void for_runs(const ByteSet& set, const F& f) {
    SmallVector<int64_t, kMaxSteps> index;
    index.resize(set.steps.size());
    for (int64_t n = std::min(set.runs(), kMaxRuns); n > 0; --n) {
      int64_t low = set.base;
      for (size_t k = 0; k < set.steps.size(); ++k) low += set.steps[k].bytes * index[k];
      f(low, low + set.run);
      for (size_t k = 0; k < set.steps.size() && ++index[k] == set.steps[k].count; ++k) index[k] = 0;
    }
  }

  static bool covered(const Written& written, const Record& record, PartitionMask mask, bool matmul) {
    if (written.covers(record.low, record.high, mask, matmul)) return true;
    const ByteSet set = all_bytes(record);
    if (set.steps.empty()) return false;
    bool all = true;
    for_runs(set, [&](int64_t low, int64_t high) { all &= written.covers(low, high, mask, matmul); });
    return all;
  }

  void add(const Record& record, const Clock& clock) {
    const Access& access = *record.access;
    if (access.memory == Memory::hbm) {
      BufferState& buffer = buffers_[access.index];
      if (!buffer.ever_written) return;
      if (access.writes) buffer.written.add(record.low, record.high);
      remember(buffer.history, record);
      return;
    }
    Slot& slot = slot_of(record);
    if (access.writes) {
      const PartitionMask mask = partition_mask(access.partition, access.partitions);
      const ByteSet set = all_bytes(record);
      if (set.steps.empty() || set.runs() > kMaxRuns)
        slot.written.write(record.low, record.high, mask, access.matmul_result);
      else
        for_runs(set, [&](int64_t low, int64_t high) { slot.written.write(low, high, mask, access.matmul_result); });
      // A write of the whole slot that follows everything else makes the rest irrelevant.
      const Pool& pool = program_.cores[record.core].pools[access.index];
      if (slot.history.size() > 8 && set.steps.empty() && record.high - record.low == pool.bytes &&
          access.partitions == 128 && slot.history.all_before(clock, lanes_))
        slot.history.clear();
    }
    remember(slot.history, record);
  }

  // Adds the record; now and then drops those that every engine is known to be past.
  void remember(History& history, const Record& record) {
    history.add(record, record.access->writes);
    if (history.size() < 128 || (history.size() & (history.size() - 1)) != 0) return;
    Clock floor;
    floor.time.fill(UINT32_MAX);
    for (const OrderPlan& plan : plans_)
      for (int engine = 0; engine < kEngines; ++engine)
        if (plan.lanes[engine] >= 0)
          for (int l = 0; l < lanes_; ++l) floor.time[l] = std::min(floor.time[l], clocks_[plan.lanes[engine]].time[l]);
    history.drop_before(floor);
  }

  // ---- findings
  // True the first time for a pair of instructions (or an instruction and a negative kind of finding).
  bool once(int core_a, int a, int core_b, int b) {
    const uint64_t key = static_cast<uint64_t>(core_a) << 63 ^ static_cast<uint64_t>(core_b) << 62 ^
                         static_cast<uint64_t>(a) << 32 ^ static_cast<uint32_t>(b);
    return reported_.insert(key).second;
  }

  void race(const Record& earlier, const Record& now) {
    if (!once(now.core, now.instruction, earlier.core, earlier.instruction)) return;
    const CoreProgram& core = program_.cores[earlier.core];
    const char* what = now.access->writes
                           ? (earlier.access->writes ? "both write" : "this one writes what the other reads")
                           : "this one reads what the other writes";
    findings_.add(
        now.core, now.instruction,
        fmt::format("race: {}, and neither engine order, queue order, semaphores nor barriers put it after "
                    "instruction {} of core {}: {}",
                    what, earlier.instruction, earlier.core, print(core.code[earlier.instruction], core, program_)));
  }

  void finish(int c) {
    const CoreProgram& core = program_.cores[c];
    CoreState& s = cores_[c];
    for (size_t k = 0; k < core.semaphores.size(); ++k) {
      SemaphoreState& semaphore = s.semaphores[k];
      if (semaphore.broken) continue;
      if (semaphore.total != core.semaphores[k].initial)
        findings_.add(c, -1,
                      fmt::format("semaphore '{}' starts at {} and ends at {}; a program leaves its semaphores "
                                  "as it found them",
                                  core.semaphores[k].name, core.semaphores[k].initial, semaphore.total));
      else if (semaphore.shared)
        uncertain(c, core.semaphores[k], semaphore.pairing);
    }
  }

  void uncertain(int c, const Semaphore& semaphore, const Pairing& pairing) {
    const auto pair = pairing.find_uncertain(semaphore.initial);
    if (!pair) return;
    const CoreProgram& core = program_.cores[c];
    findings_.add(c, pair->wait,
                  fmt::format("the wait on '{}' may be satisfied by other posts before instruction {} has "
                              "posted: {}; use one semaphore for each engine or queue that posts",
                              semaphore.name, pair->post, print(core.code[pair->post], core, program_)));
  }

  void outputs(const std::vector<int>& roots) {
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      if (buffer.kind != Buffer::Kind::output || buffer.alias >= 0) continue;
      // A tensor's layout may leave gaps between its rows, so not every byte has to be written.
      if (buffer.bytes > 0 && !buffers_[roots[b]].ever_written)
        findings_.add(0, -1, fmt::format("output '{}' of {} bytes is never written", buffer.name, buffer.bytes));
    }
  }

  const Program& program_;
  const bool in_full_;
  Findings& findings_;
  std::vector<OrderPlan> plans_;
  std::vector<CoreState> cores_;
  std::vector<BufferState> buffers_;
  std::vector<Clock> clocks_;  // per lane
  Record records_[8];          // of the instruction at hand
  int lanes_ = 0;
  uint32_t instances_ = 0, entries_ = 0;
  int64_t steps_ = 0;
  std::unordered_set<uint64_t> reported_;
};

// Instructions executed, all iterations counted, limited to 32 bits.
int64_t executed(const Program& program) {
  constexpr int64_t kLimit = INT32_MAX;
  int64_t sum = 0;
  for (const CoreProgram& core : program.cores) {
    std::vector<int64_t> times{1};
    for (const Instruction& i : core.code) {
      if (i.opcode == Opcode::loop_begin) times.push_back(std::min(kLimit, times.back() * std::min(kLimit, i.count)));
      sum = std::min(kLimit, sum + times.back());
      if (i.opcode == Opcode::loop_end) times.pop_back();
    }
  }
  return sum;
}

}  // namespace

void check_order(const Program& program, const spec::Chip&, Findings& findings) {
  Findings found;
  OrderWalk(program, false, found).check();
  if (found.empty()) return;
  // What stands for many iterations may suspect a race that none of them has. Short programs are worth a second look.
  if (executed(program) <= kFullWalk) {
    found = {};
    OrderWalk(program, true, found).check();
  }
  findings.add(found.take());
}

}  // namespace opentrn::isa
