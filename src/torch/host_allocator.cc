// Pinned host memory: page-aligned blocks that non-blocking copies may use after the call has returned.
// A software device can read any host memory; "pinned" is what `is_pinned` and non-blocking copies go by.
#include <ATen/core/CachingHostAllocator.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "torch/device.h"
#include "torch/host_allocator.h"

namespace opentrn::bridge {
namespace {

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (!bytes) return {nullptr, nullptr, &free_block, c10::DeviceType::CPU};
    size_t rounded = (bytes + kPage - 1) / kPage * kPage;
    void* block = std::aligned_alloc(kPage, rounded);
    TORCH_CHECK_WITH(OutOfMemoryError, block, "cannot allocate ", bytes, " bytes of pinned host memory");
    std::lock_guard lock(mutex_);
    blocks_[reinterpret_cast<uintptr_t>(block)] = rounded;
    stats_.active_requests.increase(1);
    stats_.active_bytes.increase(rounded);
    stats_.allocations.increase(1);
    stats_.allocated_bytes.increase(rounded);
    ++stats_.num_host_alloc;
    return {block, block, &free_block, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* dest, const void* src, size_t bytes) const override { default_copy_data(dest, src, bytes); }
  // Copies hold a reference to their host memory until they have run, so nothing is left to track.
  bool record_event(void* pointer, void*, c10::Stream) override { return contains(pointer); }
  void empty_cache() override {}
  at::HostStats get_stats() override {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_accumulated_stats() override {
    std::lock_guard lock(mutex_);
    for (auto* stat : {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations, &stats_.allocated_bytes})
      stat->reset_accumulated();
    stats_.num_host_alloc = stats_.num_host_free = 0;
  }
  void reset_peak_stats() override {
    std::lock_guard lock(mutex_);
    for (auto* stat : {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations, &stats_.allocated_bytes})
      stat->reset_peak();
  }

  bool contains(const void* pointer) {
    auto address = reinterpret_cast<uintptr_t>(pointer);
    std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return false;
    --after;
    return address < after->first + after->second;
  }

 private:
  static constexpr size_t kPage = 4096;
  static void free_block(void* block);

  std::mutex mutex_;
  std::map<uintptr_t, size_t> blocks_;
  at::HostStats stats_;
};

// Leaked: tensors may outlive static destruction.
PinnedAllocator& instance() {
  static auto* allocator = new PinnedAllocator;
  return *allocator;
}

void PinnedAllocator::free_block(void* block) {
  if (!block) return;
  PinnedAllocator& self = instance();
  {
    std::lock_guard lock(self.mutex_);
    auto found = self.blocks_.find(reinterpret_cast<uintptr_t>(block));
    if (found != self.blocks_.end()) {
      self.stats_.active_requests.decrease(1);
      self.stats_.active_bytes.decrease(found->second);
      self.stats_.allocations.decrease(1);
      self.stats_.allocated_bytes.decrease(found->second);
      ++self.stats_.num_host_free;
      self.blocks_.erase(found);
    }
  }
  std::free(block);
}

REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, &instance())

}  // namespace

c10::Allocator* pinned_allocator() { return &instance(); }
bool is_pinned(const void* pointer) { return instance().contains(pointer); }

}  // namespace opentrn::bridge
