#include "isa/order_plan.h"

#include <algorithm>

#include "isa/names.h"

namespace opentrn::isa {
namespace {

// A loop that changes a semaphore by its end and is this short is walked in full.
constexpr int64_t kShortLoop = 16;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool add_product(int64_t& sum, int64_t a, int64_t b) {
  int64_t product;
  return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(sum, product, &sum) &&
         sum < INT64_MAX / 4 && sum > -INT64_MAX / 4;
}

Access make_access(const OperandUse& use, const Instruction& i, const std::vector<int>& roots) {
  const AccessPattern& ap = *use.pattern;
  Access a;
  a.memory = ap.memory;
  a.index = ap.memory == Memory::hbm ? roots[ap.buffer] : ap.buffer;
  a.slot = ap.slot;
  a.partition = ap.partition;
  a.partitions = ap.partitions;
  a.reads = use.reads;
  a.writes = use.writes;
  a.matmul_result = i.opcode == Opcode::nc_matmul && use.writes;
  a.accumulates = a.matmul_result && i.accumulate;
  a.set = byte_set(ap);
  if (use.indirect) a.set.add({i.row_bytes, std::max<int64_t>(i.rows, 1)});
  for (const Term& term : ap.terms) {
    auto same = std::find_if(a.terms.begin(), a.terms.end(), [&](const Term& t) { return t.reg == term.reg; });
    if (same != a.terms.end())
      same->bytes += term.bytes;
    else if (term.bytes != 0)
      a.terms.push_back(term);
  }
  return a;
}

// How the accesses inside a loop to one memory (a buffer or a pool) depend on the loop's register.
struct Dependence {
  Memory memory;
  int index;
  int64_t bytes;  // of the first access
  bool uneven = false, written = false;
};

// Per loop and outside of all loops: what one pass through the body does.
struct Effects {
  std::vector<Dependence> dependences;
  std::vector<int64_t> net;        // per semaphore, real trip counts
  std::vector<int64_t> waits;      // per semaphore, walked iterations
  std::vector<int64_t> rotations;  // per pool, walked iterations
  int64_t barriers = 0;
};

}  // namespace

bool plan_order(const Program& program, int core_index, const std::vector<int>& roots, int& next_lane,
                OrderPlan& plan) {
  const CoreProgram& core = program.cores[core_index];
  const size_t semaphores = core.semaphores.size(), pools = core.pools.size();
  std::fill(std::begin(plan.lanes), std::end(plan.lanes), -1);
  auto lane = [&](int local) {
    if (plan.lanes[local] < 0) plan.lanes[local] = next_lane++;
    return plan.lanes[local];
  };
  plan.steps.resize(core.code.size());
  plan.last_use.assign(pools, -1);
  plan.posters.assign(semaphores, -1);
  plan.waiters.assign(semaphores, -1);
  auto note_lane = [](int& slot, int lane) { slot = slot == -1 || slot == lane ? lane : -2; };

  std::vector<Effects> frames(1);
  auto reset = [&](Effects& e) {
    e.net.assign(semaphores, 0);
    e.waits.assign(semaphores, 0);
    e.rotations.assign(pools, 0);
    e.barriers = 0;
    e.dependences.clear();
  };
  auto note_dependence = [](Effects& e, const Access& access, int16_t reg) {
    int64_t bytes = 0;
    for (const Term& term : access.terms)
      if (term.reg == reg) bytes = term.bytes;
    auto same = std::find_if(e.dependences.begin(), e.dependences.end(),
                             [&](const Dependence& d) { return d.memory == access.memory && d.index == access.index; });
    if (same == e.dependences.end()) same = e.dependences.insert(same, {access.memory, access.index, bytes});
    same->uneven |= same->bytes != bytes;
    same->written |= access.writes;
  };
  reset(frames[0]);
  std::vector<int> open;
  std::vector<int> touched;  // pools used inside the outermost open loop
  bool fits = true;

  for (size_t k = 0; k < core.code.size(); ++k) {
    const Instruction& i = core.code[k];
    PlannedStep& step = plan.steps[k];
    Effects& effects = frames[open.size()];
    auto touch = [&](int pool) {
      plan.last_use[pool] = static_cast<int>(k);
      if (!open.empty()) touched.push_back(pool);
    };
    switch (i.opcode) {
      case Opcode::loop_begin: {
        step.loop = static_cast<int>(plan.loops.size());
        PlannedLoop loop;
        loop.begin = static_cast<int>(k);
        loop.reg = i.reg;
        loop.trip = i.count;
        plan.loops.push_back(loop);
        open.push_back(step.loop);
        if (frames.size() <= open.size()) frames.emplace_back();
        reset(frames[open.size()]);
        continue;
      }
      case Opcode::loop_end: {
        PlannedLoop& loop = plan.loops[open.back()];
        step.loop = open.back();
        loop.end = static_cast<int>(k);
        open.pop_back();
        Effects& outer = frames[open.size()];
        const Effects& inner = frames[open.size() + 1];
        // Enough iterations to see each rotation wrap and each initial token used up.
        loop.walk = 2;
        for (size_t p = 0; p < pools; ++p)
          if (inner.rotations[p] > 0)
            loop.walk = std::max(loop.walk, ceil_div(core.pools[p].depth, inner.rotations[p]) + 1);
        for (size_t s = 0; s < semaphores; ++s) {
          if (inner.waits[s] > 0 && core.semaphores[s].initial > 0)
            loop.walk = std::max(loop.walk, ceil_div(core.semaphores[s].initial, inner.waits[s]) + 1);
          if (inner.net[s] != 0) loop.net.push_back({static_cast<int16_t>(s), inner.net[s]});
        }
        if (!loop.net.empty() && loop.trip <= kShortLoop) loop.walk = loop.trip;
        for (const Dependence& d : inner.dependences)
          if (d.uneven && d.written) loop.ranged = 2;
        loop.walk = std::min(loop.walk + loop.ranged - 1, loop.trip);
        loop.has_barrier = inner.barriers > 0;
        for (size_t s = 0; s < semaphores; ++s) {
          fits &= add_product(outer.net[s], inner.net[s], loop.trip);
          fits &= add_product(outer.waits[s], inner.waits[s], loop.walk);
        }
        for (size_t p = 0; p < pools; ++p) fits &= add_product(outer.rotations[p], inner.rotations[p], loop.walk);
        fits &= add_product(outer.barriers, inner.barriers, loop.trip);
        if (!fits) return false;
        if (open.empty()) {
          for (int pool : touched) plan.last_use[pool] = static_cast<int>(k);
          touched.clear();
        }
        continue;
      }
      case Opcode::rotate:
        ++effects.rotations[i.pool];
        touch(i.pool);
        continue;
      case Opcode::barrier: ++effects.barriers; continue;
      default: break;
    }
    step.engine_lane = lane(static_cast<int>(i.engine));
    step.lane = is_dma(i.opcode) ? lane(kEngines + i.queue) : step.engine_lane;
    for (const Signal& s : i.waits) {
      fits &= add_product(effects.net[s.semaphore], -1, s.count);
      fits &= add_product(effects.waits[s.semaphore], 1, s.count);
      note_lane(plan.waiters[s.semaphore], step.engine_lane);
    }
    for (const Signal& s : i.posts) {
      fits &= add_product(effects.net[s.semaphore], 1, s.count);
      note_lane(plan.posters[s.semaphore], step.lane);
    }
    step.first_access = static_cast<int>(plan.accesses.size());
    for (const OperandUse& use : operand_uses(i, program)) {
      if (use.indirect && i.rows == 0) continue;
      plan.accesses.push_back(make_access(use, i, roots));
      for (size_t depth = 0; depth < open.size(); ++depth)
        note_dependence(frames[depth + 1], plan.accesses.back(), plan.loops[open[depth]].reg);
      if (use.pattern->memory != Memory::hbm) touch(use.pattern->buffer);
    }
    step.accesses = static_cast<int>(plan.accesses.size()) - step.first_access;
  }
  plan.barriers = frames[0].barriers;

  // Loops that hand tokens to each other are walked equally often, so that their iterations pair up.
  int64_t common = 0;
  for (const PlannedLoop& loop : plan.loops)
    if (!loop.net.empty() && loop.trip > kShortLoop) common = std::max(common, loop.walk);
  for (PlannedLoop& loop : plan.loops)
    if (!loop.net.empty() && loop.trip > kShortLoop) loop.walk = std::min(loop.trip, common);
  return fits;
}

void align_barriers(std::vector<OrderPlan>& plans) {
  int64_t common = 0;
  for (const OrderPlan& plan : plans)
    for (const PlannedLoop& loop : plan.loops)
      if (loop.has_barrier) common = std::max(common, loop.walk);
  for (OrderPlan& plan : plans)
    for (PlannedLoop& loop : plan.loops)
      if (loop.has_barrier) loop.walk = std::min(loop.trip, common);
}

}  // namespace opentrn::isa
