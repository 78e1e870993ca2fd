#include "runtime/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <thread>

#include "runtime/spin_lock.h"

namespace opentrn::runtime {
namespace {

// A launch takes some microseconds, waking a sleeping thread tens of them. On a single core spinning only
// takes time from the thread that is waited for.
std::chrono::nanoseconds spin_time() {
  static const std::chrono::nanoseconds time(std::thread::hardware_concurrency() > 1 ? 30'000 : 0);
  return time;
}

void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, nullptr, nullptr, 0);
}

}  // namespace

void Doorbell::wait(const std::atomic<uint64_t>& counter, uint64_t target) {
  if (counter.load(std::memory_order_acquire) >= target) return;
  const auto deadline = std::chrono::steady_clock::now() + spin_time();
  while (std::chrono::steady_clock::now() < deadline) {
    for (int i = 0; i < 32; ++i) {
      if (counter.load(std::memory_order_acquire) >= target) return;
      pause_cpu();
    }
  }
  while (true) {
    // The order matters: the epoch is read before the wish is published and the counter is read after it, so a
    // value that is reached in between either is seen here or changes the epoch.
    const uint32_t epoch = epoch_.load(std::memory_order_seq_cst);
    uint64_t wanted = wanted_.load(std::memory_order_seq_cst);
    while (target < wanted && !wanted_.compare_exchange_weak(wanted, target, std::memory_order_seq_cst)) {
    }
    if (counter.load(std::memory_order_seq_cst) >= target) return;
    futex(epoch_, FUTEX_WAIT_PRIVATE, epoch);
    if (counter.load(std::memory_order_acquire) >= target) return;
  }
}

void Doorbell::wake() {
  // Everybody looks again; those whose value has not been reached publish their wish anew.
  wanted_.store(kNobody, std::memory_order_seq_cst);
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  futex(epoch_, FUTEX_WAKE_PRIVATE, INT_MAX);
}

}  // namespace opentrn::runtime
