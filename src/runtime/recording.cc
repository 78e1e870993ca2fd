// What is kept of the launches, for the profile.
#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include "base/error.h"
#include "runtime/device_state.h"

namespace opentrn::runtime {
namespace {

std::atomic<Recording> recording_mode{Recording::off};
std::atomic<int> recording_steps{3};
std::atomic<int32_t> step{0};

int32_t first_kept_step() {
  return recording() == Recording::all ? 0 : std::max(0, current_step() - recording_steps.load());
}

}  // namespace

int32_t current_step() { return step.load(std::memory_order_relaxed); }

void set_recording(Recording recording, int steps) {
  if (steps < 1) throw UserError(fmt::format("recording of {} steps; at least 1", steps));
  recording_steps.store(steps);
  recording_mode.store(recording);
  if (recording == Recording::off)
    DeviceFactory::instance().for_each([](DeviceFactory::State& s) {
      std::lock_guard lock(s.lock);
      s.launches.clear();
    });
}

Recording recording() { return recording_mode.load(std::memory_order_relaxed); }

void mark_step() {
  step.fetch_add(1);
  if (recording() != Recording::last_steps) return;
  const int32_t first = first_kept_step();
  DeviceFactory::instance().for_each([&](DeviceFactory::State& s) {
    std::lock_guard lock(s.lock);
    s.launches.drop_before(first);
  });
}

std::vector<LaunchRecord> launch_records() {
  std::vector<LaunchRecord> records;
  const int32_t first = first_kept_step();
  DeviceFactory::instance().for_each([&](DeviceFactory::State& s) {
    std::lock_guard lock(s.lock);
    s.launches.read(first, records);
  });
  return records;
}

}  // namespace opentrn::runtime
