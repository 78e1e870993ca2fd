#include "isa/program.h"

#include <array>

namespace opentrn::isa {
namespace {

constexpr std::string_view kOpcodes[] = {
    "nc_matmul", "nc_transpose", "activation", "tensor_tensor", "tensor_scalar", "scalar_tensor_tensor",
    "tensor_copy", "tensor_copy_predicated", "select", "tensor_reduce", "tensor_tensor_scan", "reciprocal",
    "bn_stats", "bn_aggr", "max8", "nc_find_index8", "nc_match_replace8", "memset", "iota", "affine_select",
    "tensor_partition_reduce", "gpsimd_kernel", "dma_copy", "dma_transpose", "dma_gather", "dma_scatter",
    "event_semaphore", "rotate", "loop_begin", "loop_end", "barrier"};
static_assert(std::size(kOpcodes) == static_cast<size_t>(Opcode::barrier) + 1);

constexpr std::string_view kAluOps[] = {
    "none", "add", "subtract", "mult", "divide", "max", "min", "pow", "mod", "abs_max",
    "is_equal", "not_equal", "is_gt", "is_ge", "is_lt", "is_le", "logical_and", "logical_or", "logical_xor",
    "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right", "arith_shift_right", "average", "bypass"};
static_assert(std::size(kAluOps) == static_cast<size_t>(AluOp::bypass) + 1);

constexpr std::string_view kActFns[] = {
    "copy", "exp", "log", "sqrt", "rsqrt", "square", "reciprocal", "abs", "sign", "sigmoid", "tanh", "relu", "gelu",
    "gelu_tanh", "silu", "erf", "softplus", "sin", "arctan", "log1p", "expm1", "floor", "ceil", "cos", "erfc"};
static_assert(std::size(kActFns) == static_cast<size_t>(ActFn::erfc) + 1);

constexpr std::string_view kEngineNames[] = {"tensor", "vector", "scalar", "gpsimd", "sync"};

}  // namespace

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
