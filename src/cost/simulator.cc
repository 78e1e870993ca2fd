#include "cost/simulator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace opentrn::cost {

namespace {
constexpr int kTensor = static_cast<int>(isa::Engine::tensor);
constexpr int kVector = static_cast<int>(isa::Engine::vector);
constexpr int kGpsimd = static_cast<int>(isa::Engine::gpsimd);
}  // namespace

void SemaphoreState::post(int64_t time_ps, int32_t count, int32_t event) {
  if (tail_ - head_ > mask_) {
    std::vector<Token> larger(2 * ring_.size());
    uint32_t n = 0;
    for (uint32_t i = head_; i != tail_; ++i) larger[n++] = ring_[i & mask_];
    ring_ = std::move(larger);
    mask_ = static_cast<uint32_t>(ring_.size()) - 1;
    head_ = 0;
    tail_ = n;
  }
  uint32_t at = tail_++;
  for (; at != head_ && ring_[(at - 1) & mask_].time_ps > time_ps; --at) ring_[at & mask_] = ring_[(at - 1) & mask_];
  ring_[at & mask_] = {time_ps, count, event};
}

int64_t SemaphoreState::when(int64_t count) const {
  int64_t have = ripe;
  if (have >= count) return 0;
  for (uint32_t i = head_; i != tail_; ++i) {
    const Token& t = ring_[i & mask_];
    have += t.count;
    if (have >= count) return t.time_ps;
  }
  return kNever;
}

Simulator::Simulator(const DecodedCore& core, const CoreParameters& parameters, int core_number, bool skip_ahead,
                     Timeline* timeline, int64_t limit)
    : core_(core), parameters_(parameters), core_number_(core_number), skip_ahead_(skip_ahead && !timeline),
      timeline_(timeline), limit_(limit) {
  if (parameters.dma_engines > kMaxDmaEngines)
    throw InternalError(fmt::format("timing: {} DMA engines, at most {}", parameters.dma_engines, kMaxDmaEngines));
  counters_.assign(core.loops.size() * isa::kEngines, 0);
  semaphores_.resize(core.initial.size());
  for (size_t i = 0; i < core.initial.size(); ++i) semaphores_[i].ripe = core.initial[i];
  done_.assign(static_cast<size_t>(core.done_slots), 0);
  snapshots_.resize(core.loops.size());
  done_event_.assign(static_cast<size_t>(core.done_slots), -1);
  last_event_.fill(-1);
  next_.fill(kNever);
  for (int e = 0; e < isa::kEngines; ++e) {
    engines_[static_cast<size_t>(e)].step = -1;
    advance(e);
    look_ahead(e);
  }
}

// Moves the cursor to the engine's next instruction, through the loop steps between.
void Simulator::advance(int e) {
  EngineState& engine = engines_[static_cast<size_t>(e)];
  const Step* steps = core_.steps[static_cast<size_t>(e)].data();
  int32_t at = engine.step + 1;
  for (;;) {
    const Step& s = steps[at];
    if (s.kind == Step::Kind::loop_begin) {
      if (core_.loops[static_cast<size_t>(s.detail)].leader == e) snapshots_[static_cast<size_t>(s.detail)].valid = false;
      ++at;
    } else if (s.kind == Step::Kind::loop_end) {
      int64_t& counter = counters_[static_cast<size_t>(s.detail) * isa::kEngines + static_cast<size_t>(e)];
      if (++counter < s.count) {
        if (core_.loops[static_cast<size_t>(s.detail)].leader == e) back_edge_ = s.detail;
        at = s.target;
      } else {
        counter = 0;
        ++at;
      }
    } else {
      break;
    }
  }
  engine.step = at;
}

// Computes when the engine's pending instruction can start, as far as is known now.
void Simulator::look_ahead(int e) {
  EngineState& engine = engines_[static_cast<size_t>(e)];
  const Step& s = core_.steps[static_cast<size_t>(e)][static_cast<size_t>(engine.step)];
  if (s.kind == Step::Kind::end || s.kind == Step::Kind::barrier) {
    next_[static_cast<size_t>(e)] = kNever;
    engine.ready_ps = engine.free_ps;
    return;
  }
  int64_t start = engine.free_ps;
  if (s.table >= 0 && s.table != engine.table) start += parameters_.table_load_ps;
  for (int i = 0; i < s.dependencies; ++i)
    start = std::max(start, done_[static_cast<size_t>(core_.dependencies[static_cast<size_t>(s.first_dependency + i)])]);
  engine.ready_ps = start;
  for (int i = 0; i < s.waits; ++i) {
    const SemaphoreUse& use = core_.waits[static_cast<size_t>(s.first_wait + i)];
    SemaphoreState& semaphore = semaphores_[static_cast<size_t>(use.semaphore)];
    semaphore.ripen(now_);
    int64_t when = semaphore.when(use.count);
    if (when == kNever) {
      next_[static_cast<size_t>(e)] = kNever;
      return;
    }
    start = std::max(start, when);
  }
  if (s.takes_port) start = std::max(start, port_until_[static_cast<size_t>(e == kVector ? kGpsimd : kVector)]);
  next_[static_cast<size_t>(e)] = start;
}

void Simulator::occupy(int e, int64_t start_ps, int64_t end_ps) {
  EngineState& engine = engines_[static_cast<size_t>(e)];
  totals_.core.engines[static_cast<size_t>(e)].busy_ps += std::max<int64_t>(0, end_ps - std::max(start_ps, engine.busy_end_ps));
  engine.busy_end_ps = std::max(engine.busy_end_ps, end_ps);
}

template <bool record>
void Simulator::post(int e, const Step& s, int64_t time_ps, int32_t event) {
  last_visible_ = std::max(last_visible_, time_ps);
  for (int i = 0; i < s.posts; ++i) {
    const SemaphoreUse& use = core_.posts[static_cast<size_t>(s.first_post + i)];
    semaphores_[static_cast<size_t>(use.semaphore)].post(time_ps, use.count, event);
    unsigned waiters = core_.waiters[static_cast<size_t>(use.semaphore)] & ~(1u << e);
    while (waiters) {
      int other = __builtin_ctz(waiters);
      waiters &= waiters - 1;
      if (next_[static_cast<size_t>(other)] > time_ps) look_ahead(other);
    }
  }
}

int32_t Simulator::record_event(const Step& s, int track, int64_t start_ps, int64_t end_ps, int64_t wait_ps,
                                int64_t visible_ps, int32_t blocked_by, int64_t bytes) {
  if (static_cast<int64_t>(timeline_->events.size()) >= limit_) {
    ++timeline_->dropped;
    return -1;
  }
  timeline_->events.push_back({core_number_, s.instruction, static_cast<int8_t>(track), start_ps, end_ps, wait_ps,
                               visible_ps, blocked_by, bytes});
  return static_cast<int32_t>(timeline_->events.size()) - 1;
}

// The event that made the pending instruction start so late: a post, a result, the port or a barrier.
int32_t Simulator::blocking_event(int e, const Step& s, int64_t ready_ps, int64_t start_ps) const {
  if (start_ps > ready_ps)
    for (int i = 0; i < s.waits; ++i) {
      const SemaphoreState& semaphore = semaphores_[static_cast<size_t>(core_.waits[static_cast<size_t>(s.first_wait + i)].semaphore)];
      if (semaphore.last_ps == start_ps) return semaphore.last_event;
    }
  if (s.takes_port && start_ps > ready_ps) {
    int other = e == kVector ? kGpsimd : kVector;
    if (port_until_[static_cast<size_t>(other)] == start_ps) return last_event_[static_cast<size_t>(other)];
  }
  const EngineState& engine = engines_[static_cast<size_t>(e)];
  if (start_ps > engine.free_ps)
    for (int i = 0; i < s.dependencies; ++i) {
      size_t slot = static_cast<size_t>(core_.dependencies[static_cast<size_t>(s.first_dependency + i)]);
      if (done_[slot] == start_ps) return done_event_[slot];
    }
  return start_ps == barrier_time_ ? barrier_event_ : -1;
}

// Two phases: the stationary load starts as soon as the semaphores allow and the array's second weight buffer is free
// (when the previous matmul has begun to stream); streaming follows the load and the previous matmul's streaming.
template <bool record>
void Simulator::execute_matmul(int e, const Step& s) {
  EngineState& engine = engines_[static_cast<size_t>(e)];
  const MatmulStep& m = core_.matmuls[static_cast<size_t>(s.detail)];
  int64_t start = now_;
  int64_t stream = std::max(stream_free_, start + m.load_ps);
  int64_t duration = m.full_ps;
  if (parameters_.ramp_ps > 0) {
    // A leaky bucket of the engine's utilisation: full after a window of streaming, empty after a window of idling,
    // constant at the threshold. Full: the whole rate from then on; empty: cold again.
    ramp_credit_ = std::max<int64_t>(0, ramp_credit_ - (stream - stream_free_) * parameters_.ramp_drain);
    if (ramp_credit_ == 0) warm_ = false;
    if (!warm_) {
      duration = m.cold_ps;
      totals_.core.throttled_ps += duration;
    }
    int64_t full = parameters_.ramp_ps * parameters_.ramp_fill;
    ramp_credit_ = std::min(full, ramp_credit_ + duration * parameters_.ramp_fill);
    if (ramp_credit_ == full) warm_ = true;
  }
  int64_t busy_from = std::max(start, stream_free_);
  stream_free_ = stream + duration;
  engine.free_ps = stream;
  engine.visible_ps = std::max(engine.visible_ps, stream_free_ + m.latency_ps);
  occupy(e, busy_from, stream_free_);
  totals_.core.matmul_flops += m.flops;
  int32_t event = -1;
  int64_t visible = engine.visible_ps + parameters_.semaphore_latency_ps;
  if constexpr (record) {
    event = record_event(s, e, busy_from, stream_free_, start - engine.ready_ps, visible,
                         blocking_event(e, s, engine.ready_ps, start), 0);
    last_event_[static_cast<size_t>(e)] = event;
  }
  post<record>(e, s, visible, event);
}

template <bool record>
void Simulator::execute_dma(int e, const Step& s, int32_t trigger) {
  (void)e;
  const TransferStep& t = core_.transfers[static_cast<size_t>(s.detail)];
  int64_t arrival = now_ + s.issue_ps + t.start_ps;
  int64_t first = arrival, end = arrival;
  const int all = parameters_.dma_engines;
  if (t.engines > 0) {
    first = std::max(arrival, dma_free_[0]);
    end = std::max(arrival, dma_free_[static_cast<size_t>(t.engines) - 1]) + t.engine_ps;
    int64_t hbm_end = std::max(hbm_free_, first) + t.hbm_ps;
    hbm_free_ = hbm_end;
    if (hbm_end > end) {  // the core's share of HBM is the limit: the engines are held
      end = hbm_end;
      std::fill_n(dma_free_.begin(), t.engines, end);
    } else {
      for (int i = 0; i < t.engines; ++i)
        dma_free_[static_cast<size_t>(i)] = std::max(arrival, dma_free_[static_cast<size_t>(i)]) + t.engine_ps;
    }
    for (int i = t.engines; i < all; ++i) {  // ascending again: the engines used and the others are so already
      int64_t free = dma_free_[static_cast<size_t>(i)];
      int at = i;
      for (; at > 0 && dma_free_[static_cast<size_t>(at) - 1] > free; --at)
        dma_free_[static_cast<size_t>(at)] = dma_free_[static_cast<size_t>(at) - 1];
      dma_free_[static_cast<size_t>(at)] = free;
    }
    totals_.core.dma_active_ps += std::max<int64_t>(0, end - std::max(first, dma_busy_end_));
    dma_busy_end_ = std::max(dma_busy_end_, end);
  }
  int64_t& queue = queue_free_[static_cast<size_t>(t.queue)];
  int64_t complete = queue = std::max(queue, end);
  int64_t visible = complete + t.complete_ps;
  totals_.core.dma_bytes += t.bytes;
  totals_.core.hbm_read_bytes += t.hbm_read_bytes;
  totals_.core.hbm_write_bytes += t.hbm_write_bytes;
  ++totals_.core.dma_transfers;
  ++totals_.events;
  int32_t event = -1;
  if constexpr (record) {
    event = record_event(s, isa::kEngines + t.queue, first, complete, first - arrival, visible,
                         first > arrival && dma_event_ >= 0 ? dma_event_ : trigger, t.bytes);
    dma_event_ = event;
  }
  post<record>(e, s, visible, event);
}

template <bool record>
void Simulator::execute(int e) {
  EngineState& engine = engines_[static_cast<size_t>(e)];
  const Step& s = core_.steps[static_cast<size_t>(e)][static_cast<size_t>(engine.step)];
  int64_t start = now_;
  EngineTime& total = totals_.core.engines[static_cast<size_t>(e)];
  ++total.instructions;
  ++totals_.events;
  total.wait_ps += start - engine.ready_ps;
  for (int i = 0; i < s.waits; ++i) {
    const SemaphoreUse& use = core_.waits[static_cast<size_t>(s.first_wait + i)];
    SemaphoreState& semaphore = semaphores_[static_cast<size_t>(use.semaphore)];
    semaphore.ripen(now_);
    semaphore.ripe -= use.count;
    unsigned others = core_.waiters[static_cast<size_t>(use.semaphore)] & ~(1u << e);
    for (; others; others &= others - 1) look_ahead(__builtin_ctz(others));  // they may have counted on these
  }
  if (s.kind == Step::Kind::matmul) {
    execute_matmul<record>(e, s);
  } else {
    int64_t busy_from = start;
    if (s.table >= 0 && s.table != engine.table) {
      occupy(e, engine.free_ps, engine.free_ps + parameters_.table_load_ps);
      if (start == engine.free_ps + parameters_.table_load_ps) busy_from = engine.free_ps;
      engine.table = s.table;
    }
    int64_t end = start + s.issue_ps;
    occupy(e, start, start + std::max(s.issue_ps, s.kind == Step::Kind::dma ? 0 : s.completion_ps));
    if (s.kind == Step::Kind::dma) {
      int32_t trigger = -1;
      if constexpr (record) {
        trigger = record_event(s, e, start, end, start - engine.ready_ps, end, blocking_event(e, s, engine.ready_ps, start), 0);
        last_event_[static_cast<size_t>(e)] = trigger;
      }
      engine.free_ps = end;
      engine.visible_ps = std::max(engine.visible_ps, end);
      execute_dma<record>(e, s, trigger);
    } else {
      int64_t done = std::max(engine.visible_ps, start + s.completion_ps);
      int64_t visible = done + parameters_.semaphore_latency_ps;
      int32_t event = -1;
      if constexpr (record)
        event = record_event(s, e, busy_from, end, start - engine.ready_ps, visible,
                             blocking_event(e, s, engine.ready_ps, start), 0);
      engine.free_ps = end;
      engine.visible_ps = done;
      if (s.done_slot >= 0) {
        done_[static_cast<size_t>(s.done_slot)] = done;
        if constexpr (record) done_event_[static_cast<size_t>(s.done_slot)] = event;
      }
      if (s.takes_port) {
        port_until_[static_cast<size_t>(e)] = end;
        int other = e == kVector ? kGpsimd : kVector;
        if constexpr (record) last_event_[static_cast<size_t>(e)] = event;
        post<record>(e, s, visible, event);
        look_ahead(other);
      } else {
        if constexpr (record) last_event_[static_cast<size_t>(e)] = event;
        post<record>(e, s, visible, event);
      }
    }
  }
  advance(e);
  look_ahead(e);
}

template <bool record>
void Simulator::simulate() {
  for (;;) {
    int e = 0;
    int64_t first = next_[0];
    for (int i = 1; i < isa::kEngines; ++i) {
      int64_t t = next_[static_cast<size_t>(i)];
      // Of two that want to start at once, the one that has been ready longer goes first.
      if (t < first || (t == first && engines_[static_cast<size_t>(i)].ready_ps < engines_[static_cast<size_t>(e)].ready_ps)) {
        first = t;
        e = i;
      }
    }
    if (first == kNever) return;
    now_ = first;
    execute<record>(e);
    if (!record && back_edge_ >= 0) {
      if (skip_ahead_) at_back_edge(back_edge_);
      back_edge_ = -1;
    }
  }
}

bool Simulator::run() {
  if (timeline_) simulate<true>();
  else simulate<false>();
  int at_barrier = 0, ended = 0;
  for (int e = 0; e < isa::kEngines; ++e) {
    Step::Kind kind = core_.steps[static_cast<size_t>(e)][static_cast<size_t>(engines_[static_cast<size_t>(e)].step)].kind;
    at_barrier += kind == Step::Kind::barrier;
    ended += kind == Step::Kind::end;
  }
  totals_.core.end_ps = when_joined();
  deadlocked_ = at_barrier != isa::kEngines && ended != isa::kEngines;
  return at_barrier == isa::kEngines;
}

int64_t Simulator::when_joined() const {
  int64_t t = last_visible_;
  for (const EngineState& engine : engines_) t = std::max({t, engine.free_ps, engine.visible_ps, engine.busy_end_ps});
  for (int64_t queue : queue_free_) t = std::max(t, queue);
  return t;
}

void Simulator::release(int64_t time_ps) {
  now_ = time_ps;
  for (int e = 0; e < isa::kEngines; ++e) {
    EngineState& engine = engines_[static_cast<size_t>(e)];
    if (timeline_ && e == 0) {
      const Step& s = core_.steps[0][static_cast<size_t>(engine.step)];
      int64_t joined = when_joined();
      barrier_event_ = record_event(s, static_cast<int>(isa::Engine::sync), joined, time_ps, 0, time_ps, -1, 0);
      barrier_time_ = time_ps;
    }
    engine.free_ps = engine.visible_ps = engine.busy_end_ps = time_ps;
    ++totals_.core.engines[static_cast<size_t>(e)].instructions;
  }
  last_visible_ = time_ps;
  for (int e = 0; e < isa::kEngines; ++e) {
    advance(e);
    look_ahead(e);
  }
  back_edge_ = -1;
}

std::vector<int> Simulator::blocked_instructions() const {
  std::vector<int> blocked;
  for (int e = 0; e < isa::kEngines; ++e) {
    const Step& s = core_.steps[static_cast<size_t>(e)][static_cast<size_t>(engines_[static_cast<size_t>(e)].step)];
    if (s.kind != Step::Kind::end) blocked.push_back(s.instruction);
  }
  return blocked;
}

// ---- Skipping ahead ------------------------------------------------------------------------------

// Everything but the engines and loop counters, times relative to now. A time that has passed has no influence any
// more, whichever it was. Returns false when `visit` does.
template <typename Visit>
bool Simulator::visit_rest(Visit&& visit) const {
  auto future = [&](int64_t t) { return visit(std::max<int64_t>(0, t - now_)); };
  // The ramp as it would be if the tensor engine went on now: idle time up to now already drained.
  int64_t credit = ramp_credit_;
  if (stream_free_ < now_) credit = std::max<int64_t>(0, credit - (now_ - stream_free_) * parameters_.ramp_drain);
  if (!visit(credit) || !visit(warm_ && credit > 0) || !future(stream_free_)) return false;
  for (int i = 0; i < parameters_.dma_engines; ++i)
    if (!future(dma_free_[static_cast<size_t>(i)])) return false;
  for (int64_t t : queue_free_)
    if (!future(t)) return false;
  if (!future(hbm_free_) || !future(dma_busy_end_) || !future(last_visible_)) return false;
  if (!future(port_until_[static_cast<size_t>(kVector)]) || !future(port_until_[static_cast<size_t>(kGpsimd)])) return false;
  for (int64_t t : done_)
    if (!future(t)) return false;
  for (const SemaphoreState& s : semaphores_) {
    if (!visit(s.ripe) || !visit(s.pending())) return false;
    for (uint32_t i = 0; i < s.pending(); ++i)
      if (!visit(s.pending(i).time_ps - now_) || !visit(s.pending(i).count)) return false;
  }
  return true;
}

void Simulator::capture(Snapshot& snapshot, int64_t iteration) const {
  snapshot.valid = true;
  snapshot.now = now_;
  snapshot.iteration = iteration;
  snapshot.engines = engines_;
  snapshot.counters = counters_;
  snapshot.totals = totals_;
  snapshot.rest.clear();
  visit_rest([&](int64_t value) {
    snapshot.rest.push_back(value);
    return true;
  });
}

bool Simulator::same_state(const Snapshot& then, int loop, int64_t period) const {
  for (int e = 0; e < isa::kEngines; ++e) {
    const EngineState& a = then.engines[static_cast<size_t>(e)];
    const EngineState& b = engines_[static_cast<size_t>(e)];
    if (a.step != b.step || a.table != b.table) return false;
    if (moved(e, then)) {
      if (a.ready_ps - then.now != b.ready_ps - now_ || a.free_ps - then.now != b.free_ps - now_) return false;
      auto future = [](int64_t t, int64_t now) { return std::max<int64_t>(0, t - now); };
      if (future(a.visible_ps, then.now) != future(b.visible_ps, now_)) return false;
      if (future(a.busy_end_ps, then.now) != future(b.busy_end_ps, now_)) return false;
    } else if (next_[static_cast<size_t>(e)] != kNever || a.free_ps > then.now || a.visible_ps > then.now ||
               a.busy_end_ps > then.now || a.ready_ps > then.now) {
      return false;  // it stands still, and must go on standing still
    }
  }
  for (size_t l = 0; l < core_.loops.size(); ++l)
    for (int e = 0; e < isa::kEngines; ++e) {
      size_t i = l * isa::kEngines + static_cast<size_t>(e);
      int64_t by = static_cast<int>(l) == loop && moved(e, then) ? period : 0;
      if (counters_[i] - then.counters[i] != by) return false;
    }
  size_t i = 0;
  return visit_rest([&](int64_t value) { return i < then.rest.size() && then.rest[i++] == value; }) && i == then.rest.size();
}

// The state repeats after `period` iterations: adds `periods` of them at once.
void Simulator::skip(const Snapshot& then, int loop, int64_t period, int64_t periods) {
  const int64_t by = (now_ - then.now) * periods;
  auto add = [&](int64_t& total, int64_t before) { total += (total - before) * periods; };
  std::array<bool, isa::kEngines> goes_on;
  for (int e = 0; e < isa::kEngines; ++e) goes_on[static_cast<size_t>(e)] = moved(e, then);
  for (int e = 0; e < isa::kEngines; ++e) {
    if (!goes_on[static_cast<size_t>(e)]) continue;
    EngineState& engine = engines_[static_cast<size_t>(e)];
    engine.free_ps += by;
    engine.ready_ps += by;
    engine.visible_ps += by;
    engine.busy_end_ps += by;
    if (next_[static_cast<size_t>(e)] != kNever) next_[static_cast<size_t>(e)] += by;
    counters_[static_cast<size_t>(loop) * isa::kEngines + static_cast<size_t>(e)] += period * periods;
    EngineTime& t = totals_.core.engines[static_cast<size_t>(e)];
    const EngineTime& before = then.totals.core.engines[static_cast<size_t>(e)];
    add(t.busy_ps, before.busy_ps);
    add(t.wait_ps, before.wait_ps);
    add(t.instructions, before.instructions);
  }
  for (SemaphoreState& s : semaphores_) s.shift(by);
  for (int64_t& t : done_) t += by;
  for (int64_t& t : dma_free_) t += by;
  for (int64_t& t : queue_free_) t += by;
  for (int64_t& t : port_until_) t += by;
  hbm_free_ += by;
  dma_busy_end_ += by;
  stream_free_ += by;
  last_visible_ += by;
  now_ += by;
  CoreTime& c = totals_.core;
  const CoreTime& before = then.totals.core;
  add(c.dma_active_ps, before.dma_active_ps);
  add(c.dma_bytes, before.dma_bytes);
  add(c.hbm_read_bytes, before.hbm_read_bytes);
  add(c.hbm_write_bytes, before.hbm_write_bytes);
  add(c.dma_transfers, before.dma_transfers);
  add(c.matmul_flops, before.matmul_flops);
  add(c.throttled_ps, before.throttled_ps);
  totals_.skipped += (totals_.events - then.totals.events + totals_.skipped - then.totals.skipped) * periods;
}

// Brent's cycle detection: compare every iteration with a reference that moves to the powers of two.
void Simulator::at_back_edge(int loop) {
  const Loop& l = core_.loops[static_cast<size_t>(loop)];
  if (l.has_barrier && core_.several_cores) return;  // the other core decides when it goes on
  Snapshot& reference = snapshots_[static_cast<size_t>(loop)];
  int64_t iteration = counters_[static_cast<size_t>(loop) * isa::kEngines + static_cast<size_t>(l.leader)];
  if (l.count - iteration < 2) return;
  for (SemaphoreState& s : semaphores_) s.ripen(now_);
  if (reference.valid) {
    int64_t period = iteration - reference.iteration;
    if (period > 0 && same_state(reference, loop, period)) {
      int64_t periods = std::numeric_limits<int64_t>::max();
      for (int e = 0; e < isa::kEngines; ++e)
        if (moved(e, reference)) {
          int64_t counter = counters_[static_cast<size_t>(loop) * isa::kEngines + static_cast<size_t>(e)];
          periods = std::min(periods, (l.count - 1 - counter) / period);
        }
      if (periods > 0) {
        skip(reference, loop, period, periods);
        reference.valid = false;
        return;
      }
    }
    if ((iteration & (iteration - 1)) != 0) return;
  }
  capture(reference, iteration);
}

}  // namespace opentrn::cost
