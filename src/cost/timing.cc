#include "cost/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/error.h"
#include "cost/simulator.h"

namespace opentrn::cost {
namespace {

[[noreturn]] void deadlock(const isa::Program& program, int core, const Simulator& simulator) {
  std::string where;
  for (int i : simulator.blocked_instructions()) {
    const isa::Instruction& in = program.cores[static_cast<size_t>(core)].code[static_cast<size_t>(i)];
    where += fmt::format("\n  {}: {} at instruction {}, waiting for", isa::name_of(in.engine), isa::name_of(in.opcode), i);
    for (const isa::Signal& w : in.waits) where += fmt::format(" s{}>={}", w.semaphore, w.count);
  }
  throw InternalError(fmt::format("timing of '{}': core {} is deadlocked:{}", program.name, core, where));
}

// Brings the events into the order of their starts and renumbers the edges between them.
void sort(Timeline& timeline) {
  std::vector<Event>& events = timeline.events;
  std::vector<int32_t> order(events.size()), rank(events.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return events[static_cast<size_t>(a)].start_ps < events[static_cast<size_t>(b)].start_ps;
  });
  for (size_t i = 0; i < order.size(); ++i) rank[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
  std::vector<Event> sorted;
  sorted.reserve(events.size());
  for (int32_t i : order) {
    sorted.push_back(events[static_cast<size_t>(i)]);
    int32_t& by = sorted.back().blocked_by;
    if (by >= 0) by = rank[static_cast<size_t>(by)];
  }
  events = std::move(sorted);
}

ProgramTime run(const isa::Program& program, const spec::Chip& chip, bool skip_ahead, Timeline* timeline, int64_t limit) {
  CoreParameters parameters = parameters_of(program, chip);
  const int n = static_cast<int>(program.cores.size());
  std::vector<DecodedCore> cores;
  for (int c = 0; c < n; ++c) cores.push_back(decode(program, c, chip));
  std::vector<std::unique_ptr<Simulator>> simulators;
  for (int c = 0; c < n; ++c)
    simulators.push_back(std::make_unique<Simulator>(cores[static_cast<size_t>(c)], parameters, c, skip_ahead, timeline, limit));

  // Cores meet at barriers only: each runs to its next one on its own.
  for (;;) {
    int at_barrier = 0;
    int64_t joined = 0;
    for (int c = 0; c < n; ++c) {
      Simulator& s = *simulators[static_cast<size_t>(c)];
      at_barrier += s.run();
      if (s.deadlocked()) deadlock(program, c, s);
      joined = std::max(joined, s.when_joined());
    }
    if (at_barrier == 0) break;
    if (at_barrier < n)
      throw InternalError(fmt::format("timing of '{}': the cores do not execute the same number of barriers", program.name));
    for (auto& s : simulators) s->release(joined + parameters.barrier_ps);
  }

  ProgramTime time;
  for (auto& s : simulators) {
    time.cores.push_back(s->result());
    time.total_ps = std::max(time.total_ps, s->result().end_ps);
    time.events += s->events();
    time.skipped_events += s->skipped_events();
  }
  if (timeline) sort(*timeline);
  return time;
}

}  // namespace

ProgramTime time_program(const isa::Program& program, const spec::Chip& chip) {
  return run(program, chip, true, nullptr, 0);
}

ProgramTime time_program_event_by_event(const isa::Program& program, const spec::Chip& chip) {
  return run(program, chip, false, nullptr, 0);
}

ProgramTime record_timeline(const isa::Program& program, const spec::Chip& chip, Timeline& timeline, int64_t limit) {
  timeline = {};
  return run(program, chip, false, &timeline, limit);
}

}  // namespace opentrn::cost
