// The set of bytes an access pattern touches, as a sum of strided ranges, and whether two such sets overlap.
// Used by the verifier's order proof; the test is exact for everything that tiling produces.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/small_vector.h"
#include "isa/program.h"

namespace opentrn::isa {

// `count` steps of `bytes`.
struct Step {
  int64_t bytes = 0;
  int64_t count = 1;
};

inline constexpr size_t kMaxSteps = 12;

// base + sum(step.bytes * index) + [0, run): `steps` are positive and ascending, adjacent runs are merged.
struct ByteSet {
  int64_t base = 0;
  int64_t run = 1;
  SmallVector<Step, kMaxSteps> steps;

  int64_t end() const {  // one past the last byte
    int64_t last = base + run;
    for (const Step& step : steps) last += step.bytes * (step.count - 1);
    return last;
  }
  int64_t runs() const {
    int64_t n = 1;
    for (const Step& step : steps) n *= step.count;
    return n;
  }
  // Adds a dimension of any sign; keeps the canonical form.
  void add(Step step);
};

// The bytes inside one partition (SBUF, PSUM) or in HBM, where partitions are one more dimension.
// Loop-dependent terms are left out; `base` is the pattern's offset, moved to the lowest address.
ByteSet byte_set(const AccessPattern& pattern);

// Whether the two sets share a byte. Exact, except that a search that exceeds its budget answers yes.
bool overlap(const ByteSet& a, const ByteSet& b);

// Whether sum(step.bytes * index), 0 <= index < count, has a value in [low, high]. Steps may be negative; the array is
// overwritten. At most kMaxTerms steps.
inline constexpr int kMaxTerms = 2 * kMaxSteps + 12;
bool sum_in_interval(Step* steps, int count, int64_t low, int64_t high);

// One operand of an instruction and what the instruction does with it. An operand that keeps part of its old
// contents (accumulation, predicated copies, skipped rows) is read and written.
struct OperandUse {
  const AccessPattern* pattern = nullptr;
  std::string_view name;  // "dst", "src0", "scale", ...
  bool reads = false, writes = false;
  bool indirect = false;  // dma_gather's source, dma_scatter's destination: any of `rows` rows
};

// All operands that are present: destinations, sources, tile scalars.
SmallVector<OperandUse, 8> operand_uses(const Instruction& instruction, const Program& program);

}  // namespace opentrn::isa
