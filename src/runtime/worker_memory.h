// On-chip memory for the threads that execute: made when a thread first needs it, kept for the next one afterwards.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "exec/plan.h"
#include "spec/chip.h"

namespace opentrn::runtime {

class WorkerMemoryPool {
 public:
  explicit WorkerMemoryPool(const spec::Chip& chip) : chip_(chip) {}
  // The memory that was put back last is likely in the caches.
  std::unique_ptr<exec::WorkerMemory> take();
  void put_back(std::unique_ptr<exec::WorkerMemory> memory);

 private:
  const spec::Chip& chip_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<exec::WorkerMemory>> unused_;
};

// One thread's memory, taken from the pool at the first `get`.
class BorrowedMemory {
 public:
  explicit BorrowedMemory(WorkerMemoryPool& pool) : pool_(pool) {}
  ~BorrowedMemory();
  BorrowedMemory(const BorrowedMemory&) = delete;
  BorrowedMemory& operator=(const BorrowedMemory&) = delete;
  exec::WorkerMemory& get() {
    if (!memory_) memory_ = pool_.take();
    return *memory_;
  }

 private:
  WorkerMemoryPool& pool_;
  std::unique_ptr<exec::WorkerMemory> memory_;
};

}  // namespace opentrn::runtime
