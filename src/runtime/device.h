// A logical NeuronCore: memory, streams, launching, events and the clock.
//
// Work runs in the order in which it was submitted, on the device's threads and on host threads that wait for it.
// Modelled time is kept apart, in picoseconds: the host's hand moves by a dispatch cost
// per operation, each stream's hand to the end of its last work, the core's hand to the end of the last program.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernel.h"
#include "runtime/memory.h"
#include "runtime/settings.h"

namespace opentrn::runtime {

// An error of earlier asynchronous work, raised at the next wait: an index out of range, a failed program.
struct AsyncError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using StreamId = int64_t;  // 0 is the default stream of a device
using EventId = uint64_t;  // 0 is none

enum class Dispatch : uint8_t { eager, compiled, none };  // which host cost a launch has

struct LaunchArguments {
  std::span<void* const> buffers;  // device addresses of inputs and outputs, in the program's order
  std::span<const exec::ScalarValue> scalars;
  int32_t origin = -1;  // see origins below
  Dispatch dispatch = Dispatch::eager;
};

// Totals since the process started or the last `reset_totals`; all in modelled picoseconds and bytes.
struct Totals {
  int64_t launches = 0;
  int64_t device_ps = 0;    // programs' time, summed
  int64_t busy_ps[5] = {};  // engines, summed over physical cores
  int64_t dma_busy_ps = 0;
  int64_t hbm_bytes = 0;
  int64_t model_flops = 0, hardware_flops = 0;
  int64_t host_transfer_bytes = 0, host_transfer_ps = 0;
  int64_t dispatches = 0, dispatch_ps = 0;
  int64_t host_ps = 0, core_ps = 0;  // the clock's hands
};

// One launch or transfer as the profile keeps it.
struct LaunchRecord {
  int64_t start_ps = 0, end_ps = 0;  // on the core
  int64_t host_ps = 0;               // host hand when it was dispatched
  int32_t kernel = -1, origin = -1;
  int32_t device = 0, stream = 0;
  int32_t step = 0;
  int32_t kind = 0;  // 0 program, 1 host to device, 2 device to host, 3 device copy
  int64_t bytes = 0;
};

class Device {
 public:
  static int count();
  // Creates the device at first use. Throws UserError for an index out of range, or after a fork.
  static Device& get(int index);
  static bool exists(int index);  // without creating it

  int index() const;
  const spec::Chip& chip() const;
  int lnc() const;
  DeviceMemory& memory();

  // ---- streams and events. Events of one device may be used with all others.
  StreamId new_stream(int priority);
  void wait_stream(StreamId stream, EventId event);  // later work of `stream` starts after the event
  EventId record(StreamId stream);                   // a new event at the end of the stream's work so far,
                                                     // not before the host's hand
  void release(EventId event);
  bool query(EventId event);  // by modelled time; costs the host a fixed amount
  bool query_stream(StreamId stream);
  void synchronize(EventId event);  // waits; raises AsyncError of earlier work
  void synchronize_stream(StreamId stream);
  void synchronize();
  double elapsed_ms(EventId start, EventId end) const;  // modelled

  // ---- work
  // Throws UserError when number, place or size of the arguments does not fit the program.
  void launch(StreamId stream, const std::shared_ptr<const Kernel>& kernel, const LaunchArguments& arguments);
  // `blocking`: the host memory may be changed as soon as the call returns. Up to 64 KiB travel with the request, so
  // that even a blocking copy to the device returns at once; a larger one waits for its end, on the clock as well.
  // Copies cost time on their stream and none of the core's; the dispatch of the operator is the caller's to add.
  void copy_to_device(StreamId stream, void* device_address, const void* host, int64_t bytes, bool blocking);
  void copy_to_host(StreamId stream, void* host, const void* device_address, int64_t bytes, bool blocking);
  void fill(StreamId stream, void* device_address, int value, int64_t bytes);
  // Runs when all work submitted before it has run, on the thread that executes then (frees pinned memory and the
  // like).
  void call_back(void (*function)(void*), void* argument);

  // ---- the clock
  int64_t host_ps() const;
  void advance_host_ps(int64_t ps);
  Totals totals() const;
  void reset_totals();

 private:
  friend struct DeviceFactory;
  Device();
  struct State;
  std::shared_ptr<State> state_;
};

// ---- profile ------------------------------------------------------------------------------------
enum class Recording : uint8_t { off, last_steps, all };
// `last_steps` keeps the launches of the last `steps` ended steps and of the current one.
void set_recording(Recording recording, int steps = 3);
Recording recording();
void mark_step();                            // ends a step on all devices
std::vector<LaunchRecord> launch_records();  // of the steps kept

// Number of threads that execute, on every device; settings that name a number prevail. Cheap when nothing changes.
void set_threads(int threads);

// Waits for all work of all devices, ends their threads and frees their memory, and sets the clock back to zero.
// For tests and tools that change settings: no reference to a device, tensor or event may be used afterwards.
void shut_down_devices();

// True in a process forked after a device was created: every call that needs the device throws UserError.
bool in_forked_child();

}  // namespace opentrn::runtime
