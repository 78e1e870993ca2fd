#include "torch/device.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace opentrn::bridge {
namespace {

constexpr int kMaxDevices = 128;

thread_local int t_device = 0;
thread_local std::array<runtime::StreamId, kMaxDevices> t_streams{};

// Filled when a device is first used, so that the hot path needs one load. Emptied in a forked child, where the
// runtime refuses to work.
std::array<std::atomic<runtime::Device*>, kMaxDevices> g_devices{};
std::atomic<bool> g_initialized{false};

void forget_devices() {
  for (auto& entry : g_devices) entry.store(nullptr, std::memory_order_relaxed);
}

void print_notice() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, forget_devices);
    const char* quiet = std::getenv("OPENTRN_QUIET");
    if (quiet && *quiet && std::string_view(quiet) != "0") return;
    const auto& settings = runtime::settings();
    std::fprintf(stderr,
                 "opentrn: 'neuron' is a software model of an AWS %s chip (LNC=%d), not AWS software; "
                 "modelled times are not measurements.\n",
                 settings.chip.c_str(), settings.lnc);
  });
}

runtime::Device& create(int index) {
  int count = runtime::Device::count();
  TORCH_CHECK(index >= 0 && index < count, "Device index ", index, " is out of range. Valid range is 0 to ", count - 1,
              " for this process. NEURON_RT_NUM_CORES sets the number of devices.");
  runtime::set_threads(at::get_num_threads());
  runtime::Device& made = runtime::Device::get(index);
  print_notice();
  g_initialized.store(true);
  g_devices[index].store(&made, std::memory_order_release);
  return made;
}

}  // namespace

int device_count() noexcept {
  try {
    return std::min(runtime::Device::count(), kMaxDevices);
  } catch (...) {
    return 0;
  }
}

int current_device() noexcept { return t_device; }

void set_current_device(int index) {
  if (index == t_device) return;
  int count = device_count();
  TORCH_CHECK(index >= 0 && index < count, "Device index ", index, " is out of range. Valid range is 0 to ", count - 1,
              " for this process. NEURON_RT_NUM_CORES sets the number of devices.");
  t_device = index;
}

void set_current_device_unchecked(int index) noexcept {
  if (index >= 0 && index < kMaxDevices) t_device = index;
}

runtime::Device& device(int index) {
  if (static_cast<unsigned>(index) < kMaxDevices) {
    if (runtime::Device* known = g_devices[index].load(std::memory_order_acquire)) return *known;
  }
  return create(index);
}

runtime::Device& awaited_device(int index) {
  runtime::set_threads(at::get_num_threads());
  return device(index);
}

bool initialized() noexcept { return g_initialized.load(); }

runtime::StreamId current_stream(int device) noexcept {
  return static_cast<unsigned>(device) < kMaxDevices ? t_streams[device] : 0;
}

runtime::StreamId exchange_stream(int device, runtime::StreamId stream) noexcept {
  if (static_cast<unsigned>(device) >= kMaxDevices) return 0;
  return std::exchange(t_streams[device], stream);
}

}  // namespace opentrn::bridge
