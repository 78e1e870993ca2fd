// Making devices, finding them, and ending them.
#include <cstdlib>

#include <fmt/format.h>

#include "base/error.h"
#include "runtime/cache.h"
#include "runtime/device_state.h"
#include "runtime/fault_handler.h"
#include "runtime/fork.h"
#include "runtime/retirement.h"

namespace opentrn::runtime {
namespace {

constexpr int kExitPatienceMs = 2000;

}  // namespace

DeviceFactory& DeviceFactory::instance() {
  static DeviceFactory& value = *new DeviceFactory;
  return value;
}

Device& DeviceFactory::make(int index) {
  std::lock_guard lock(mutex);
  if (Device* device = find(index)) return *device;
  static const bool registered = [] {
    watch_forks();
    explain_faults();
    std::atexit([] { instance().leave(); });
    return true;
  }();
  (void)registered;
  auto* device = new Device;
  try {
    const Settings& s = settings();
    device->state_ = std::make_shared<Device::State>(index, s, s.threads_fixed || threads == 0 ? s.threads : threads);
  } catch (...) {
    delete device;
    throw;
  }
  devices[static_cast<size_t>(index)].store(device, std::memory_order_release);
  return *device;
}

void DeviceFactory::set_threads(int count) {
  std::lock_guard lock(mutex);
  if (threads == count) return;
  threads = count;
  if (settings().threads_fixed) return;
  for_each([&](State& s) {
    if (s.engine) s.engine->set_threads(count);
  });
}

DeviceFactory::State& DeviceFactory::owner(EventId event) {
  Device* device = find(EventTable::device_of(event));
  if (!device) throw UserError(fmt::format("event {:#x} does not belong to a device of this process", event));
  return *device->state_;
}

Event DeviceFactory::event(EventId id) {
  State& s = owner(id);
  std::lock_guard lock(s.lock);
  const Event* found = s.events.find(id);
  if (!found) throw UserError(fmt::format("event {:#x} of neuron:{} has been released", id, s.index));
  return *found;
}

void DeviceFactory::shut_down() {
  std::lock_guard lock(mutex);
  for_each([](State& s) { s.wait_for(s.submitted()); });
  for (auto& slot : devices) delete slot.exchange(nullptr);
}

// At exit nobody can see what queued work would compute, and running it could take long.
void DeviceFactory::leave() {
  if (in_forked_child()) return;
  for_each([](State& s) {
    if (!s.engine) return;
    // A thread that was stopped while it held the lock must not stop the exit.
    for (int i = 0; i < 1000 && !s.lock.try_lock(); ++i) sched_yield();
    s.engine->abandon(kExitPatienceMs);
    s.left.store(true);
    s.lock.unlock();
  });
}

Device::Device() = default;

int Device::count() { return settings().devices; }

bool Device::exists(int index) { return DeviceFactory::instance().find(index) != nullptr; }

Device& Device::get(int index) {
  require_not_forked();
  DeviceFactory& factory = DeviceFactory::instance();
  if (Device* device = factory.find(index)) return *device;
  if (index < 0 || index >= count())
    throw UserError(
        fmt::format("Device index {} is out of range. Valid range is 0 to {} for this process; set "
                    "NEURON_RT_NUM_CORES for more logical cores",
                    index, count() - 1));
  return factory.make(index);
}

void set_threads(int threads) {
  static std::atomic<int> last{0};
  if (threads < 1 || in_forked_child() || last.exchange(threads, std::memory_order_relaxed) == threads) return;
  DeviceFactory::instance().set_threads(threads);
}

void shut_down_devices() {
  require_not_forked();
  set_recording(Recording::off);
  DeviceFactory::instance().shut_down();
  reset_cache();
  reset_host_clock();
}

std::vector<uint64_t> submitted_tickets() {
  std::vector<uint64_t> tickets(kMaxDevices);
  DeviceFactory::instance().for_each([&](DeviceFactory::State& s) {
    std::lock_guard lock(s.lock);
    tickets[static_cast<size_t>(s.index)] = s.submitted();
  });
  return tickets;
}

bool all_done(const std::vector<uint64_t>& tickets) {
  bool done = true;
  DeviceFactory::instance().for_each([&](DeviceFactory::State& s) {
    if (!s.done(tickets[static_cast<size_t>(s.index)])) done = false;
  });
  return done;
}

}  // namespace opentrn::runtime
