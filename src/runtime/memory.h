// HBM of one logical core: a reserved address range as large as the chip's memory, and the caching allocator in it.
//
// The address a tensor carries lies in a range without access rights; `host` translates it to a second mapping
// of the same pages (a memfd), which only the device's own code uses. In predict mode there is no second mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace opentrn::runtime {

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Counters in bytes and calls, as torch.neuron.memory_stats reports them.
struct Counter {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};
// `reserved` and `segment` count the 2 MiB pieces of the range that have been used and not given back since.
struct MemoryStats {
  Counter allocated_bytes, reserved_bytes, active_bytes, requested_bytes;
  Counter allocation, segment, active;   // numbers of blocks
  int64_t num_alloc_retries = 0, num_ooms = 0;
  int64_t capacity_bytes = 0;
};

struct Holder {          // one live allocation, for out-of-memory messages and snapshots
  uint64_t address = 0;
  int64_t bytes = 0;
  int32_t origin = -1;   // origin id current when it was allocated
};

class DeviceMemory {
 public:
  DeviceMemory(int device, int64_t capacity_bytes, bool backed);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // At least `bytes` (256-byte aligned, 512 rounding); nullptr for 0 bytes.
  // Throws OutOfMemory with the largest holders and their origins.
  void* allocate(int64_t bytes, int32_t origin);
  // Memory may be used again at once by work that is submitted later (execution follows submission order).
  // Ignores nullptr; does nothing in a forked child. Throws InternalError for an address that is not a live block.
  void free(void* address);
  // The live allocation that holds the byte at `address`; bytes = 0 if there is none.
  Holder holder(const void* address) const;
  // The same for a signal handler: false when another thread keeps the allocator busy.
  bool try_holder(const void* address, Holder& holder) const;
  bool contains(const void* address) const;
  // The same byte in the accessible mapping; nullptr in predict mode.
  std::byte* host(const void* address) const {
    return view_ ? view_ + (static_cast<const std::byte*>(address) - base_) : nullptr;
  }
  std::byte* base() const { return base_; }
  int64_t capacity() const { return capacity_; }

  // Gives the pages of free memory back to the system, after all work submitted so far has run.
  void empty_cache();
  // What waits for that work; the device installs it.
  void set_drain(std::function<void()> drain);
  MemoryStats stats() const;
  void reset_peak();
  void reset_accumulated();
  std::vector<Holder> holders(size_t most) const;  // largest first

 private:
  struct State;
  State* state_ = nullptr;
  std::byte* base_ = nullptr;
  std::byte* view_ = nullptr;
  int64_t capacity_ = 0;
};

// Which device an address belongs to, -1 if none. Safe in a signal handler.
int device_of(const void* address);

}  // namespace opentrn::runtime
