#include "torch/allocator.h"

#include <c10/util/Exception.h>

#include "torch/device.h"
#include "torch/origin.h"

namespace opentrn::bridge {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

void free_memory(void* address) {
  if (!address) return;
  int index = runtime::device_of(address);
  // In a forked child the memory belongs to the parent.
  if (index < 0 || runtime::in_forked_child()) return;
  device(index).memory().free(address);
}

void set(c10::CachingAllocator::StatArray& stats, const runtime::Counter& counter) {
  auto& all = stats[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  all.current = counter.current;
  all.peak = counter.peak;
  all.allocated = counter.allocated;
  all.freed = counter.freed;
}

class NeuronAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return bridge::allocate(current_device(), bytes, capture_origin()); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* dest, const void* src, size_t bytes) const override {
    if (!bytes) return;
    runtime::Device& d = device(runtime::device_of(dest));
    std::vector<char> host(bytes);
    d.copy_to_host(0, host.data(), src, static_cast<int64_t>(bytes), true);
    d.copy_to_device(0, dest, host.data(), static_cast<int64_t>(bytes), true);
  }
  bool initialized() override { return bridge::initialized(); }
  void emptyCache(c10::MempoolId_t) override {
    if (!bridge::initialized()) return;
    for (int i = 0; i < device_count(); ++i) {
      if (runtime::Device::exists(i)) device(i).memory().empty_cache();
    }
  }
  // Execution follows submission order, so memory that is freed may be handed out again at once.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    runtime::MemoryStats from = device(index).memory().stats();
    DeviceStats stats;
    set(stats.allocated_bytes, from.allocated_bytes);
    set(stats.reserved_bytes, from.reserved_bytes);
    set(stats.active_bytes, from.active_bytes);
    set(stats.requested_bytes, from.requested_bytes);
    set(stats.allocation, from.allocation);
    set(stats.segment, from.segment);
    set(stats.active, from.active);
    stats.num_alloc_retries = from.num_alloc_retries;
    stats.num_ooms = from.num_ooms;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { device(index).memory().reset_accumulated(); }
  void resetPeakStats(c10::DeviceIndex index) override { device(index).memory().reset_peak(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    runtime::MemoryStats stats = device(index).memory().stats();
    return {static_cast<size_t>(stats.capacity_bytes - stats.allocated_bytes.current),
            static_cast<size_t>(stats.capacity_bytes)};
  }
};

NeuronAllocator g_allocator;
REGISTER_ALLOCATOR(kNeuron, &g_allocator)

}  // namespace

c10::DeviceAllocator& allocator() { return g_allocator; }

c10::DataPtr allocate(int index, size_t bytes, int32_t origin) {
  runtime::Device& d = device(index);
  void* address = nullptr;
  if (bytes) {
    try {
      address = d.memory().allocate(static_cast<int64_t>(bytes), origin);
    } catch (const runtime::OutOfMemory& error) {
      C10_THROW_ERROR(OutOfMemoryError, error.what());
    }
  }
  return {address, address, &free_memory, torch_device(index)};
}

}  // namespace opentrn::bridge
