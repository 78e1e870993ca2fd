// What a step's times mean: how busy each engine was, why the device was idle, and what bounds the step.
// All times are modelled picoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cost/timing.h"
#include "isa/program.h"

namespace opentrn::profile {

struct Interval {
  int64_t start_ps = 0, end_ps = 0;
};

// Length of the union of intervals, in any order; empty and reversed ones count nothing.
int64_t union_ps(std::vector<Interval> intervals);

// ---- launches of one device
struct LaunchTime {
  int64_t start_ps = 0, end_ps = 0;
  int64_t host_ps = 0;    // the host's hand when it was dispatched
};

struct DeviceUse {
  int64_t span_ps = 0;         // first start to last end
  int64_t busy_ps = 0;         // union of the launches
  int64_t idle_host_ps = 0;    // gaps that ended when the host dispatched the next launch
  int64_t idle_other_ps = 0;   // the other gaps: waiting for another stream, a transfer or another device
};
DeviceUse device_use(std::span<const LaunchTime> launches);

// ---- one program's timeline
struct TrackUse {
  int32_t core = 0;
  int8_t track = 0;            // as in cost::Event: 0..4 engines, 5 + q DMA queue q
  int64_t busy_ps = 0;         // union of busy intervals
  int64_t wait_ps = 0;         // blocked on semaphores
  int64_t events = 0;
  int64_t bytes = 0;
};
// Ordered by core, then track.
std::vector<TrackUse> track_use(const cost::Timeline& timeline);

// ---- what bounds a step
struct StepTotals {
  int64_t step_ps = 0;         // from the end of the step before to the end of this one
  int64_t device_ps = 0;       // programs, launch cost included
  int64_t dispatch_ps = 0;     // host time of dispatching
  int64_t transfer_ps = 0;     // copies between host and device
  int64_t launches = 0;
  int cores = 1;               // physical cores per device
  std::array<int64_t, isa::kEngines> engine_busy_ps{};  // summed over the physical cores
  int64_t dma_busy_ps = 0;     // likewise
};

enum class Limit : uint8_t { host_dispatch, host_transfer, tensor, vector, scalar, gpsimd, sync, dma, latency };
std::string_view name_of(Limit limit);

struct Bound {
  Limit limit = Limit::latency;
  double share = 0;            // of the step (host limits) or of the device time (engines, DMA, latency's largest)
  std::string sentence;        // one sentence with the numbers, for a report
};

// The host bounds a step when its work takes longer than the device's; else the busiest engine bounds the device,
// or, when none is busy for at least 35 % of the device's time, latency does: launches and waits between engines.
Bound bound(const StepTotals& totals);

// "1.234 ms", "56.70 us", "2.100 s": four significant digits.
std::string format_time(int64_t ps);

}  // namespace opentrn::profile
