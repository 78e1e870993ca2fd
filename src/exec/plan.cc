#include "exec/plan.h"

#include <cstdlib>
#include <new>

#include "exec/executable.h"

namespace opentrn::exec {

WorkerMemory::WorkerMemory(const spec::Chip& chip) : chip_(chip) {}
WorkerMemory::~WorkerMemory() { std::free(arena_); }

CoreMemory& WorkerMemory::core(int core) {
  const auto index = static_cast<size_t>(core);
  if (cores_.size() <= index) cores_.resize(index + 1);
  if (!cores_[index]) cores_[index] = std::make_unique<CoreMemory>(chip_);
  return *cores_[index];
}

std::byte* WorkerMemory::arena(size_t bytes) {
  if (bytes > arena_bytes_) {
    std::free(arena_);
    arena_bytes_ = 0;
    arena_ = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 4095) / 4096 * 4096));
    if (!arena_) throw std::bad_alloc();
    arena_bytes_ = bytes;
  }
  return arena_;
}

struct Plan::Impl {
  Executable executable;
  Impl(std::shared_ptr<const isa::Program> program, const spec::Chip& chip) : executable(std::move(program), chip) {}
};

Plan::Plan(std::shared_ptr<const isa::Program> program, const spec::Chip& chip)
    : program_(std::move(program)), impl_(std::make_unique<Impl>(program_, chip)) {}
Plan::~Plan() = default;

int Plan::stages() const { return 1; }
int Plan::groups(int) const { return impl_->executable.cores_communicate() ? 1 : impl_->executable.cores(); }

bool Plan::run(int, int group, std::span<std::byte* const> buffers, const LaunchValues& values, WorkerMemory& memory,
               Fault& fault) const {
  if (impl_->executable.cores_communicate()) {
    std::vector<CoreMemory*> memories;
    for (int core = 0; core < impl_->executable.cores(); ++core) memories.push_back(&memory.core(core));
    return exec::run(impl_->executable, memories, buffers, values, fault);
  }
  return run_core(impl_->executable, group, memory.core(group), buffers, values, nullptr, fault);
}

}  // namespace opentrn::exec
