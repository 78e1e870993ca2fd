// A lock for critical sections of some tens of nanoseconds: a few ns when free.
// A waiter spins, then yields its time slice, so that a preempted holder can finish.
#pragma once

#include <sched.h>

#include <atomic>

namespace opentrn::runtime {

// Tells the processor that the caller spins.
inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class SpinLock {
 public:
  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) {
      for (int spins = 0; locked_.load(std::memory_order_relaxed); ++spins) {
        if (spins < 200) pause_cpu();
        else sched_yield();
      }
    }
  }
  bool try_lock() { return !locked_.exchange(true, std::memory_order_acquire); }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace opentrn::runtime
