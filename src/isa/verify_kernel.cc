#include "isa/verify_kernel.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "isa/names.h"

namespace opentrn::isa {
namespace {

bool real(KernelType type) { return type == KernelType::f32 || type == KernelType::f64; }
int bits(KernelType type) {
  return type == KernelType::i32 || type == KernelType::u32 || type == KernelType::f32 ? 32 : 64;
}

// Whether the operation exists for the type.
bool exists(KernelOp op, KernelType type) {
  switch (op) {
    case KernelOp::mul_hi: return type == KernelType::u32 || type == KernelType::i32 || type == KernelType::u64;
    case KernelOp::bit_and:
    case KernelOp::bit_or:
    case KernelOp::bit_xor:
    case KernelOp::bit_not:
    case KernelOp::shl:
    case KernelOp::shr:
    case KernelOp::sar: return !real(type);
    default:
      if ((op >= KernelOp::floor && op <= KernelOp::is_inf) || op == KernelOp::fma) return real(type);
      return true;
  }
}

class KernelChecker {
 public:
  KernelChecker(const GpsimdKernel& kernel, const Program& program, Findings& findings)
      : kernel_(kernel), program_(program), findings_(findings) {}

  void check() {
    section("prologue", kernel_.prologue);
    // The second time sees the registers as an element leaves them for the next one.
    if (section("body", kernel_.body)) section("body", kernel_.body);
    section("epilogue", kernel_.epilogue);
  }

 private:
  bool fail(std::string_view title, size_t index, const std::string& message) {
    findings_.add(0, -1, fmt::format("kernel '{}', {} {}: {}", kernel_.name, title, index, message));
    return false;
  }

  bool section(std::string_view title, const std::vector<KernelInstruction>& code) {
    for (size_t n = 0; n < code.size(); ++n)
      if (!instruction(title, n, code[n])) return false;
    return true;
  }

  bool reads(std::string_view title, size_t n, uint8_t reg, KernelType type) {
    if (reg >= kKernelRegisters) return fail(title, n, fmt::format("register r{} does not exist", reg));
    if (!types_[reg]) return fail(title, n, fmt::format("r{} is read before it is defined", reg));
    if (*types_[reg] != type)
      return fail(title, n,
                  fmt::format("r{} holds {}, the operation reads {}", reg, name_of(*types_[reg]), name_of(type)));
    return true;
  }

  bool instruction(std::string_view title, size_t n, const KernelInstruction& k) {
    if (!exists(k.op, k.type))
      return fail(title, n, fmt::format("{} does not exist for {}", name_of(k.op), name_of(k.type)));
    const bool converts = k.op == KernelOp::convert || k.op == KernelOp::bitcast;
    if (k.op == KernelOp::bitcast && bits(k.type) != bits(k.from))
      return fail(title, n, fmt::format("bitcast from {} to {} changes the size", name_of(k.from), name_of(k.type)));
    if (k.op == KernelOp::argument && (k.imm_int < 0 || k.imm_int >= static_cast<int64_t>(program_.scalars.size())))
      return fail(title, n, fmt::format("scalar %{} does not exist", k.imm_int));
    if (k.op == KernelOp::store) return reads(title, n, k.b, k.type);
    const uint8_t sources[] = {k.a, k.b, k.c};
    for (int s = 0; s < register_operands(k.op); ++s)
      if (!reads(title, n, sources[s], converts ? k.from : k.type)) return false;
    if (k.dst >= kKernelRegisters) return fail(title, n, fmt::format("register r{} does not exist", k.dst));
    types_[k.dst] = k.type;
    return true;
  }

  const GpsimdKernel& kernel_;
  const Program& program_;
  Findings& findings_;
  std::array<std::optional<KernelType>, kKernelRegisters> types_{};
};

}  // namespace

void check_kernel(const GpsimdKernel& kernel, const Program& program, Findings& findings) {
  KernelChecker(kernel, program, findings).check();
}

void check_kernel_use(const GpsimdKernel& kernel, const Instruction& i, int core, int index, Findings& findings) {
  auto fail = [&](std::string message) { findings.add(core, index, std::move(message)); };
  SmallVector<const AccessPattern*, 5> operands;
  for (const AccessPattern& src : i.src) operands.push_back(&src);
  operands.push_back(&i.dst);
  if (i.dst1) operands.push_back(&i.dst1);
  if (operands.size() > 4) return fail(fmt::format("a kernel has at most four operands, not {}", operands.size()));

  bool per_element[4] = {}, per_row[4] = {}, stored[4] = {};
  for (const auto* code : {&kernel.prologue, &kernel.body, &kernel.epilogue})
    for (const KernelInstruction& k : *code) {
      if (k.op != KernelOp::load && k.op != KernelOp::store) continue;
      if (k.a >= operands.size())
        return fail(
            fmt::format("kernel '{}' uses operand {}, the instruction has {}", kernel.name, k.a, operands.size()));
      if (k.op == KernelOp::store && k.a < i.src.size())
        return fail(fmt::format("kernel '{}' stores to operand {}, a source", kernel.name, k.a));
      (code == &kernel.body ? per_element : per_row)[k.a] = true;
      if (k.op == KernelOp::store) stored[k.a] = true;
    }
  for (size_t n = i.src.size(); n < operands.size(); ++n)
    if (!stored[n]) fail(fmt::format("kernel '{}' never stores to operand {}", kernel.name, n));

  // The row length is the innermost count of the operands used for each element.
  const AccessPattern* row = nullptr;
  for (size_t n = 0; n < operands.size(); ++n)
    if (per_element[n] && row == nullptr) row = operands[n];
  const AccessPattern& first = row ? *row : *operands[0];
  // An operand with a dimension less than others has one element per row.
  size_t most = 0;
  for (const AccessPattern* ap : operands) most = std::max(most, ap->dims.size());
  auto inner = [most](const AccessPattern& ap) { return most == 0 || ap.dims.size() < most ? 1 : ap.dims.back().count; };
  for (size_t n = 0; n < operands.size(); ++n) {
    const AccessPattern& ap = *operands[n];
    bool outer = ap.partitions == first.partitions;
    const int64_t rows = first.free_elements() / inner(first);
    outer &= ap.free_elements() / inner(ap) == rows;
    for (size_t d = 0; outer && ap.dims.size() == first.dims.size() && d + 1 < ap.dims.size(); ++d)
      outer &= ap.dims[d].count == first.dims[d].count;
    if (!outer)
      fail(fmt::format("operand {} of kernel '{}' has other outer dimensions than the row operand", n, kernel.name));
    if (per_element[n] && inner(ap) != inner(first))
      fail(fmt::format("operand {} has rows of {} elements, others of {}", n, inner(ap), inner(first)));
    if (per_row[n] && !per_element[n] && inner(ap) != 1)
      fail(fmt::format("operand {} is used once per row, its innermost count is {}, not 1", n, inner(ap)));
    if (per_row[n] && per_element[n] && inner(ap) != 1)
      fail(fmt::format("operand {} is used both per element and per row", n));
  }
}

}  // namespace opentrn::isa
