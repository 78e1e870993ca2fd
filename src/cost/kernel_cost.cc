#include "cost/kernel_cost.h"

#include <algorithm>
#include <vector>

#include "cost/laws.h"

namespace opentrn::cost {

using isa::KernelInstruction;
using isa::KernelOp;
using isa::KernelType;

namespace {

bool is_64(KernelType type) { return type == KernelType::i64 || type == KernelType::u64 || type == KernelType::f64; }

double weight(const KernelInstruction& in, const LawTable& laws, const spec::Chip& chip) {
  auto law = [&](LawKey key) { return laws[static_cast<size_t>(key)].cycles_per_element; };
  bool wide = is_64(in.type), f64 = in.type == KernelType::f64;
  double simple = law(wide ? LawKey::kernel_simple_64 : LawKey::kernel_simple);
  double arithmetic = f64 ? law(LawKey::kernel_f64) : simple;
  double division = law(f64 ? LawKey::kernel_div_f64 : wide ? LawKey::kernel_div_64 : LawKey::kernel_div);
  double product = wide && !f64 ? law(LawKey::kernel_mul_64) : arithmetic;
  double special = chip.gpsimd_special_op_factor * law(LawKey::kernel_simple) * (f64 ? law(LawKey::kernel_special_64) : 1);
  switch (in.op) {
    case KernelOp::constant:
    case KernelOp::argument:
      return 0;  // set once, before the loop over elements
    case KernelOp::load:
    case KernelOp::store:
    case KernelOp::index:
    case KernelOp::column:
    case KernelOp::move:
    case KernelOp::min:
    case KernelOp::max:
    case KernelOp::bit_and:
    case KernelOp::bit_or:
    case KernelOp::bit_xor:
    case KernelOp::bit_not:
    case KernelOp::shl:
    case KernelOp::shr:
    case KernelOp::sar:
    case KernelOp::eq:
    case KernelOp::ne:
    case KernelOp::lt:
    case KernelOp::le:
    case KernelOp::gt:
    case KernelOp::ge:
    case KernelOp::select:
    case KernelOp::neg:
    case KernelOp::abs:
    case KernelOp::sign:
    case KernelOp::copysign:
    case KernelOp::nextafter:
    case KernelOp::is_nan:
    case KernelOp::is_inf:
    case KernelOp::bitcast:
      return simple;
    case KernelOp::convert:
      if (f64 || in.from == KernelType::f64) return law(LawKey::kernel_f64);
      return wide || is_64(in.from) ? law(LawKey::kernel_simple_64) : simple;
    case KernelOp::add:
    case KernelOp::sub:
    case KernelOp::floor:
    case KernelOp::ceil:
    case KernelOp::round:
    case KernelOp::trunc:
      return arithmetic;
    case KernelOp::mul:
      return product;
    case KernelOp::fma:
      return product + (f64 || wide ? arithmetic : 0);
    case KernelOp::mul_hi:
      return wide ? 2 * law(LawKey::kernel_mul_64) : law(LawKey::kernel_simple_64);
    case KernelOp::div:
    case KernelOp::rem:
    case KernelOp::floor_div:
    case KernelOp::mod:
    case KernelOp::fmod:
      return division;
    case KernelOp::sqrt:
    case KernelOp::rsqrt:
    case KernelOp::hypot:
      return f64 ? division : law(LawKey::kernel_sqrt) + (in.op == KernelOp::hypot ? 2 * simple : 0);
    case KernelOp::pow:
      return 2 * special;  // a logarithm and an exponential
    default:
      return special;
  }
}

double weight(const std::vector<KernelInstruction>& text, const LawTable& laws, const spec::Chip& chip) {
  double sum = 0;
  for (const KernelInstruction& in : text) sum += weight(in, laws, chip);
  return sum;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

double kernel_cycles(const isa::Instruction& in, const isa::Program& program, const spec::Chip& chip) {
  const isa::GpsimdKernel& kernel = program.kernels[static_cast<size_t>(in.kernel)];
  int64_t rows = 0, elements = 0, partitions = 0, first = 0;  // rows, elements: per partition
  auto see = [&](const isa::AccessPattern& ap) {
    if (!ap) return;
    int64_t inner = ap.dims.empty() ? 1 : ap.dims.back().count;
    int64_t all = ap.free_elements();
    elements = std::max(elements, all);
    rows = std::max(rows, inner ? all / inner : 0);
    if (ap.partitions > partitions) partitions = ap.partitions, first = ap.partition;
  };
  for (const isa::AccessPattern& ap : in.src) see(ap);
  see(in.dst);
  see(in.dst1);
  if (elements == 0 || partitions == 0) return 0;

  // The core with the most of the partitions [first, first + partitions).
  int64_t per_core = std::max<int64_t>(1, chip.partitions / chip.gpsimd_cores);
  int64_t busiest = 0;
  for (int64_t core = first / per_core; core * per_core < first + partitions; ++core) {
    int64_t low = std::max(first, core * per_core), high = std::min(first + partitions, (core + 1) * per_core);
    busiest = std::max(busiest, high - low);
  }
  int64_t lanes = std::max(1, chip.gpsimd_lanes_32 / chip.gpsimd_cores);
  const LawTable& laws = laws_of(chip);
  double per_row = weight(kernel.prologue, laws, chip) + weight(kernel.epilogue, laws, chip);
  double per_element = weight(kernel.body, laws, chip);
  return chip.gpsimd_cycles_per_vector_op * (per_row * static_cast<double>(ceil_div(busiest * rows, lanes)) +
                                             per_element * static_cast<double>(ceil_div(busiest * elements, lanes)));
}

}  // namespace opentrn::cost
