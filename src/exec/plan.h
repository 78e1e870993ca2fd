// The host plan: how the host executes a program. A program is translated once into stages of groups; the groups of
// a stage write disjoint parts of HBM and may run at the same time and in any order, a stage starts when the one before
// has ended. Every byte of HBM ends up as the reference interpreter would leave it (docs/host-plan.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/interpreter.h"
#include "exec/launch_values.h"
#include "isa/program.h"
#include "spec/chip.h"

namespace opentrn::exec {

// On-chip memory and working memory of one thread that executes groups. Made once per thread; not thread-safe.
class WorkerMemory {
 public:
  explicit WorkerMemory(const spec::Chip& chip);
  ~WorkerMemory();
  WorkerMemory(const WorkerMemory&) = delete;
  WorkerMemory& operator=(const WorkerMemory&) = delete;
  // SBUF and PSUM of physical core `core`, made when first asked for.
  CoreMemory& core(int core);
  // At least `bytes` of memory, 64-byte aligned, contents undefined; valid until the next call.
  std::byte* arena(size_t bytes);

 private:
  const spec::Chip& chip_;
  std::vector<std::unique_ptr<CoreMemory>> cores_;
  std::byte* arena_ = nullptr;
  size_t arena_bytes_ = 0;
};

class Plan {
 public:
  Plan(std::shared_ptr<const isa::Program> program, const spec::Chip& chip);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  const isa::Program& program() const { return *program_; }
  // Why the program is executed as it is written, "" when it is not.
  const std::string& literal_reason() const;
  int stages() const;
  int groups(int stage) const;
  // Executes one group. `buffers[i]` is the host address of Program::buffers[i], constants included. Returns true, or
  // false with `fault` filled (a fault of the user's data); memory stays valid then, other groups may go on or not.
  bool run(int stage, int group, std::span<std::byte* const> buffers, const LaunchValues& values, WorkerMemory& memory,
           Fault& fault) const;

 private:
  struct Impl;
  std::shared_ptr<const isa::Program> program_;
  std::unique_ptr<Impl> impl_;
};

// The plan of a program as text, for people: stages, groups, and the instructions of each. Tiles appear as places in the
// buffer `tiles`, memory of the thread that runs the group.
std::string describe_plan(const isa::Program& program);

// Compares a plan with the reference interpreter on one launch: made before the launch runs (copies all buffers, which
// may overlap), asked afterwards. For tests and OPENTRN_HOST_PLAN=check.
class PlanCheck {
 public:
  PlanCheck(std::shared_ptr<const isa::Program> program, const spec::Chip& chip, std::span<std::byte* const> buffers,
            std::span<const ScalarValue> scalars);
  ~PlanCheck();
  // Runs the interpreter on the copies; "" when every byte of every buffer is the same, else what differs first:
  // "the host plan of 'add' differs from the reference interpreter in buffer out0 at byte 12: 3f800000, not 00000000".
  // `plan_ok`: what Plan::run returned for all groups; after a fault of both, memory is not compared.
  std::string compare(bool plan_ok);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace opentrn::exec
