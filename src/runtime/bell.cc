#include "runtime/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

namespace opentrn::runtime {
namespace {

uint32_t* word(std::atomic<uint32_t>& value) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return reinterpret_cast<uint32_t*>(&value);
}

}  // namespace

std::chrono::nanoseconds Bell::spin_time() {
  static const std::chrono::nanoseconds time(std::thread::hardware_concurrency() > 1 ? 50'000 : 0);
  return time;
}

void Bell::block(Group group, uint32_t epoch) {
  syscall(SYS_futex, word(epoch_), FUTEX_WAIT_BITSET_PRIVATE, epoch, nullptr, nullptr, static_cast<uint32_t>(group));
}

void Bell::wake(uint32_t groups, int most) {
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, word(epoch_), FUTEX_WAKE_BITSET_PRIVATE, most, nullptr, nullptr, groups);
}

}  // namespace opentrn::runtime
