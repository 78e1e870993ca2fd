#include "runtime/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "base/error.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/fork.h"
#include "runtime/origin.h"
#include "runtime/spin_lock.h"

namespace opentrn::runtime {
namespace {

constexpr int64_t kPiece = 2 << 20;  // granularity in which pages go back to the system

// Address ranges of all devices, for device_of.
struct Range {
  std::atomic<const std::byte*> base{nullptr};
  std::atomic<int64_t> bytes{0};
};
std::array<Range, kMaxDevices> ranges;

std::string in_gib(int64_t bytes) {
  if (bytes < (10 << 20)) return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes < (1 << 30)) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

void add(Counter& counter, int64_t amount) {
  counter.current += amount;
  counter.allocated += amount;
  counter.peak = std::max(counter.peak, counter.current);
}

void subtract(Counter& counter, int64_t amount) {
  counter.current -= amount;
  counter.freed += amount;
}

}  // namespace

struct DeviceMemory::State {
  State(int device, int64_t capacity) : device(device), allocator(capacity) {
    const int64_t pieces = (capacity + kPiece - 1) / kPiece;
    used.assign(static_cast<size_t>((pieces + 63) / 64), 0);
    stats.capacity_bytes = capacity;
  }

  int64_t piece_bytes(int64_t piece) const { return std::min(kPiece, stats.capacity_bytes - piece * kPiece); }

  void mark_used(int64_t offset, int64_t bytes) {
    for (int64_t piece = offset / kPiece, last = (offset + bytes - 1) / kPiece; piece <= last; ++piece) {
      uint64_t& word = used[static_cast<size_t>(piece / 64)];
      const uint64_t bit = uint64_t{1} << (piece % 64);
      if (word == ~uint64_t{0}) {
        piece |= 63;
        continue;
      }
      if (word & bit) continue;
      word |= bit;
      add(stats.segment, 1);
      add(stats.reserved_bytes, piece_bytes(piece));
    }
  }

  Holder holder(const void* address, const std::byte* base) const {
    const Allocator::Extent extent = allocator.containing(static_cast<const std::byte*>(address) - base);
    if (extent.bytes == 0) return {};
    return {reinterpret_cast<uint64_t>(base + extent.offset), extent.bytes, extent.origin};
  }

  const int device;
  mutable SpinLock lock;
  Allocator allocator;
  MemoryStats stats;
  std::vector<uint64_t> used;         // one bit per piece of the range
  std::atomic<int> emptying{0};       // calls of empty_cache that hold free memory back
  std::function<void()> drain;
  int fd = -1;
  void* reserved = nullptr;
  size_t reserved_bytes = 0;
};

DeviceMemory::DeviceMemory(int device, int64_t capacity_bytes, bool backed)
    : capacity_(capacity_bytes / Allocator::kUnit * Allocator::kUnit) {
  if (capacity_ <= 0) throw InternalError(fmt::format("DeviceMemory: capacity of {} bytes", capacity_bytes));
  auto fail = [&](const char* what) {
    const std::string reason = std::strerror(errno);
    if (state_->reserved) munmap(state_->reserved, state_->reserved_bytes);
    if (state_->fd >= 0) close(state_->fd);
    delete state_;
    throw UserError(fmt::format("neuron:{}: cannot {} for {} of HBM: {}. Raise the process's limits of address space "
                                "(ulimit -v) and file size (ulimit -f), or use OPENTRN_MODE=predict, which needs no memory.",
                                device, what, in_gib(capacity_), reason));
  };
  state_ = new State(device, capacity_);
  // One piece more than needed, so that the range can start at a multiple of a piece.
  state_->reserved_bytes = static_cast<size_t>(capacity_ + kPiece);
  void* reserved = mmap(nullptr, state_->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) fail("reserve addresses");
  state_->reserved = reserved;
  base_ = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(reserved) + kPiece - 1) / kPiece * kPiece);
  if (backed) {
    state_->fd = memfd_create(fmt::format("opentrn-hbm-{}", device).c_str(), MFD_CLOEXEC);
    if (state_->fd < 0 || ftruncate(state_->fd, capacity_) != 0) fail("create memory");
    void* view = mmap(nullptr, static_cast<size_t>(capacity_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      state_->fd, 0);
    if (view == MAP_FAILED) fail("map memory");
    view_ = static_cast<std::byte*>(view);
    // A forked child must not write into its parent's tensors.
    madvise(view_, static_cast<size_t>(capacity_), MADV_DONTFORK);
    madvise(view_, static_cast<size_t>(capacity_), MADV_HUGEPAGE);
  }
  if (device >= 0 && device < kMaxDevices) {
    ranges[static_cast<size_t>(device)].bytes.store(capacity_);
    ranges[static_cast<size_t>(device)].base.store(base_);
  }
}

DeviceMemory::~DeviceMemory() {
  if (state_->device >= 0 && state_->device < kMaxDevices) {
    ranges[static_cast<size_t>(state_->device)].base.store(nullptr);
    ranges[static_cast<size_t>(state_->device)].bytes.store(0);
  }
  if (view_) munmap(view_, static_cast<size_t>(capacity_));
  if (state_->fd >= 0) close(state_->fd);
  munmap(state_->reserved, state_->reserved_bytes);
  delete state_;
}

void* DeviceMemory::allocate(int64_t bytes, int32_t origin) {
  require_not_forked();
  if (bytes == 0) return nullptr;
  if (bytes < 0) throw InternalError(fmt::format("DeviceMemory::allocate({})", bytes));
  State& s = *state_;
  const int64_t rounded = bytes > capacity_ ? bytes : (bytes - 1) / Allocator::kUnit * Allocator::kUnit + Allocator::kUnit;
  while (true) {
    std::unique_lock lock(s.lock);
    const int64_t offset = bytes > capacity_ ? -1 : s.allocator.allocate(bytes, origin);
    if (offset >= 0) {
      add(s.stats.allocated_bytes, rounded);
      add(s.stats.active_bytes, rounded);
      add(s.stats.requested_bytes, bytes);
      add(s.stats.allocation, 1);
      add(s.stats.active, 1);
      s.mark_used(offset, rounded);
      return base_ + offset;
    }
    if (s.emptying.load(std::memory_order_relaxed) == 0 || bytes > capacity_) break;
    // Another thread holds free memory back for a moment (empty_cache).
    ++s.stats.num_alloc_retries;
    lock.unlock();
    sched_yield();
  }

  // Out of memory: count by origin outside the lock, because describing an origin may take other locks.
  std::vector<Allocator::Extent> live;
  int64_t allocated = 0, requested = 0, largest = 0;
  {
    std::lock_guard lock(s.lock);
    ++s.stats.num_ooms;
    live = s.allocator.live();
    largest = s.allocator.largest_free();
    allocated = s.stats.allocated_bytes.current;
    requested = s.stats.requested_bytes.current;
  }
  const int64_t free_bytes = capacity_ - allocated;
  std::string text = fmt::format(
      "Neuron out of memory. Tried to allocate {} on neuron:{}. Capacity {}; allocated {} in {} blocks ({} requested); "
      "free {}, largest contiguous free range {}",
      in_gib(bytes), s.device, in_gib(capacity_), in_gib(allocated), live.size(), in_gib(requested), in_gib(free_bytes),
      in_gib(largest));
  if (free_bytes > 0)
    text += fmt::format(" (fragmentation {:.0f} %)",
                        100.0 * static_cast<double>(free_bytes - largest) / static_cast<double>(free_bytes));
  text += ".";
  struct Group {
    int64_t bytes = 0, blocks = 0, largest = 0;
  };
  std::map<int32_t, Group> groups;
  for (const Allocator::Extent& extent : live) {
    Group& group = groups[extent.origin];
    group.bytes += extent.bytes;
    group.blocks += 1;
    group.largest = std::max(group.largest, extent.bytes);
  }
  std::vector<std::pair<int32_t, Group>> order(groups.begin(), groups.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  if (!order.empty()) text += "\nLargest holders:";
  for (size_t i = 0; i < std::min<size_t>(order.size(), 8); ++i) {
    const auto& [id, group] = order[i];
    std::string where = describe_origin(id);
    text += fmt::format("\n  {} in {} tensor{} (largest {}) from {}", in_gib(group.bytes), group.blocks,
                        group.blocks == 1 ? "" : "s", in_gib(group.largest), where.empty() ? "unknown origin" : where);
  }
  if (order.size() > 8) text += fmt::format("\n  and {} other origins", order.size() - 8);
  if (std::string where = describe_origin(origin); !where.empty()) text += "\nRequested by " + where + ".";
  throw OutOfMemory(text);
}

void DeviceMemory::free(void* address) {
  if (!address || in_forked_child()) return;
  State& s = *state_;
  std::lock_guard lock(s.lock);
  const Allocator::Extent extent = s.allocator.free(static_cast<std::byte*>(address) - base_);
  if (extent.bytes == 0)
    throw InternalError(fmt::format("DeviceMemory::free: {} is not a live block of neuron:{}", address, s.device));
  subtract(s.stats.allocated_bytes, extent.bytes);
  subtract(s.stats.active_bytes, extent.bytes);
  subtract(s.stats.requested_bytes, extent.requested);
  subtract(s.stats.allocation, 1);
  subtract(s.stats.active, 1);
}

Holder DeviceMemory::holder(const void* address) const {
  std::lock_guard lock(state_->lock);
  return state_->holder(address, base_);
}

bool DeviceMemory::try_holder(const void* address, Holder& holder) const {
  int attempts = 1000;
  while (!state_->lock.try_lock()) {
    if (--attempts == 0) return false;
    sched_yield();
  }
  holder = state_->holder(address, base_);
  state_->lock.unlock();
  return true;
}

bool DeviceMemory::contains(const void* address) const {
  const auto offset = static_cast<const std::byte*>(address) - base_;
  return offset >= 0 && offset < capacity_;
}

void DeviceMemory::set_drain(std::function<void()> drain) { state_->drain = std::move(drain); }

void DeviceMemory::empty_cache() {
  require_not_forked();
  State& s = *state_;
  // Work in flight may still use memory that is free for later work. So free ranges are taken out of circulation,
  // then that work is waited for, then the pages go.
  std::vector<int64_t> held;
  std::vector<Allocator::Extent> extents;
  {
    std::lock_guard lock(s.lock);
    s.emptying.fetch_add(1, std::memory_order_relaxed);
    s.allocator.release_segments();
    extents = s.allocator.free_ranges();
    std::erase_if(extents, [](const Allocator::Extent& e) { return e.bytes < kPiece; });
    for (const Allocator::Extent& e : extents) held.push_back(s.allocator.allocate(e.bytes, -1));
    for (Allocator::Extent& e : extents) e = s.allocator.find(held[static_cast<size_t>(&e - extents.data())]);
  }
  auto release = [&] {
    std::lock_guard lock(s.lock);
    for (int64_t offset : held) s.allocator.free(offset);
    s.emptying.fetch_sub(1, std::memory_order_relaxed);
  };
  try {
    if (s.drain) s.drain();
  } catch (...) {
    release();
    throw;
  }
  for (const Allocator::Extent& e : extents) {
    int64_t first = (e.offset + kPiece - 1) / kPiece;
    const int64_t end_bytes = e.offset + e.bytes;
    const int64_t last = end_bytes == capacity_ ? (end_bytes + kPiece - 1) / kPiece : end_bytes / kPiece;
    while (first < last) {
      auto used = [&](int64_t piece) { return (s.used[static_cast<size_t>(piece / 64)] >> (piece % 64)) & 1; };
      int64_t end = first;
      {
        std::lock_guard lock(s.lock);
        while (first < last && !used(first)) ++first;
        for (end = first; end < last && used(end); ++end) {
          s.used[static_cast<size_t>(end / 64)] &= ~(uint64_t{1} << (end % 64));
          subtract(s.stats.segment, 1);
          subtract(s.stats.reserved_bytes, s.piece_bytes(end));
        }
      }
      if (end > first && s.fd >= 0)
        fallocate(s.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first * kPiece,
                  std::min(end * kPiece, capacity_) - first * kPiece);
      first = end;
    }
  }
  release();
}

MemoryStats DeviceMemory::stats() const {
  std::lock_guard lock(state_->lock);
  return state_->stats;
}

void DeviceMemory::reset_peak() {
  std::lock_guard lock(state_->lock);
  MemoryStats& s = state_->stats;
  for (Counter* c : {&s.allocated_bytes, &s.reserved_bytes, &s.active_bytes, &s.requested_bytes, &s.allocation,
                     &s.segment, &s.active})
    c->peak = c->current;
}

void DeviceMemory::reset_accumulated() {
  std::lock_guard lock(state_->lock);
  MemoryStats& s = state_->stats;
  for (Counter* c : {&s.allocated_bytes, &s.reserved_bytes, &s.active_bytes, &s.requested_bytes, &s.allocation,
                     &s.segment, &s.active})
    c->allocated = c->freed = 0;
  s.num_alloc_retries = s.num_ooms = 0;
}

std::vector<Holder> DeviceMemory::holders(size_t most) const {
  std::vector<Allocator::Extent> live;
  {
    std::lock_guard lock(state_->lock);
    live = state_->allocator.live();
  }
  std::stable_sort(live.begin(), live.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (live.size() > most) live.resize(most);
  std::vector<Holder> holders;
  for (const Allocator::Extent& e : live)
    holders.push_back({reinterpret_cast<uint64_t>(base_ + e.offset), e.bytes, e.origin});
  return holders;
}

int device_of(const void* address) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const std::byte* base = ranges[i].base.load(std::memory_order_acquire);
    if (!base) continue;
    const auto offset = static_cast<const std::byte*>(address) - base;
    if (offset >= 0 && offset < ranges[i].bytes.load(std::memory_order_relaxed)) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace opentrn::runtime
