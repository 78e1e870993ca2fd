// A kernel: a compiled program made ready to launch, with its modelled time and what it moves and computes.
// Kernels are shared between launches and live as long as somebody holds them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cost/timing.h"
#include "exec/interpreter.h"
#include "exec/plan.h"
#include "graph/graph.h"

namespace opentrn::runtime {

struct Kernel {
  int32_t id = -1;   // position in kernel order of this process
  std::string key;   // 32 hex digits
  std::string name;  // e.g. "aten::add.Tensor f32[4096,1024]"
  std::shared_ptr<const isa::Program> program;
  std::shared_ptr<const exec::Plan> plan;  // null in predict mode and with OPENTRN_HOST_PLAN=off
  cost::ProgramTime time;
  // What launching needs, in a few cache lines: the buffers given at launch, in the program's order, the number of
  // scalars, and where each scratch buffer lies in one block of `scratch_bytes` (one entry per buffer of the program).
  struct ArgumentBuffer {
    int64_t bytes = 0;
    int32_t alias = -1;  // index of the earlier argument that is the same memory
  };
  std::vector<ArgumentBuffer> arguments;
  // Memory that the arguments stand for: those declared to be the same are one. The plan holds when none that is
  // written overlaps another.
  struct Region {
    int32_t argument = 0;  // the first that lies there
    int64_t bytes = 0;
    bool written = false;
  };
  std::vector<Region> regions;
  int32_t scalars = 0;
  std::vector<int64_t> scratch_offsets;
  int64_t scratch_bytes = 0;
  int64_t busy_ps[5] = {};  // per engine, summed over cores
  int64_t dma_busy_ps = 0;  // summed over cores
  int64_t hbm_bytes = 0;    // read and written
  int64_t model_flops = 0, hardware_flops = 0;
  double compile_ms = 0;  // host time of compiling it (0 when it came from the disk cache)
  double plan_ms = 0;     // host time of making its plan
  enum class Source : uint8_t { compiled, disk } source = Source::compiled;

  // For the reference interpreter; made when first asked for. Thread-safe.
  const exec::Executable& executable() const;
  mutable std::once_flag executable_made;
  mutable std::unique_ptr<const exec::Executable> interpreted;
  enum class Check : uint8_t { none, equal, unequal };
  mutable std::atomic<Check> check = Check::none;  // what comparing plan and interpreter has shown
};

// A kernel of a program that is known to be sound: timed, and prepared for execution unless in predict mode.
// Neither in the cache nor numbered.
std::shared_ptr<Kernel> make_kernel(std::shared_ptr<const isa::Program> program,
                                    const cost::ProgramTime* time = nullptr);

// Notes that the plan was compared with the interpreter on one launch (OPENTRN_HOST_PLAN=check).
void count_check(const Kernel& kernel, bool equal);

struct CacheStats {
  int64_t compiled = 0, memory_hits = 0, disk_hits = 0, disk_writes = 0, disk_rejected = 0;
  int64_t evicted = 0;       // from memory
  int64_t disk_evicted = 0;  // files removed to stay below the size limit
  double compile_ms = 0;
  int64_t plans = 0, plans_checked = 0, plans_unequal = 0;
  double plan_ms = 0;
};

// The kernel of a graph for the current settings: from memory, from the disk cache, or compiled now.
// Thread-safe; two threads asking for the same graph compile it once. Throws what the compiler throws.
std::shared_ptr<const Kernel> kernel_for(const graph::Graph& graph);
// The same for a program written by hand: verified first (UserError), kept in memory only.
std::shared_ptr<const Kernel> kernel_for(std::shared_ptr<const isa::Program> program);

// A kernel made so far, by id, nullptr when nobody holds it any more; for profiles and `opentrn show`. While launches
// are recorded, the kernels that leave the cache stay alive.
std::shared_ptr<const Kernel> kernel_by_id(int32_t id);
int32_t kernel_count();

CacheStats cache_stats();
void clear_cache(bool disk);
// Waits until pending writes to the disk cache are done.
void flush_cache();

// 32 hex digits over the graph (without origins and names), chip hash, LNC, the versions of compiler and ISA, and the
// build of this library, so that a program made by another build is never taken for one of this.
std::string kernel_key(const graph::Graph& graph);

}  // namespace opentrn::runtime
