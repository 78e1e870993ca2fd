#include "compiler/kernel_builder.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "compiler/synchronize.h"

namespace opentrn::compiler {

using isa::AccessPattern;
using isa::Dim;
using isa::Engine;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;

Index operator+(const Index& a, const Index& b) {
  Index sum = a;
  sum.constant_ += b.constant_;
  for (const isa::Term& term : b.terms_) {
    auto same = std::find_if(sum.terms_.begin(), sum.terms_.end(), [&](auto& t) { return t.reg == term.reg; });
    if (same != sum.terms_.end())
      same->bytes += term.bytes;
    else
      sum.terms_.push_back(term);
  }
  return sum;
}

Index operator*(const Index& a, int64_t factor) {
  Index product(a.constant_ * factor);
  if (factor != 0)
    for (const isa::Term& term : a.terms_) product.terms_.push_back({term.reg, term.bytes * factor});
  return product;
}

namespace {

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

void set_address(AccessPattern& ap, const Index& offset, int64_t element_bytes) {
  ap.offset = offset.constant() * element_bytes;
  for (const isa::Term& term : offset.terms()) ap.terms.push_back({term.reg, term.bytes * element_bytes});
}

// Drops dimensions of one element and merges neighbours that are one run in every operand, so that the engines see
// few and long dimensions. All operands have the same counts, or are left alone.
void collapse(Instruction& instruction) {
  SmallVector<AccessPattern*, 4> operands{&instruction.dst};
  for (AccessPattern& src : instruction.src) operands.push_back(&src);
  const auto& dims = instruction.dst.dims;
  for (AccessPattern* operand : operands) {
    if (operand->dims.size() != dims.size()) return;
    for (size_t d = 0; d < dims.size(); ++d)
      if (operand->dims[d].count != dims[d].count) return;
  }
  for (size_t d = dims.size(); d-- > 0;) {
    if (instruction.dst.dims[d].count == 1) {
      for (AccessPattern* operand : operands) operand->dims.erase(d);
      continue;
    }
    if (d + 1 >= instruction.dst.dims.size()) continue;
    const bool run = std::all_of(operands.begin(), operands.end(), [&](AccessPattern* operand) {
      return operand->dims[d].stride == operand->dims[d + 1].stride * operand->dims[d + 1].count;
    });
    if (!run) continue;
    for (AccessPattern* operand : operands) {
      operand->dims[d + 1].count *= operand->dims[d].count;
      operand->dims.erase(d);
    }
  }
}

}  // namespace

KernelBuilder::KernelBuilder(isa::Program& program, int core, const spec::Chip& chip)
    : program_(program), core_(core), chip_(chip) {}

void KernelBuilder::loop(int64_t count, const std::function<void(Index)>& body) {
  if (count <= 0) return;
  if (count == 1) return body(Index(0));
  const int16_t reg = loop_depth_++;
  code_.loop_registers = std::max(code_.loop_registers, loop_depth_);
  Instruction& begin = emit(Opcode::loop_begin, Engine::sync);
  begin.reg = reg;
  begin.count = count;
  body(Index::of(reg));
  emit(Opcode::loop_end, Engine::sync).reg = reg;
  --loop_depth_;
}

void KernelBuilder::blocks(int64_t extent, int64_t size, const std::function<void(Index, int64_t)>& body) {
  const int64_t full = extent / size, rest = extent % size;
  loop(full, [&](Index i) { body(i * size, size); });
  if (rest) body(Index(full * size), rest);
}

int KernelBuilder::pool(const std::string& name, Memory memory, int64_t bytes, int depth) {
  const bool sbuf = memory == Memory::sbuf;
  isa::Pool pool;
  pool.name = name;
  pool.memory = memory;
  pool.bytes = round_up(std::max<int64_t>(bytes, 1), sbuf ? 64 : chip_.psum_bank_bytes);
  pool.depth = depth;
  int64_t& used = sbuf ? sbuf_used_ : psum_used_;
  pool.offset = used;
  const int64_t capacity = sbuf ? chip_.sbuf_bytes_per_partition : chip_.psum_bytes_per_partition;
  if (used + pool.bytes * depth > capacity)
    throw Unsupported(fmt::format("kernel of '{}': pool {} of {} x {} bytes per partition does not fit ({} of {} used)",
                                  program_.name, name, depth, pool.bytes, used, capacity));
  used += pool.bytes * depth;
  code_.pools.push_back(pool);
  return static_cast<int>(code_.pools.size()) - 1;
}

int64_t KernelBuilder::free_bytes(Memory memory) const {
  return memory == Memory::sbuf ? chip_.sbuf_bytes_per_partition - sbuf_used_
                                : chip_.psum_bytes_per_partition - psum_used_;
}

Tile KernelBuilder::take(int pool) {
  Instruction& rotate = emit(Opcode::rotate, Engine::sync);
  rotate.pool = static_cast<int16_t>(pool);
  rotate.reg = code_.slot_registers++;
  return {code_.pools[pool].memory, rotate.pool, rotate.reg, code_.pools[pool].bytes};
}

AccessPattern KernelBuilder::at(const Tile& tile, DType dtype, int64_t partitions, std::initializer_list<Dim> dims,
                                const Index& offset, int64_t first_partition) const {
  return at(tile, dtype, partitions, SmallVector<Dim, 4>(dims), offset, first_partition);
}

AccessPattern KernelBuilder::at(const Tile& tile, DType dtype, int64_t partitions, const SmallVector<Dim, 4>& dims,
                                const Index& offset, int64_t first_partition) const {
  AccessPattern ap;
  ap.memory = tile.memory;
  ap.dtype = dtype;
  ap.buffer = tile.pool;
  ap.slot = tile.slot;
  ap.partition = static_cast<int16_t>(first_partition);
  ap.partitions = static_cast<int16_t>(partitions);
  ap.dims = dims;
  set_address(ap, offset, size_of(dtype));
  return ap;
}

AccessPattern KernelBuilder::hbm(int buffer, DType dtype, const Index& offset, int64_t partitions,
                                 int64_t partition_stride, const SmallVector<Dim, 4>& dims) const {
  AccessPattern ap;
  ap.memory = Memory::hbm;
  ap.dtype = dtype;
  ap.buffer = static_cast<int16_t>(buffer);
  ap.partitions = static_cast<int16_t>(partitions);
  ap.partition_stride = partition_stride;
  ap.dims = dims;
  set_address(ap, offset, size_of(dtype));
  return ap;
}

Instruction& KernelBuilder::emit(Opcode opcode, Engine engine) {
  Instruction instruction;
  instruction.opcode = opcode;
  instruction.engine = engine;
  instruction.origin = origin_;
  code_.code.push_back(instruction);
  return code_.code.back();
}

Instruction& KernelBuilder::dma(const AccessPattern& dst, const AccessPattern& src, Queue queue) {
  Instruction& i = emit(Opcode::dma_copy, queue.engine);
  i.queue = queue.number;
  i.dst = dst;
  i.src.push_back(src);
  return i;
}

Instruction& KernelBuilder::dma_transpose(const AccessPattern& dst, const AccessPattern& src, Queue queue) {
  Instruction& i = dma(dst, src, queue);
  i.opcode = Opcode::dma_transpose;
  return i;
}

Instruction& KernelBuilder::copy(Engine engine, const AccessPattern& dst, const AccessPattern& src) {
  Instruction& i = emit(Opcode::tensor_copy, engine);
  i.dst = dst;
  i.src.push_back(src);
  return i;
}

Instruction& KernelBuilder::memset(Engine engine, const AccessPattern& dst, double value) {
  Instruction& i = emit(Opcode::memset, engine);
  i.dst = dst;
  i.s0 = isa::Scalar::imm(value);
  return i;
}

void KernelBuilder::fill(Engine engine, const AccessPattern& dst, const isa::Scalar& value) {
  if (size_of(dst.dtype) <= 4) {
    memset(engine, dst, 0).s0 = value;
    return;
  }
  isa::GpsimdKernel fill;
  fill.name = fmt::format("fill_{}", name_of(dst.dtype));
  isa::KernelInstruction set;
  set.type = is_float(dst.dtype) ? isa::KernelType::f64 : isa::KernelType::i64;
  set.op = value.kind == isa::Scalar::Kind::argument ? isa::KernelOp::argument : isa::KernelOp::constant;
  set.imm = value.value;
  // 2^63 itself has no i64: the greatest value stands for it.
  set.imm_int = value.kind == isa::Scalar::Kind::argument ? value.argument
                : value.value >= 0x1p63                   ? INT64_MAX
                                                          : static_cast<int64_t>(value.value);
  isa::KernelInstruction store;
  store.op = isa::KernelOp::store;
  store.type = set.type;
  fill.body = {set, store};
  AccessPattern target = dst;
  if (target.dims.empty()) target.dims.push_back({1, 1});
  gpsimd(kernel(std::move(fill)), target, {});
}

Instruction& KernelBuilder::tensor_tensor(Engine engine, const AccessPattern& dst, const AccessPattern& a,
                                          isa::AluOp op, const AccessPattern& b) {
  Instruction& i = emit(Opcode::tensor_tensor, engine);
  i.dst = dst;
  i.src.push_back(a);
  i.src.push_back(b);
  i.op0 = op;
  return i;
}

Instruction& KernelBuilder::tensor_scalar(Engine engine, const AccessPattern& dst, const AccessPattern& a,
                                          isa::AluOp op0, const isa::Scalar& s0, isa::AluOp op1,
                                          const isa::Scalar& s1) {
  Instruction& i = emit(Opcode::tensor_scalar, engine);
  i.dst = dst;
  i.src.push_back(a);
  i.op0 = op0;
  i.s0 = s0;
  i.op1 = op1;
  i.s1 = s1;
  return i;
}

Instruction& KernelBuilder::activation(const AccessPattern& dst, isa::ActFn act, const AccessPattern& src,
                                       const isa::Scalar& scale, const isa::Scalar& bias) {
  Instruction& i = emit(Opcode::activation, Engine::scalar);
  i.dst = dst;
  i.act = act;
  i.src.push_back(src);
  i.s0 = scale;
  i.s1 = bias;
  return i;
}

Instruction& KernelBuilder::reduce(const AccessPattern& dst, isa::AluOp op, const AccessPattern& src, int axes) {
  Instruction& i = emit(Opcode::tensor_reduce, Engine::vector);
  i.dst = dst;
  i.op0 = op;
  i.src.push_back(src);
  i.axes = static_cast<int8_t>(axes);
  return i;
}

Instruction& KernelBuilder::matmul(const AccessPattern& dst, const AccessPattern& stationary,
                                   const AccessPattern& moving, bool accumulate) {
  Instruction& i = emit(Opcode::nc_matmul, Engine::tensor);
  i.dst = dst;
  i.src.push_back(stationary);
  i.src.push_back(moving);
  i.accumulate = accumulate;
  return i;
}

Instruction& KernelBuilder::gpsimd(int kernel, const AccessPattern& dst, std::initializer_list<AccessPattern> src) {
  Instruction& i = emit(Opcode::gpsimd_kernel, Engine::gpsimd);
  i.kernel = static_cast<int16_t>(kernel);
  i.dst = dst;
  for (const AccessPattern& s : src) i.src.push_back(s);
  return i;
}

int KernelBuilder::kernel(isa::GpsimdKernel kernel) {
  auto& kernels = program_.kernels;
  auto found = std::find(kernels.begin(), kernels.end(), kernel);
  if (found != kernels.end()) return static_cast<int>(found - kernels.begin());
  kernels.push_back(std::move(kernel));
  return static_cast<int>(kernels.size()) - 1;
}

void KernelBuilder::end_kernel() {
  std::vector<Instruction> body(code_.code.begin() + static_cast<int64_t>(kernel_start_), code_.code.end());
  for (Instruction& i : body) {
    // Transposes, reductions, scans and row programs give their dimensions a meaning; leave theirs alone.
    const bool plain = i.opcode == Opcode::dma_copy || i.opcode == Opcode::tensor_copy ||
                       i.opcode == Opcode::tensor_tensor || i.opcode == Opcode::tensor_scalar ||
                       i.opcode == Opcode::scalar_tensor_tensor || i.opcode == Opcode::activation ||
                       i.opcode == Opcode::select || i.opcode == Opcode::memset;
    if (plain) collapse(i);
  }
  code_.code.resize(kernel_start_);
  for (Instruction& i : synchronize(std::move(body), code_.pools, code_.semaphores)) code_.code.push_back(i);
  Instruction barrier;
  barrier.opcode = Opcode::barrier;
  code_.code.push_back(barrier);
  kernel_start_ = code_.code.size();
  sbuf_used_ = psum_used_ = 0;
}

void KernelBuilder::finish() {
  if (kernel_start_ != code_.code.size()) end_kernel();
  if (!code_.code.empty()) code_.code.pop_back();
  program_.cores.push_back(std::move(code_));
}

}  // namespace opentrn::compiler
