// Runs a program through its host plan, groups in a shuffled order, and compares every byte of HBM with the reference
// interpreter.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "exec/plan.h"

namespace opentrn {

struct PlanRun {
  bool ok = true;
  exec::Fault fault;
  std::string difference;   // from the interpreter, "" for none
  std::string literal;      // why the program was not planned, ""
  std::vector<int> groups;  // of each stage
};

// `poisoned`: bytes of tile memory that are overwritten before each group.
inline PlanRun run_plan(const std::shared_ptr<const isa::Program>& program, const spec::Chip& chip,
                        std::span<std::byte* const> buffers, std::span<const exec::ScalarValue> scalars = {},
                        size_t poisoned = size_t{32} << 20) {
  static exec::WorkerMemory trn2(spec::chip("trn2"));
  std::unique_ptr<exec::WorkerMemory> other;
  if (chip.name != "trn2") other = std::make_unique<exec::WorkerMemory>(chip);
  exec::WorkerMemory& memory = other ? *other : trn2;
  const exec::Plan plan(program, chip);
  exec::PlanCheck check(program, chip, buffers, scalars);
  const exec::LaunchValues values(*program, scalars);
  std::mt19937 random(7);
  PlanRun run;
  run.literal = plan.literal_reason();
  for (int stage = 0; stage < plan.stages(); ++stage) run.groups.push_back(plan.groups(stage));
  for (int stage = 0; stage < plan.stages() && run.ok; ++stage) {
    std::vector<int> order(static_cast<size_t>(plan.groups(stage)));
    for (size_t g = 0; g < order.size(); ++g) order[g] = static_cast<int>(g);
    std::ranges::shuffle(order, random);
    for (const int group : order) {
      std::memset(memory.arena(poisoned), 0xFF, poisoned);  // a read before a write shows
      run.ok = plan.run(stage, group, buffers, values, memory, run.fault) && run.ok;
    }
  }
  run.difference = check.compare(run.ok);
  return run;
}

}  // namespace opentrn
