#include "isa/names.h"

#include <array>

namespace opentrn::isa {
namespace {

constexpr std::string_view kOpcodes[] = {"nc_matmul",
                                         "nc_transpose",
                                         "activation",
                                         "tensor_tensor",
                                         "tensor_scalar",
                                         "scalar_tensor_tensor",
                                         "tensor_copy",
                                         "tensor_copy_predicated",
                                         "select",
                                         "tensor_reduce",
                                         "tensor_tensor_scan",
                                         "reciprocal",
                                         "bn_stats",
                                         "bn_aggr",
                                         "max8",
                                         "nc_find_index8",
                                         "nc_match_replace8",
                                         "memset",
                                         "iota",
                                         "affine_select",
                                         "tensor_partition_reduce",
                                         "gpsimd_kernel",
                                         "dma_copy",
                                         "dma_transpose",
                                         "dma_gather",
                                         "dma_scatter",
                                         "event_semaphore",
                                         "rotate",
                                         "loop_begin",
                                         "loop_end",
                                         "barrier"};
static_assert(std::size(kOpcodes) == static_cast<size_t>(Opcode::barrier) + 1);

constexpr std::string_view kAluOps[] = {"none",       "add",         "subtract",   "mult",        "divide",
                                        "max",        "min",         "pow",        "mod",         "abs_max",
                                        "is_equal",   "not_equal",   "is_gt",      "is_ge",       "is_lt",
                                        "is_le",      "logical_and", "logical_or", "logical_xor", "bitwise_and",
                                        "bitwise_or", "bitwise_xor", "shift_left", "shift_right", "arith_shift_right",
                                        "average",    "bypass"};
static_assert(std::size(kAluOps) == static_cast<size_t>(AluOp::bypass) + 1);

constexpr std::string_view kActFns[] = {"copy",  "exp",  "log",      "sqrt", "rsqrt",  "square", "reciprocal",
                                        "abs",   "sign", "sigmoid",  "tanh", "relu",   "gelu",   "gelu_tanh",
                                        "silu",  "erf",  "softplus", "sin",  "arctan", "log1p",  "expm1",
                                        "floor", "ceil", "cos",      "erfc"};
static_assert(std::size(kActFns) == static_cast<size_t>(ActFn::erfc) + 1);

constexpr std::string_view kEngineNames[] = {"tensor", "vector", "scalar", "gpsimd", "sync"};

constexpr std::string_view kKernelOps[] = {
    "load",      "store",   "constant",  "argument", "index",  "column",  "move",  "add",   "sub",    "mul",
    "div",       "rem",     "floor_div", "mod",      "min",    "max",     "pow",   "fma",   "mul_hi", "bit_and",
    "bit_or",    "bit_xor", "bit_not",   "shl",      "shr",    "sar",     "eq",    "ne",    "lt",     "le",
    "gt",        "ge",      "select",    "neg",      "abs",    "sign",    "floor", "ceil",  "round",  "trunc",
    "sqrt",      "rsqrt",   "exp",       "log",      "log2",   "log10",   "log1p", "expm1", "exp2",   "sin",
    "cos",       "tan",     "asin",      "acos",     "atan",   "sinh",    "cosh",  "tanh",  "asinh",  "acosh",
    "atanh",     "erf",     "erfc",      "erfinv",   "lgamma", "digamma", "atan2", "fmod",  "hypot",  "copysign",
    "nextafter", "is_nan",  "is_inf",    "convert",  "bitcast"};
static_assert(std::size(kKernelOps) == static_cast<size_t>(KernelOp::bitcast) + 1);

constexpr std::string_view kKernelTypes[] = {"i32", "u32", "i64", "u64", "f32", "f64"};
constexpr std::string_view kMemories[] = {"none", "hbm", "sbuf", "psum"};
constexpr std::string_view kBufferKinds[] = {"input", "output", "scratch", "constant"};

template <typename E, size_t N>
std::optional<E> find(const std::string_view (&names)[N], std::string_view name) {
  for (size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<E>(i);
  return std::nullopt;
}

}  // namespace

std::optional<Opcode> opcode_named(std::string_view name) { return find<Opcode>(kOpcodes, name); }
std::optional<AluOp> alu_op_named(std::string_view name) { return find<AluOp>(kAluOps, name); }
std::optional<ActFn> act_fn_named(std::string_view name) { return find<ActFn>(kActFns, name); }
std::optional<Engine> engine_named(std::string_view name) { return find<Engine>(kEngineNames, name); }
std::optional<KernelOp> kernel_op_named(std::string_view name) { return find<KernelOp>(kKernelOps, name); }
std::optional<KernelType> kernel_type_named(std::string_view name) { return find<KernelType>(kKernelTypes, name); }

std::string_view name_of(KernelOp op) { return kKernelOps[static_cast<size_t>(op)]; }
std::string_view name_of(KernelType type) { return kKernelTypes[static_cast<size_t>(type)]; }
std::string_view name_of(Memory memory) { return kMemories[static_cast<size_t>(memory)]; }
std::string_view name_of(Buffer::Kind kind) { return kBufferKinds[static_cast<size_t>(kind)]; }

int register_operands(KernelOp op) {
  switch (op) {
    case KernelOp::load:
    case KernelOp::constant:
    case KernelOp::argument:
    case KernelOp::index:
    case KernelOp::column: return 0;
    case KernelOp::fma:
    case KernelOp::select: return 3;
    case KernelOp::add:
    case KernelOp::sub:
    case KernelOp::mul:
    case KernelOp::div:
    case KernelOp::rem:
    case KernelOp::floor_div:
    case KernelOp::mod:
    case KernelOp::min:
    case KernelOp::max:
    case KernelOp::pow:
    case KernelOp::mul_hi:
    case KernelOp::bit_and:
    case KernelOp::bit_or:
    case KernelOp::bit_xor:
    case KernelOp::shl:
    case KernelOp::shr:
    case KernelOp::sar:
    case KernelOp::eq:
    case KernelOp::ne:
    case KernelOp::lt:
    case KernelOp::le:
    case KernelOp::gt:
    case KernelOp::ge:
    case KernelOp::atan2:
    case KernelOp::fmod:
    case KernelOp::hypot:
    case KernelOp::copysign:
    case KernelOp::nextafter: return 2;
    default: return 1;
  }
}

std::string_view scalar_name(Opcode opcode, int index) {
  switch (opcode) {
    case Opcode::activation: return index == 0 ? "scale" : "bias";
    case Opcode::memset: return index == 0 ? "value" : "s1";
    case Opcode::tensor_tensor_scan: return index == 0 ? "initial" : "s1";
    case Opcode::iota: return index == 0 ? "base" : "s1";
    case Opcode::gpsimd_kernel: return index == 0 ? "base" : "s1";
    case Opcode::affine_select: return index == 0 ? "base" : "fill";
    case Opcode::nc_match_replace8: return index == 0 ? "value" : "s1";
    default: return index == 0 ? "s0" : "s1";
  }
}

bool is_sequencer(Opcode opcode) { return opcode >= Opcode::event_semaphore; }

std::string_view name_of(Opcode opcode) { return kOpcodes[static_cast<size_t>(opcode)]; }
std::string_view name_of(AluOp op) { return kAluOps[static_cast<size_t>(op)]; }
std::string_view name_of(ActFn act) { return kActFns[static_cast<size_t>(act)]; }
std::string_view name_of(Engine engine) { return kEngineNames[static_cast<size_t>(engine)]; }

bool is_dma(Opcode opcode) { return opcode >= Opcode::dma_copy && opcode <= Opcode::dma_scatter; }

int64_t Program::scratch_bytes() const {
  int64_t sum = 0;
  for (const Buffer& buffer : buffers)
    if (buffer.kind == Buffer::Kind::scratch) sum += (buffer.bytes + 511) / 512 * 512;
  return sum;
}

}  // namespace opentrn::isa
