// The cost model beside the public laws it follows: one row per instruction and size.
// What benchmarks print as chip.cost.* and chip.dma.*.
#pragma once

#include <string>
#include <vector>

#include "spec/chip.h"

namespace opentrn::cost {

struct Conformance {
  std::string name;      // "chip.cost.vector.tensor_tensor.f32.n512", "chip.dma.2048"
  double model_ns = 0;
  double law_ns = 0;     // measured where a public measurement exists, else documented
  std::string source;    // "measured" or "documented"
  std::string note;      // where sources disagree: the alternative
};

// Isolated instructions of a chip that has public laws (trn1, trn2); empty for others.
std::vector<Conformance> instruction_conformance(const spec::Chip& chip);

// The DMA bandwidth curve: a copy of 128 partitions at each documented size per partition.
std::vector<Conformance> dma_conformance(const spec::Chip& chip);

}  // namespace opentrn::cost
