#include "runtime/group_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "programs.h"
#include "runtime/worker_memory.h"
#include "spec/chip.h"

namespace opentrn::runtime {
namespace {

class GroupQueueTest : public testing::Test {
 protected:
  // Threads that help until the test ends.
  void start_helpers(int count) {
    for (int i = 0; i < count; ++i)
      helpers_.emplace_back([this] {
        BorrowedMemory memory(pool_);
        while (!over_.load()) {
          if (!queue_.help(memory)) pause_cpu();
        }
      });
  }
  ~GroupQueueTest() override {
    over_.store(true);
    for (auto& helper : helpers_) helper.join();
  }

  WorkerMemoryPool pool_{spec::chip("trn2")};
  GroupQueue queue_;
  std::atomic<bool> over_{false};
  std::vector<std::thread> helpers_;
};

// Not atomic: a group that runs twice at a time, or before the stage ahead has ended, is a data race.
struct Count final : GroupTask {
  std::vector<int> runs;
  int expected = 0;
  std::atomic<int> early{0};
  void run(int group, BorrowedMemory&) noexcept override {
    int& mine = runs[static_cast<size_t>(group)];
    early += mine != expected;
    ++mine;
  }
};

TEST_F(GroupQueueTest, EachGroupRunsOnceAndAStageEndsBeforeTheNext) {
  start_helpers(3);
  BorrowedMemory memory(pool_);
  for (int groups : {1, 2, 7, 100}) {
    Count task;
    task.runs.resize(static_cast<size_t>(groups));
    for (task.expected = 0; task.expected < 300; ++task.expected) {
      int announced = 0;
      queue_.run(task, groups, memory, [&] { ++announced; });
      EXPECT_EQ(announced, 1);
      EXPECT_FALSE(queue_.open());
    }
    for (int runs : task.runs) EXPECT_EQ(runs, 300);
    EXPECT_EQ(task.early.load(), 0);
  }
}

struct Nothing final : GroupTask {
  void run(int, BorrowedMemory&) noexcept override {
    for (int i = 0; i < 10; ++i) pause_cpu();
  }
};

TEST_F(GroupQueueTest, StagesFollowEachOtherQuickly) {
  if (kSanitized || std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "times of several threads";
  start_helpers(1);
  BorrowedMemory memory(pool_);
  Nothing task;
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000; ++i) queue_.run(task, 2, memory, [] {});
    best = std::min(best,
                    std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 1000);
  }
  std::printf("a stage of two groups on two threads: %.2f us\n", best);
  EXPECT_LT(best, 10);
}

}  // namespace
}  // namespace opentrn::runtime
