// Executes launches, one at a time: a plan stage by stage, or the reference interpreter where the plan may not be used.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "exec/plan.h"
#include "runtime/group_queue.h"
#include "runtime/kernel.h"
#include "runtime/memory.h"
#include "runtime/settings.h"
#include "runtime/work_queue.h"
#include "runtime/worker_memory.h"

namespace opentrn::runtime {

class LaunchTask final : public GroupTask {
 public:
  LaunchTask(const spec::Chip& chip, const DeviceMemory& memory, HostPlan host_plan)
      : chip_(chip), memory_(memory), host_plan_(host_plan) {}

  // Executes the groups of a stage, in any order and possibly at the same time.
  using RunStage = std::function<void(GroupTask&, int groups)>;

  // Returns what went wrong, "" when nothing did. `run_stage` is used for stages worth the hand-over to other threads.
  std::string execute(LaunchWork& work, BorrowedMemory& memory, const RunStage& run_stage);

  void run(int group, BorrowedMemory& memory) noexcept override;

 private:
  void resolve_buffers(LaunchWork& work);
  bool overlaps_undeclared(LaunchWork& work);
  void run_plan(BorrowedMemory& memory, const RunStage* run_stage);
  void interpret(BorrowedMemory& memory, const RunStage* run_stage);
  void interpret_in_order(BorrowedMemory& memory);
  void run_groups(int groups, BorrowedMemory& memory, const RunStage* run_stage);
  void fail(int group, std::string message);

  const spec::Chip& chip_;
  const DeviceMemory& memory_;
  const HostPlan host_plan_;

  // The launch at hand.
  const Kernel* kernel_ = nullptr;
  const exec::LaunchValues* values_ = nullptr;
  const exec::Executable* executable_ = nullptr;  // when it is interpreted: a group is a core
  int stage_ = 0;
  std::vector<std::byte*> buffers_;
  struct Region {
    const std::byte* begin;
    const std::byte* end;
    bool written;
  };
  std::vector<Region> regions_;

  // The failure of the lowest group: groups are taken in ascending order, so that it does not depend on timing.
  std::atomic<bool> failed_{false};
  std::mutex failure_mutex_;
  int failed_group_ = 0;
  std::string failure_;
};

}  // namespace opentrn::runtime
