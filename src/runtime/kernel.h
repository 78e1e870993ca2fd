// A kernel: a compiled program made ready to launch, with its modelled time and what it moves and computes.
// Kernels are shared between launches and live as long as somebody holds them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cost/timing.h"
#include "exec/interpreter.h"
#include "graph/graph.h"

namespace opentrn::runtime {

struct Kernel {
  int32_t id = -1;                 // position in kernel order of this process
  std::string key;                 // 32 hex digits
  std::string name;                // e.g. "aten::add.Tensor f32[4096,1024]"
  std::shared_ptr<const isa::Program> program;
  std::shared_ptr<const exec::Executable> executable;  // null in predict mode
  cost::ProgramTime time;
  int64_t scratch_bytes = 0;
  int64_t busy_ps[5] = {};         // per engine, summed over cores
  int64_t dma_busy_ps = 0;         // summed over cores
  int64_t hbm_bytes = 0;           // read and written
  int64_t model_flops = 0, hardware_flops = 0;
  double compile_ms = 0;           // host time of making it (0 when it came from the disk cache)
  enum class Source : uint8_t { compiled, disk } source = Source::compiled;
};

struct CacheStats {
  int64_t compiled = 0, memory_hits = 0, disk_hits = 0, disk_writes = 0, disk_rejected = 0, evicted = 0;
  double compile_ms = 0;
};

// The kernel of a graph for the current settings: from memory, from the disk cache, or compiled now.
// Thread-safe; two threads asking for the same graph compile it once. Throws what the compiler throws.
std::shared_ptr<const Kernel> kernel_for(const graph::Graph& graph);
// The same for a program written by hand.
std::shared_ptr<const Kernel> kernel_for(std::shared_ptr<const isa::Program> program);

// All kernels made so far and still alive, by id; for profiles and `opentrn show`.
std::shared_ptr<const Kernel> kernel_by_id(int32_t id);
int32_t kernel_count();

CacheStats cache_stats();
void clear_cache(bool disk);
// Waits until pending writes to the disk cache are done.
void flush_cache();

// 32 hex digits over the graph (without origins), chip hash, LNC, and the versions of compiler, cost model and ISA.
std::string kernel_key(const graph::Graph& graph);

}  // namespace opentrn::runtime
