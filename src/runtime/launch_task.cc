#include "runtime/launch_task.h"

#include <algorithm>
#include <exception>
#include <optional>

namespace opentrn::runtime {
namespace {

// Below this the hand-over to another thread costs more than it saves.
constexpr int64_t kParallelBytes = 64 << 10;   // HBM traffic of a launch
constexpr int64_t kParallelFlops = 4'000'000;  // of its matrix multiplications

constexpr size_t kFewRegions = 24;  // up to which comparing all pairs is quicker than sorting

}  // namespace

std::string LaunchTask::execute(LaunchWork& work, BorrowedMemory& memory, const RunStage& run_stage) {
  kernel_ = work.kernel;
  failed_.store(false, std::memory_order_relaxed);
  failure_.clear();
  resolve_buffers(work);
  const bool parallel = kernel_->hbm_bytes > kParallelBytes || kernel_->hardware_flops > kParallelFlops;
  try {
    const std::span<const exec::ScalarValue> scalars(work.values(), work.scalars);
    const exec::LaunchValues values(*kernel_->program, scalars);
    values_ = &values;
    if (overlaps_undeclared(work)) {
      interpret_in_order(memory);
    } else if (!kernel_->plan) {
      interpret(memory, parallel ? &run_stage : nullptr);
    } else {
      std::optional<exec::PlanCheck> check;
      if (host_plan_ == HostPlan::check) check.emplace(kernel_->program, chip_, buffers_, scalars);
      run_plan(memory, parallel ? &run_stage : nullptr);
      if (check) {
        std::string difference = check->compare(failure_.empty());
        count_check(*kernel_, difference.empty());
        if (!difference.empty()) failure_ = std::move(difference);
      }
    }
  } catch (const std::exception& error) {
    failure_ = error.what();
  }
  return std::move(failure_);
}

void LaunchTask::resolve_buffers(LaunchWork& work) {
  const isa::Program& program = *kernel_->program;
  buffers_.resize(program.buffers.size());
  std::byte* const scratch = work.scratch ? memory_.host(work.scratch) : nullptr;
  void** address = work.addresses();
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const isa::Buffer& buffer = program.buffers[i];
    switch (buffer.kind) {
      case isa::Buffer::Kind::input:
      case isa::Buffer::Kind::output:
        // A tensor without elements lies nowhere, whatever its address.
        buffers_[i] = *address && buffer.bytes > 0 ? memory_.host(*address) : nullptr;
        ++address;
        break;
      case isa::Buffer::Kind::scratch: buffers_[i] = scratch + kernel_->scratch_offsets[i]; break;
      case isa::Buffer::Kind::constant: buffers_[i] = const_cast<std::byte*>(buffer.data.data()); break;
    }
  }
}

bool LaunchTask::overlaps_undeclared(LaunchWork& work) {
  regions_.clear();
  for (const Kernel::Region& region : kernel_->regions) {
    const auto* begin = static_cast<const std::byte*>(work.addresses()[region.argument]);
    regions_.push_back({begin, begin + region.bytes, region.written});
  }
  if (regions_.size() <= kFewRegions) {
    for (size_t i = 1; i < regions_.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if ((regions_[i].written || regions_[j].written) && regions_[i].begin < regions_[j].end &&
            regions_[j].begin < regions_[i].end)
          return true;
    return false;
  }
  std::ranges::sort(regions_, {}, &Region::begin);
  const std::byte *end = nullptr, *written_end = nullptr;  // of all regions so far
  for (const Region& region : regions_) {
    if (region.begin < (region.written ? end : written_end)) return true;
    end = std::max(end, region.end);
    if (region.written) written_end = std::max(written_end, region.end);
  }
  return false;
}

void LaunchTask::run_plan(BorrowedMemory& memory, const RunStage* run_stage) {
  executable_ = nullptr;
  const int stages = kernel_->plan->stages();
  for (stage_ = 0; stage_ < stages && !failed_.load(std::memory_order_acquire); ++stage_)
    run_groups(kernel_->plan->groups(stage_), memory, run_stage);
}

void LaunchTask::interpret(BorrowedMemory& memory, const RunStage* run_stage) {
  executable_ = &kernel_->executable();
  if (executable_->cores_communicate()) return interpret_in_order(memory);
  run_groups(executable_->cores(), memory, run_stage);
}

void LaunchTask::interpret_in_order(BorrowedMemory& memory) {
  const exec::Executable& executable = kernel_->executable();
  std::vector<exec::CoreMemory*> cores;
  for (int core = 0; core < executable.cores(); ++core) cores.push_back(&memory.get().core(core));
  exec::Fault fault;
  if (!exec::run(executable, cores, buffers_, *values_, fault)) fail(0, std::move(fault.message));
}

void LaunchTask::run_groups(int groups, BorrowedMemory& memory, const RunStage* run_stage) {
  if (run_stage && groups > 1) return (*run_stage)(*this, groups);
  for (int group = 0; group < groups; ++group) run(group, memory);
}

void LaunchTask::run(int group, BorrowedMemory& memory) noexcept {
  if (failed_.load(std::memory_order_acquire)) return;
  try {
    exec::Fault fault;
    const bool ok = executable_ ? exec::run_core(*executable_, group, memory.get().core(group), buffers_, *values_,
                                                 /*rendezvous=*/nullptr, fault)
                                : kernel_->plan->run(stage_, group, buffers_, *values_, memory.get(), fault);
    if (!ok) fail(group, std::move(fault.message));
  } catch (const std::exception& error) {
    fail(group, error.what());
  }
}

void LaunchTask::fail(int group, std::string message) {
  std::lock_guard lock(failure_mutex_);
  if (!failure_.empty() && failed_group_ < group) return;
  failed_group_ = group;
  failure_ = message.empty() ? "the program failed" : std::move(message);
  failed_.store(true, std::memory_order_release);
}

}  // namespace opentrn::runtime
