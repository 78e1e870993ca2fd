// How threads wait for one another: a short spin, then sleep on a futex.
//
// A thread waits until a condition holds; who makes it hold rings afterwards, which costs one load while nobody sleeps.
// The loads of the condition and the stores that change it are sequentially consistent: then a sleeper either sees the
// change before it sleeps, or is seen by the ring.
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

#include "runtime/spin_lock.h"

namespace opentrn::runtime {

class Bell {
 public:
  // Groups of sleepers that are woken separately; a ring may name several.
  enum Group : uint32_t { kWorkers = 1, kHosts = 2, kParked = 4 };

  // Time for which waiting on the processor is worth it: a launch takes some microseconds, waking a thread tens of
  // them. None on a single core, where spinning only takes time from the thread that is waited for.
  static std::chrono::nanoseconds spin_time();

  static constexpr std::chrono::microseconds kUnyielding{5};
  template <typename Ready>
  static bool spin(std::chrono::nanoseconds time, Ready ready) {
    const auto start = std::chrono::steady_clock::now();
    while (true) {
      for (int i = 0; i < 32; ++i) {
        if (ready()) return true;
        pause_cpu();
      }
      const auto spent = std::chrono::steady_clock::now() - start;
      if (spent >= time) return false;
      // On a busy machine the thread that is waited for may have to run on this processor.
      if (spent >= kUnyielding) sched_yield();
    }
  }

  // Sleeps until `ready()`.
  template <typename Ready>
  void sleep(Group group, Ready ready) {
    std::atomic<uint32_t>& sleeping = sleeping_[index(group)];
    while (true) {
      const uint32_t epoch = epoch_.load(std::memory_order_seq_cst);
      sleeping.fetch_add(1, std::memory_order_seq_cst);
      const bool done = ready();
      if (!done) block(group, epoch);
      sleeping.fetch_sub(1, std::memory_order_seq_cst);
      if (done || ready()) return;
    }
  }

  template <typename Ready>
  void wait(Group group, Ready ready) {
    if (!spin(spin_time(), ready)) sleep(group, ready);
  }

  // Wakes up to `most` sleepers of the groups, so that they look again.
  void ring(uint32_t groups, int most = INT_MAX) {
    for (Group group : {kWorkers, kHosts, kParked})
      if ((groups & group) && sleeping_[index(group)].load(std::memory_order_seq_cst) > 0) return wake(groups, most);
  }

 private:
  static int index(Group group) { return group >> 1; }
  void block(Group group, uint32_t epoch);
  void wake(uint32_t groups, int most);

  std::atomic<uint32_t> epoch_{0};  // futex word
  std::atomic<uint32_t> sleeping_[3]{};
};

}  // namespace opentrn::runtime
