// The threads that execute one device's work: a worker that takes the queue's records in order, and a helper that
// runs the second physical core of a launch, or half of a large copy, at the same time.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exec/interpreter.h"
#include "runtime/memory.h"
#include "runtime/work_queue.h"
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

class Worker {
 public:
  // Starts min(threads, lnc) threads; `memory` must be backed and outlive the worker.
  Worker(int device, const spec::Chip& chip, int lnc, int threads, const DeviceMemory& memory);
  // Waits for the work in the queue, then ends the threads.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  WorkQueue& queue() { return queue_; }
  // The unreported failure of work up to `ticket`, which counts as reported from now on.
  std::optional<Failure> take_failure(uint64_t ticket);
  // For the process's exit: ends the threads after the record at hand, or gives up after `patience_ms`.
  void abandon(int patience_ms);

 private:
  class Helper;
  void run();
  void execute(Work* work);
  void launch(LaunchWork& work);
  void copy(std::byte* destination, const std::byte* source, int64_t size);
  void fail(const LaunchWork& work, std::string message, int32_t origin);

  const int device_;
  const spec::Chip& chip_;
  const DeviceMemory& memory_;
  const int lnc_;
  WorkQueue queue_;
  std::vector<std::unique_ptr<exec::CoreMemory>> core_memories_;
  std::vector<exec::CoreMemory*> core_memory_pointers_;
  std::vector<std::byte*> buffers_;  // of the launch at hand
  std::unique_ptr<Helper> helper_;   // null with one thread

  std::atomic<bool> stopping_{false}, ended_{false};
  std::atomic<bool> failed_{false};
  std::mutex failure_mutex_;
  std::optional<Failure> failure_;
  std::thread thread_;
};

}  // namespace opentrn::runtime
