#include <algorithm>
#include <cmath>

#include "cost/cost.h"

namespace opentrn::cost {

using isa::AccessPattern;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;

namespace {

int64_t ps(double ns) { return std::llround(ns * 1000.0); }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements that lie one after the other in memory; in SBUF and PSUM a run ends with its partition.
int64_t contiguous_run(const AccessPattern& ap) {
  int64_t run = 1;
  for (size_t i = ap.dims.size(); i-- > 0;) {
    if (ap.dims[i].count == 1) continue;
    if (ap.dims[i].stride != run) return run;
    run *= ap.dims[i].count;
  }
  if (ap.memory == Memory::hbm && ap.partitions > 1 && ap.partition_stride == run) run *= ap.partitions;
  return run;
}

// Descriptors of equal size, spread over the engines.
struct Spread {
  int64_t descriptors = 0;
  int engines = 0;
  int64_t per_engine = 0;      // descriptors of the busiest engine
  double engine_bytes = 0;     // payload of the busiest engine
};

// A run longer than a descriptor may be is cut; so is one that would leave engines idle, into pieces of at least
// dma_split_bytes (profiles show a 32 KiB transfer as 2 KiB on each of 16 engines, and also as 32 KiB on one:
// the spread form is assumed). Runs long enough to cut share the engines evenly.
Spread spread(int64_t descriptors, int64_t run_bytes, bool may_split, const spec::Chip& chip) {
  Spread s;
  if (descriptors == 0) return s;
  int64_t total = descriptors * run_bytes;
  if (run_bytes > chip.dma_max_descriptor_bytes) {
    int64_t pieces = ceil_div(run_bytes, chip.dma_max_descriptor_bytes);
    descriptors *= pieces;
    run_bytes = ceil_div(run_bytes, pieces);
  }
  bool long_runs = may_split && run_bytes >= 2 * chip.dma_split_bytes;
  if (descriptors < chip.dma_engines && long_runs) {
    int64_t pieces = std::min(ceil_div(chip.dma_engines, descriptors), run_bytes / chip.dma_split_bytes);
    descriptors *= pieces;
    run_bytes = ceil_div(run_bytes, pieces);
  }
  s.descriptors = descriptors;
  s.engines = static_cast<int>(std::min<int64_t>(chip.dma_engines, descriptors));
  s.per_engine = ceil_div(descriptors, s.engines);
  s.engine_bytes = long_runs ? static_cast<double>(total) / s.engines : static_cast<double>(s.per_engine * run_bytes);
  return s;
}

}  // namespace

Transfer transfer(const Instruction& in, const isa::Program&, const spec::Chip& chip) {
  Transfer t;
  const AccessPattern& src = in.src[0];
  const AccessPattern& dst = in.dst;
  const double rate = chip.dma_bytes_per_ns_per_engine;
  const bool indirect = in.opcode == Opcode::dma_gather || in.opcode == Opcode::dma_scatter;
  const AccessPattern& shape = in.opcode == Opcode::dma_gather ? dst : src;  // the side with every element
  const int64_t elements = shape.elements();
  const int64_t element_bytes = std::max(size_of(src.dtype), size_of(dst.dtype));
  t.bytes = elements * element_bytes;
  t.complete_ps = ps(chip.dma_complete_ns);
  if (src.memory == Memory::hbm) t.hbm_read_bytes = elements * size_of(src.dtype);
  if (dst.memory == Memory::hbm) {
    t.hbm_write_bytes = elements * size_of(dst.dtype);
    if (in.accumulate) t.hbm_read_bytes += t.hbm_write_bytes;
  }
  t.hbm_ps = ps(static_cast<double>(t.hbm_read_bytes + t.hbm_write_bytes) / chip.hbm_gb_s_per_core);

  double ns = 0;
  if (indirect) {
    int64_t rows = std::max<int64_t>(1, in.src[1].elements());
    int64_t row_bytes = ceil_div(t.bytes, rows);
    Spread s = spread(elements ? rows : 0, row_bytes, false, chip);
    bool gather = in.opcode == Opcode::dma_gather;
    double descriptor_ns = gather ? chip.dma_gather_descriptor_ns : chip.dma_scatter_descriptor_ns;
    double factor = gather ? chip.dma_gather_payload_factor : chip.dma_scatter_payload_factor;
    if (in.accumulate) factor /= chip.dma_accumulate_fraction;
    ns = static_cast<double>(s.per_engine) * descriptor_ns + factor * s.engine_bytes / rate;
    t.descriptors = s.descriptors;
    t.engines = s.engines;
    t.start_ps = ps(chip.dma_start_dynamic_ns);
    t.issue_ps = ps(chip.dma_issue_dynamic_ns) * std::max<int64_t>(1, ceil_div(s.descriptors, chip.dma_dynamic_batch));
  } else {
    int64_t run = std::max<int64_t>(1, std::min(contiguous_run(src), contiguous_run(dst)));
    double fraction = in.accumulate ? chip.dma_accumulate_fraction : 1;
    double slower = 1;
    if (in.opcode == Opcode::dma_transpose) {
      // The plain rate of a copy of the same size, with rows as long as the longer side.
      run = std::max<int64_t>(src.partitions, src.free_elements());
      slower = src.memory == Memory::hbm || dst.memory == Memory::hbm ? chip.dma_transpose_fraction
                                                                      : chip.dma_transpose_sbuf_fraction;
    }
    Spread s = spread(ceil_div(elements, run), run * element_bytes, true, chip);
    if (s.descriptors)
      ns = std::max(static_cast<double>(s.per_engine) * chip.dma_descriptor_ns,
                    s.engine_bytes / (rate * fraction) + chip.dma_transfer_overhead_ns) / slower;
    t.descriptors = s.descriptors;
    t.engines = s.engines;
    t.start_ps = ps(chip.dma_start_ns);
    t.issue_ps = ps(chip.dma_issue_ns);
  }
  t.engine_ps = ps(ns);
  return t;
}

}  // namespace opentrn::cost
