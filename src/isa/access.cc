#include "isa/access.h"

#include <algorithm>
#include <numeric>

#include "isa/names.h"

namespace opentrn::isa {
namespace {

int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

// Branch and bound over the steps, largest first: with strides of nested tiles each level leaves one or two
// candidates, so that the search is linear; the greatest common divisor of what remains cuts the rest.
struct Search {
  const Step* steps;
  int count;
  const int64_t* reach;    // largest sum of steps[k..]
  const int64_t* divisor;  // gcd of steps[k..]
  int budget = 20000;

  bool find(int k, int64_t low, int64_t high) {
    if (high < 0 || low > reach[k]) return false;
    if (low <= 0) return true;  // all remaining indices zero
    if (k == count) return false;
    if (floor_div(high, divisor[k]) < ceil_div(low, divisor[k])) return false;
    if (--budget < 0) return true;
    const Step& step = steps[k];
    const int64_t first = std::max<int64_t>(0, ceil_div(low - reach[k + 1], step.bytes));
    const int64_t last = std::min(step.count - 1, floor_div(high, step.bytes));
    for (int64_t i = first; i <= last; ++i)
      if (find(k + 1, low - i * step.bytes, high - i * step.bytes)) return true;
    return false;
  }
};

}  // namespace

void ByteSet::add(Step step) {
  if (step.count <= 1 || step.bytes == 0) return;
  if (step.bytes < 0) {
    base += step.bytes * (step.count - 1);
    step.bytes = -step.bytes;
  }
  steps.push_back(step);
  for (size_t i = steps.size() - 1; i > 0 && steps[i].bytes < steps[i - 1].bytes; --i)
    std::swap(steps[i], steps[i - 1]);
  // A step that continues where the run ends lengthens the run; one that continues another step joins it.
  while (!steps.empty() && steps[0].bytes <= run) {
    run += steps[0].bytes * (steps[0].count - 1);
    steps.erase(0);
  }
  for (size_t i = 1; i < steps.size();) {
    if (steps[i].bytes == steps[i - 1].bytes) {
      steps[i - 1].count += steps[i].count - 1;
      steps.erase(i);
    } else if (steps[i].bytes == steps[i - 1].bytes * steps[i - 1].count) {
      steps[i - 1].count *= steps[i].count;
      steps.erase(i);
    } else {
      ++i;
    }
  }
}

ByteSet byte_set(const AccessPattern& pattern) {
  ByteSet set;
  const int64_t size = size_of(pattern.dtype);
  set.base = pattern.offset;
  set.run = size;
  for (size_t i = pattern.dims.size(); i-- > 0;) set.add({pattern.dims[i].stride * size, pattern.dims[i].count});
  if (pattern.memory == Memory::hbm) set.add({pattern.partition_stride * size, pattern.partitions});
  return set;
}

bool sum_in_interval(Step* steps, int count, int64_t low, int64_t high) {
  // Positive steps only, the largest first, equal ones joined.
  int n = 0;
  for (int i = 0; i < count; ++i) {
    Step step = steps[i];
    if (step.count <= 1 || step.bytes == 0) continue;
    if (step.bytes < 0) {
      const int64_t shift = step.bytes * (step.count - 1);
      low -= shift;
      high -= shift;
      step.bytes = -step.bytes;
    }
    int at = n;
    while (at > 0 && steps[at - 1].bytes < step.bytes) --at;
    if (at > 0 && steps[at - 1].bytes == step.bytes) {
      steps[at - 1].count += step.count - 1;
      continue;
    }
    for (int k = n++; k > at; --k) steps[k] = steps[k - 1];
    steps[at] = step;
  }
  int64_t reach[kMaxTerms + 1], divisor[kMaxTerms + 1];
  reach[n] = 0;
  divisor[n] = 0;
  for (int i = n; i-- > 0;) {
    reach[i] = reach[i + 1] + steps[i].bytes * (steps[i].count - 1);
    // Nested strides divide each other; the general case is rare.
    divisor[i] = divisor[i + 1] != 0 && steps[i].bytes % divisor[i + 1] == 0 ? divisor[i + 1]
                                                                             : std::gcd(divisor[i + 1], steps[i].bytes);
  }
  return Search{steps, n, reach, divisor}.find(0, low, high);
}

bool overlap(const ByteSet& a, const ByteSet& b) {
  if (a.base >= b.end() || b.base >= a.end()) return false;
  Step steps[kMaxTerms];
  int n = 0;
  for (const Step& step : a.steps) steps[n++] = {-step.bytes, step.count};
  for (const Step& step : b.steps) steps[n++] = step;
  // b.base + sum(b) - a.base - sum(a) must lie in (-b.run, a.run).
  const int64_t distance = b.base - a.base;
  return sum_in_interval(steps, n, -b.run + 1 - distance, a.run - 1 - distance);
}

namespace {

// Bits of the operands that a register program loads, by operand number.
uint32_t loaded_operands(const GpsimdKernel& kernel) {
  uint32_t loaded = 0;
  for (const auto* code : {&kernel.prologue, &kernel.body, &kernel.epilogue})
    for (const KernelInstruction& k : *code)
      if (k.op == KernelOp::load && k.a < 32) loaded |= 1u << k.a;
  return loaded;
}

}  // namespace

SmallVector<OperandUse, 8> operand_uses(const Instruction& i, const Program& program) {
  constexpr std::string_view kSource[] = {"src0", "src1", "src2"};
  SmallVector<OperandUse, 8> uses;
  bool keeps = i.accumulate || i.opcode == Opcode::tensor_copy_predicated ||
               (i.opcode == Opcode::dma_gather && i.skip_out_of_bounds);
  bool keeps1 = false;
  if (i.opcode == Opcode::gpsimd_kernel && i.kernel >= 0 && i.kernel < static_cast<int>(program.kernels.size())) {
    const uint32_t loaded = loaded_operands(program.kernels[i.kernel]);
    keeps = loaded >> i.src.size() & 1;
    keeps1 = loaded >> (i.src.size() + 1) & 1;
  }
  for (size_t k = 0; k < i.src.size(); ++k)
    if (i.src[k]) uses.push_back({&i.src[k], kSource[k], true, false, k == 0 && i.opcode == Opcode::dma_gather});
  if (i.s0.kind == Scalar::Kind::tile) uses.push_back({&i.s0.tile, scalar_name(i.opcode, 0), true, false});
  if (i.s1.kind == Scalar::Kind::tile) uses.push_back({&i.s1.tile, scalar_name(i.opcode, 1), true, false});
  if (i.dst) uses.push_back({&i.dst, "dst", keeps, true, i.opcode == Opcode::dma_scatter});
  if (i.dst1) uses.push_back({&i.dst1, "dst1", keeps1, true});
  return uses;
}

}  // namespace opentrn::isa
