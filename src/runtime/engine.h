// The threads that execute one device's work, in the order in which it was submitted.
//
// One thread at a time leads: it takes records from the queue and executes them. The groups of a large launch, copy or
// fill are offered to the others. A host thread that waits for work becomes one of these threads until that work is
// done; so there is a worker fewer than threads, but always one, and at most `threads` threads execute at a time.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/bell.h"
#include "runtime/group_queue.h"
#include "runtime/launch_task.h"
#include "runtime/memory.h"
#include "runtime/settings.h"
#include "runtime/work_queue.h"
#include "runtime/worker_memory.h"
#include "spec/chip.h"

namespace opentrn::runtime {

// The first failure that nobody has been told of, and how many followed it.
struct Failure {
  uint64_t ticket = 0;
  std::string kernel;
  std::string message;
  int32_t origin = -1;
  int64_t further = 0;
};

class Engine {
 public:
  // `memory` must be backed and outlive the engine.
  Engine(int device, const spec::Chip& chip, int threads, HostPlan host_plan, const DeviceMemory& memory);
  // Executes the work in the queue, then ends the threads.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void set_threads(int threads);

  // Producers reserve and publish records, one at a time.
  WorkQueue& queue() { return queue_; }
  // Follows `publish`, unless the caller is about to wait for the record.
  void notify() {
    if (leading_.load(std::memory_order_seq_cst) || waking_.load(std::memory_order_seq_cst)) return;
    if (!waking_.exchange(true, std::memory_order_seq_cst)) bell_.ring(Bell::kWorkers, 1);
  }
  // Returns when the work up to `ticket` is done, and helps to do it. At the process's exit it may return earlier.
  void wait(uint64_t ticket);
  // Until half of the ring is free, so that producer and engine do not take turns record by record.
  void wait_for_space();

  // The unreported failure of work up to `ticket`, which counts as reported from now on.
  std::optional<Failure> take_failure(uint64_t ticket);
  // For the process's exit: ends the threads after the record at hand, or gives up after `patience_ms`.
  void abandon(int patience_ms);

 private:
  struct Worker {
    std::thread thread;
    std::atomic<bool> ended{false};
  };

  void start_workers();
  void work(int index, Worker& self);
  bool try_lead() { return !leading_.exchange(true, std::memory_order_seq_cst); }
  void stop_leading() { leading_.store(false, std::memory_order_seq_cst); }
  bool stopping() const { return stopping_.load(std::memory_order_seq_cst); }
  bool done(uint64_t ticket) const { return queue_.completed() >= ticket; }
  bool pending() const { return queue_.completed() != queue_.submitted(); }
  bool leaderless() const { return !leading_.load(std::memory_order_seq_cst) && pending(); }
  int workers() const { return std::max(1, threads_.load(std::memory_order_seq_cst) - 1); }
  bool can_help() const {
    return groups_.open() && helpers_.load(std::memory_order_seq_cst) < threads_.load(std::memory_order_seq_cst) - 1;
  }
  bool help(BorrowedMemory& memory);
  // The leader's: executes records until `ticket` is done or the queue is empty.
  void lead(uint64_t ticket, BorrowedMemory& memory);
  void execute(Work* work, BorrowedMemory& memory);
  void run_groups(GroupTask& task, int groups, BorrowedMemory& memory);
  void fail(const LaunchWork& work, std::string message);

  const int device_;
  WorkQueue queue_;
  WorkerMemoryPool memories_;
  LaunchTask launch_;  // the leader's
  alignas(64) std::atomic<bool> leading_{false};
  // A worker was woken and has not looked for work yet: on a busy machine many launches can pass in between.
  std::atomic<bool> waking_{false};
  std::atomic<uint64_t> wanted_{UINT64_MAX};  // the least ticket that a sleeping host may wait for
  alignas(64) std::atomic<int> helpers_{0};
  std::atomic<int> threads_;
  GroupQueue groups_;
  Bell bell_;

  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::mutex failure_mutex_;
  std::optional<Failure> failure_;
  std::mutex workers_mutex_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace opentrn::runtime
