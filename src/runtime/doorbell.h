// How one thread waits for another: a short spin, then sleep on a futex.
//
// The waiter waits until a counter, which one other thread raises, has reached a value. Ringing costs one load when
// nobody waits for the value reached, so a worker that finishes thousands of launches wakes the host once.
#pragma once

#include <atomic>
#include <cstdint>

namespace opentrn::runtime {

class Doorbell {
 public:
  // Waits until `counter` is at least `target`. Any number of threads.
  void wait(const std::atomic<uint64_t>& counter, uint64_t target);
  // Called by the thread that raises the counter, after it stored `value` in it (sequentially consistent).
  void ring(uint64_t value) {
    if (value >= wanted_.load(std::memory_order_seq_cst)) wake();
  }

 private:
  void wake();
  static constexpr uint64_t kNobody = UINT64_MAX;
  std::atomic<uint64_t> wanted_{kNobody};  // the least value that a sleeping thread waits for
  std::atomic<uint32_t> epoch_{0};         // futex word
};

}  // namespace opentrn::runtime
