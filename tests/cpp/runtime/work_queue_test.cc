#include "runtime/work_queue.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/spin_lock.h"

namespace opentrn::runtime {
namespace {

Work* take(WorkQueue& queue) {
  Work* work = nullptr;
  while (!(work = queue.next())) sched_yield();
  return work;
}

void wait_for(WorkQueue& queue, uint64_t ticket) {
  while (queue.completed() < ticket) sched_yield();
}

TEST(WorkQueue, KeepsOrderOverManyRoundsOfTheRing) {
  WorkQueue queue;
  constexpr int kRecords = 20'000;
  std::thread consumer([&] {
    for (int i = 0; i < kRecords; ++i) {
      auto& stage = *static_cast<StageWork*>(take(queue));
      ASSERT_EQ(stage.kind, WorkKind::stage);
      ASSERT_EQ(stage.origin, i);
      for (int64_t k = 0; k < stage.size; k += 97) ASSERT_EQ(stage.data()[k], std::byte(i));
      queue.done();
    }
  });
  uint64_t ticket = 0;
  for (int i = 0; i < kRecords; ++i) {
    const size_t bytes = static_cast<size_t>((i * 37) % 5000);
    Work* work = nullptr;
    while (!(work = queue.reserve(sizeof(StageWork) + bytes, WorkKind::stage))) sched_yield();
    auto& stage = *static_cast<StageWork*>(work);
    stage.origin = i;
    stage.size = static_cast<int64_t>(bytes);
    for (size_t k = 0; k < bytes; ++k) stage.data()[k] = std::byte(i);
    const uint64_t published = queue.publish();
    EXPECT_GT(published, ticket);
    ticket = published;
  }
  wait_for(queue, ticket);
  EXPECT_EQ(queue.completed(), ticket);
  consumer.join();
}

TEST(WorkQueue, IsFullBeforeItOverwrites) {
  WorkQueue queue;
  int records = 0;
  while (queue.reserve(1000, WorkKind::fill)) {
    queue.publish();
    ++records;
  }
  EXPECT_EQ(records, static_cast<int>(WorkQueue::kBytes / 1008));
  for (int i = 0; i < 2; ++i) {
    queue.next();
    queue.done();
  }
  EXPECT_NE(queue.reserve(1000, WorkKind::fill), nullptr);
  EXPECT_THROW(queue.reserve(WorkQueue::kMaxRecord + 1, WorkKind::fill), InternalError);
}

TEST(WorkQueue, ManyProducersAndWaiters) {
  WorkQueue queue;
  SpinLock lock;
  constexpr int kThreads = 4, kEach = 3000;
  std::thread consumer([&] {
    std::vector<int> next(kThreads);
    for (int i = 0; i < kThreads * kEach; ++i) {
      auto& call = *static_cast<CallBackWork*>(take(queue));
      const int thread = call.origin;
      ASSERT_EQ(reinterpret_cast<intptr_t>(call.argument), next[static_cast<size_t>(thread)]++);
      queue.done();
    }
  });
  std::vector<std::thread> producers;
  for (int t = 0; t < kThreads; ++t)
    producers.emplace_back([&, t] {
      for (int i = 0; i < kEach;) {
        uint64_t ticket = 0;
        {
          std::lock_guard guard(lock);
          if (auto* call = static_cast<CallBackWork*>(queue.reserve(sizeof(CallBackWork), WorkKind::call_back))) {
            call->origin = t;
            call->argument = reinterpret_cast<void*>(static_cast<intptr_t>(i));
            ticket = queue.publish();
          }
        }
        if (!ticket) {
          sched_yield();
          continue;
        }
        if (++i % 200 == t) wait_for(queue, ticket);
      }
    });
  for (auto& producer : producers) producer.join();
  consumer.join();
  EXPECT_EQ(queue.completed(), queue.submitted());
}

}  // namespace
}  // namespace opentrn::runtime
