#include "runtime/group_queue.h"

namespace opentrn::runtime {

void GroupQueue::offer(GroupTask& task, int groups) {
  task_ = &task;
  groups_ = groups;
  unfinished_.store(groups, std::memory_order_relaxed);
  const uint64_t number = (claim_.load(std::memory_order_relaxed) >> 32) + 1;
  claim_.store(number << 32 | static_cast<uint32_t>(groups), std::memory_order_seq_cst);
}

bool GroupQueue::help(BorrowedMemory& memory) {
  bool any = false;
  uint64_t claim = claim_.load(std::memory_order_acquire);
  while (unclaimed(claim) > 0) {
    if (!claim_.compare_exchange_weak(claim, claim - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    any = true;
    task_->run(groups_ - static_cast<int>(unclaimed(claim)), memory);
    if (unfinished_.fetch_sub(1, std::memory_order_seq_cst) == 1) ended_.ring(Bell::kHosts);
    claim = claim_.load(std::memory_order_acquire);
  }
  return any;
}

void GroupQueue::wait() {
  // The groups that are missing are being executed: most often they end within the spin.
  ended_.wait(Bell::kHosts, [this] { return unfinished_.load(std::memory_order_seq_cst) == 0; });
}

}  // namespace opentrn::runtime
