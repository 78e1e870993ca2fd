// Groups of independent work, offered by one thread and executed by all that help: the groups of a stage of a program,
// or the parts of a large copy.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/bell.h"

namespace opentrn::runtime {

class BorrowedMemory;

// What the groups do. `run` may be called from several threads at once, with different groups.
class GroupTask {
 public:
  virtual void run(int group, BorrowedMemory& memory) noexcept = 0;

 protected:
  ~GroupTask() = default;
};

class GroupQueue {
 public:
  // Offers groups 0..groups-1, executes those that nobody else takes, and returns when all have ended. One thread at a
  // time. `announce` is called when the groups can be taken.
  template <typename Announce>
  void run(GroupTask& task, int groups, BorrowedMemory& memory, Announce announce) {
    offer(task, groups);
    announce();
    help(memory);
    wait();
  }
  // True while groups wait to be taken.
  bool open() const { return unclaimed(claim_.load(std::memory_order_seq_cst)) > 0; }
  // Executes groups, in ascending order, until none is left to take; false when there was none. Any thread.
  bool help(BorrowedMemory& memory);

 private:
  static uint32_t unclaimed(uint64_t claim) { return static_cast<uint32_t>(claim); }
  void offer(GroupTask& task, int groups);
  void wait();

  // Number of the offer in the upper half, groups not yet taken in the lower. A thread that has taken a group may read
  // `task_` and `groups_`: they change only when every group has ended.
  alignas(64) std::atomic<uint64_t> claim_{0};
  GroupTask* task_ = nullptr;
  int groups_ = 0;
  alignas(64) std::atomic<int> unfinished_{0};
  Bell ended_;
};

}  // namespace opentrn::runtime
