#include "runtime/worker_memory.h"

namespace opentrn::runtime {

std::unique_ptr<exec::WorkerMemory> WorkerMemoryPool::take() {
  std::lock_guard lock(mutex_);
  if (unused_.empty()) return std::make_unique<exec::WorkerMemory>(chip_);
  std::unique_ptr<exec::WorkerMemory> memory = std::move(unused_.back());
  unused_.pop_back();
  return memory;
}

void WorkerMemoryPool::put_back(std::unique_ptr<exec::WorkerMemory> memory) {
  std::lock_guard lock(mutex_);
  unused_.push_back(std::move(memory));
}

BorrowedMemory::~BorrowedMemory() {
  if (memory_) pool_.put_back(std::move(memory_));
}

}  // namespace opentrn::runtime
