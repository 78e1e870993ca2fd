// Modelled time of one logical core: the hands of the host, of each stream and of the core, in picoseconds.
//
// The host's hand belongs to the process (one host dispatches to all devices); streams and core belong to the device.
// Work starts at the latest of the hands that it needs and moves them to its end. Nothing here depends on how long
// anything takes on the machine that runs the model.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/device.h"
#include "spec/chip.h"

namespace opentrn::runtime {

// Host time of asking whether an event has passed. An input to the model: it lets a loop that polls end.
inline constexpr int64_t kQueryPs = 1'000'000;

// The host's hand. Thread-safe.
int64_t host_now_ps();
void advance_host(int64_t ps);
void host_waits_until(int64_t ps);  // never moves back
void reset_host_clock();            // tests: no device may exist

struct Span {
  int64_t start_ps = 0, end_ps = 0;
  int64_t host_ps = 0;      // the host's hand when the work was submitted
  int64_t dispatch_ps = 0;  // host time spent on it
};

// Not thread-safe: the device calls it with its lock held.
class Clock {
 public:
  Clock(const spec::Chip& chip, int lnc);

  StreamId new_stream();
  // Throws UserError when the device has no such stream.
  int64_t stream_ps(StreamId stream) const { return streams_[index(stream)]; }
  void delay_stream(StreamId stream, int64_t until_ps);
  int64_t core_ps() const { return core_ps_; }
  int64_t last_ps() const;  // the latest of all streams

  // Dispatch cost on the host, then the program after host, stream and core.
  Span launch(StreamId stream, int64_t program_ps, Dispatch dispatch);
  // Host memory to device memory or back: after host and stream, beside the core.
  Span transfer(StreamId stream, int64_t bytes);
  // A DMA write inside the device's memory: after host and stream, beside the core.
  Span fill(StreamId stream, int64_t bytes);

 private:
  size_t index(StreamId stream) const;
  Span occupy(StreamId stream, int64_t duration_ps);

  std::vector<int64_t> streams_{0};
  int64_t core_ps_ = 0;
  int64_t dispatch_eager_ps_, dispatch_compiled_ps_, launch_ps_;
  int64_t transfer_latency_ps_, fill_latency_ps_;
  double transfer_ps_per_byte_, fill_ps_per_byte_;
};

}  // namespace opentrn::runtime
