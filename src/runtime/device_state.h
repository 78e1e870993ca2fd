// What a device consists of, and the table of the process's devices.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/device.h"
#include "runtime/engine.h"
#include "runtime/event_table.h"
#include "runtime/launch_log.h"
#include "runtime/settings.h"
#include "runtime/spin_lock.h"

namespace opentrn::runtime {

int32_t current_step();

struct Device::State {
  State(int index, const Settings& settings, int threads);

  // ---- execution
  uint64_t submitted() const { return engine ? engine->queue().submitted() : 0; }
  bool done(uint64_t ticket) const { return !engine || left.load() || engine->queue().completed() >= ticket; }
  void wait_for(uint64_t ticket) {
    if (!done(ticket)) engine->wait(ticket);
  }
  // Throws AsyncError for the first failure of work up to `ticket`, which has run, unless somebody was told already.
  void raise_failure(uint64_t ticket);

  // Writes a record of the queue: `fill` is called once, with the lock held, when there is space. It gets nullptr where
  // nothing executes: in predict mode, and while the process exits. Returns the record's ticket, 0 where there is none.
  // `waits`: the caller will wait for it at once, so that nobody else has to be woken.
  template <typename Record, typename Fill>
  uint64_t submit(WorkKind kind, size_t bytes, Fill fill, bool waits = false) {
    uint64_t ticket = 0;
    while (true) {
      std::unique_lock guard(lock);
      if (!engine || left.load(std::memory_order_relaxed)) {
        fill(static_cast<Record*>(nullptr));
        return 0;
      }
      if (Work* work = engine->queue().reserve(bytes, kind)) {
        fill(static_cast<Record*>(work));
        ticket = engine->queue().publish();
        break;
      }
      guard.unlock();
      engine->wait_for_space();
    }
    if (!waits) engine->notify();
    return ticket;
  }

  // Copies as work of the queue, nothing in predict mode (an address is null); `account` runs with the lock held.
  template <typename Account>
  void copy(std::byte* destination, const std::byte* source, int64_t bytes, bool waits, Account account) {
    const uint64_t ticket = submit<CopyWork>(
        WorkKind::copy, sizeof(CopyWork),
        [&](CopyWork* work) {
          account();
          if (!work) return;
          work->destination = destination;
          work->source = source;
          work->size = bytes;
        },
        waits);
    if (!waits) return;
    if (ticket == 0 && destination && source) std::memcpy(destination, source, static_cast<size_t>(bytes));
    wait_for(ticket);
    raise_failure(ticket);
  }

  // ---- bookkeeping, with the lock held
  void log(StreamId stream, const Span& span, int32_t kernel, int32_t origin, int32_t kind, int64_t bytes) {
    if (recording() == Recording::off) return;
    launches.append({span.start_ps, span.end_ps, span.host_ps, kernel, origin, index, static_cast<int32_t>(stream),
                     current_step(), kind, bytes});
  }

  // ---- checks
  // The host view of a range of the device's memory. Throws UserError when it is not inside it.
  std::byte* view(const void* address, int64_t bytes, const char* what) const;
  // Throws UserError when number, place or size of the arguments does not fit the kernel.
  void check(const Kernel& kernel, const LaunchArguments& arguments) const;
  std::string elsewhere(const void* address) const;  // where an address that is not ours belongs, for messages

  const int index;
  const spec::Chip& chip;
  const int lnc;
  const bool blocking;
  DeviceMemory memory;

  // What follows, and producing for the queue. The engine's threads read what lies before, so it has its own line.
  alignas(64) SpinLock lock;
  Clock clock;
  EventTable events;
  Totals totals;
  LaunchLog launches;
  std::unique_ptr<Engine> engine;  // null in predict mode
  std::atomic<bool> left{false};   // the process exits: the engine has gone
};

// The process's devices. Never destroyed: engines may be at work while the process exits.
struct DeviceFactory {
  using State = Device::State;

  std::mutex mutex;
  int threads = 0;  // as `set_threads` said, 0: as the settings say
  std::array<std::atomic<Device*>, kMaxDevices> devices{};

  static DeviceFactory& instance();
  Device* find(int index) const {
    return index >= 0 && index < kMaxDevices ? devices[static_cast<size_t>(index)].load(std::memory_order_acquire)
                                             : nullptr;
  }
  Device& make(int index);
  void set_threads(int threads);
  State& owner(EventId event);  // throws UserError when there is none
  Event event(EventId id);      // throws UserError when it was released
  void shut_down();
  void leave();  // at exit

  template <typename Function>
  void for_each(Function function) {
    for (auto& slot : devices)
      if (Device* device = slot.load(std::memory_order_acquire)) function(*device->state_);
  }
};

}  // namespace opentrn::runtime
