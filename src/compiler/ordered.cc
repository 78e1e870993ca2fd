#include "compiler/ordered.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "base/error.h"
#include "compiler/fused_ops.h"

namespace opentrn::compiler {
namespace {

using graph::Op;
using isa::AccessPattern;
using isa::AluOp;
using isa::Dim;
using isa::Engine;
using isa::GpsimdKernel;
using isa::KernelInstruction;
using isa::KernelOp;
using isa::KernelType;
using isa::Memory;
using isa::Opcode;

constexpr int64_t kScanChunk = 4096;  // elements of a row in SBUF at a time

KernelInstruction op(KernelOp code, KernelType type, int dst, int a = 0, int b = 0, int c = 0,
                     KernelType from = KernelType::f32) {
  KernelInstruction i;
  i.op = code;
  i.type = type;
  i.from = from;
  i.dst = static_cast<uint8_t>(dst);
  i.a = static_cast<uint8_t>(a);
  i.b = static_cast<uint8_t>(b);
  i.c = static_cast<uint8_t>(c);
  return i;
}

// Rows of a view whose last dimension is the ordered one: body(start of each row dimension, partitions) with the
// largest row dimension on partitions and the others looped over; `strides` of each view follow the same dimensions.
void for_rows(KernelBuilder& b, const std::vector<int64_t>& shape, int cores,
              const std::function<void(const std::vector<Index>&, int, int64_t)>& body) {
  const int rank = static_cast<int>(shape.size()) - 1;
  int partition = -1;
  for (int d = 0; d < rank; ++d)
    if (partition < 0 || shape[d] > shape[partition]) partition = d;
  std::vector<Index> at(std::max(rank, 1), Index(0));
  int64_t begin = 0, end = partition < 0 ? 1 : shape[partition];
  if (cores > 1) {
    // Rows are independent, so the cores share them.
    const int64_t size = end;
    begin = size * b.core() / cores;
    end = size * (b.core() + 1) / cores;
    if (begin == end) return;
  }
  std::function<void(int)> nest = [&](int d) {
    if (d == rank || rank == 0) {
      b.blocks(end - begin, 128, [&](Index i, int64_t partitions) {
        if (partition >= 0) at[partition] = i + begin;
        body(at, partition, partitions);
      });
      return;
    }
    if (d == partition) return nest(d + 1);
    b.loop(shape[d], [&](Index i) {
      at[d] = i;
      nest(d + 1);
    });
  };
  nest(0);
}

AccessPattern row_pattern(KernelBuilder& b, const View& v, const std::vector<Index>& at, int partition,
                          int64_t partitions, Index column, int64_t count) {
  Index offset(v.offset);
  const size_t rank = v.shape.size() - 1;
  for (size_t d = 0; d < rank; ++d) offset = offset + at[d] * v.strides[d];
  offset = offset + column * v.strides[rank];
  return b.hbm(v.buffer, v.dtype, offset, partitions, partition >= 0 ? v.strides[partition] : 0,
               {Dim{v.strides[rank], static_cast<int32_t>(count)}});
}

double scan_identity(Op scan, DType dtype) {
  switch (scan) {
    case Op::cumulative_sum: return 0;
    case Op::cumulative_prod: return 1;
    case Op::cumulative_max: return reduction_identity(Op::reduce_max, dtype);
    default: return reduction_identity(Op::reduce_min, dtype);
  }
}

// Operands: 0 the row, 1 the carry, 2 the results, 3 the carry for the next chunk.
GpsimdKernel scan_kernel(Op scan, DType dtype) {
  const KernelType type = kernel_type(dtype);
  GpsimdKernel kernel;
  kernel.name = fmt::format("{}_{}", graph::name_of(scan), name_of(dtype));
  KernelOp combine = KernelOp::add;
  if (scan == Op::cumulative_prod) combine = KernelOp::mul;
  if (scan == Op::cumulative_max) combine = KernelOp::max;
  if (scan == Op::cumulative_min) combine = KernelOp::min;
  kernel.prologue = {op(KernelOp::load, type, 0, 1)};
  kernel.body = {op(KernelOp::load, type, 1, 0), op(combine, type, 0, 0, 1), op(KernelOp::store, type, 0, 2, 0)};
  kernel.epilogue = {op(KernelOp::store, type, 0, 3, 0)};
  return kernel;
}

}  // namespace

void emit_scan(KernelBuilder& b, const Scan& scan, int cores) {
  if (scan.in.elements() == 0) return;
  const int64_t n = scan.in.shape.back();
  const int64_t chunk = std::min(n, kScanChunk);
  const DType from = scan.in.dtype, to = scan.out.dtype;
  const bool engines = is_engine_type(from) && is_engine_type(to) && from != DType::boolean;
  const DType carry_dtype = engines ? DType::f32 : to;
  const int in_pool = b.pool("in", Memory::sbuf, chunk * size_of(from), 2);
  const int out_pool = b.pool("out", Memory::sbuf, chunk * size_of(to), 2);
  const int carry_pool = b.pool("carry", Memory::sbuf, 8, 2);
  const int exact_pool = engines ? b.pool("exact", Memory::sbuf, chunk * 4, 1) : -1;
  const int ones_pool = engines ? b.pool("ones", Memory::sbuf, 4, 1) : -1;
  Tile ones;
  if (engines) {
    ones = b.take(ones_pool);
    b.memset(Engine::vector, b.at(ones, DType::f32, 128, {}), 1);
  }
  for_rows(b, scan.in.shape, cores, [&](const std::vector<Index>& at, int partition, int64_t partitions) {
    const Tile carry = b.take(carry_pool);
    const AccessPattern carried = b.at(carry, carry_dtype, partitions, {Dim{1, 1}});
    b.fill(engines ? Engine::vector : Engine::gpsimd, carried, isa::Scalar::imm(scan_identity(scan.op, to)));
    b.blocks(n, chunk, [&](Index column, int64_t count) {
      const Dim run{1, static_cast<int32_t>(count)};
      const Tile in = b.take(in_pool);
      const AccessPattern x = b.at(in, from, partitions, {run});
      b.dma(x, row_pattern(b, scan.in, at, partition, partitions, column, count), kLoad);
      const Tile out = b.take(out_pool);
      const AccessPattern y = b.at(out, to, partitions, {run});
      if (engines) {
        // dst[i] = (src0[i] op0 dst[i-1]) op1 src1[i], in f32; then rounded to the result's dtype.
        const Tile exact = b.take(exact_pool);
        const AccessPattern z = b.at(exact, DType::f32, partitions, {run});
        auto& i = b.emit(Opcode::tensor_tensor_scan, Engine::vector);
        i.dst = z;
        const bool sum = scan.op == Op::cumulative_sum, product = scan.op == Op::cumulative_prod;
        const AluOp extreme = scan.op == Op::cumulative_max ? AluOp::max : AluOp::min;
        i.src.push_back(sum ? b.at(ones, DType::f32, partitions, {Dim{0, static_cast<int32_t>(count)}}) : x);
        i.src.push_back(product ? b.at(ones, DType::f32, partitions, {Dim{0, static_cast<int32_t>(count)}}) : x);
        i.op0 = sum || product ? AluOp::mult : extreme;
        i.op1 = sum ? AluOp::add : product ? AluOp::mult : extreme;
        i.s0 = isa::Scalar::of(b.at(carry, DType::f32, partitions, {}));
        b.copy(Engine::vector, carried, b.at(exact, DType::f32, partitions, {Dim{1, 1}}, count - 1));
        b.copy(Engine::vector, y, z);
      } else {
        auto& i = b.gpsimd(b.kernel(scan_kernel(scan.op, to)), y, {x, carried});
        i.dst1 = carried;
      }
      b.dma(row_pattern(b, scan.out, at, partition, partitions, column, count), y, kStoreScalar);
    });
  });
}

namespace {

// One step of a selection: the best element that was not taken yet. Operands: 0 the row, 1 the taken flags,
// 2 its value, 3 its position (-1 at first). NaN counts as the greatest value; the first of equal values wins.
GpsimdKernel select_kernel(DType dtype, bool descending) {
  const KernelType type = kernel_type(dtype), i32 = KernelType::i32;
  GpsimdKernel kernel;
  kernel.name = fmt::format("select_{}_{}", descending ? "largest" : "smallest", name_of(dtype));
  auto constant = [](KernelType t, int dst, int64_t v) {
    KernelInstruction i = op(KernelOp::constant, t, dst);
    i.imm_int = v;
    i.imm = static_cast<double>(v);
    return i;
  };
  kernel.prologue = {constant(type, 0, 0), constant(i32, 1, -1), constant(i32, 2, 0)};
  auto& body = kernel.body;
  body = {op(KernelOp::load, type, 3, 0), op(KernelOp::load, i32, 4, 1), op(KernelOp::column, i32, 5),
          op(descending ? KernelOp::gt : KernelOp::lt, type, 6, 3, 0)};
  if (is_float(dtype)) {
    body.push_back(op(KernelOp::is_nan, type, 7, 3));
    body.push_back(op(KernelOp::is_nan, type, 8, 0));
    // A NaN beats a number when the largest is wanted; a number beats a NaN when the smallest is.
    body.push_back(descending ? op(KernelOp::gt, type, 9, 7, 8) : op(KernelOp::lt, type, 9, 7, 8));
    body.push_back(op(KernelOp::max, type, 6, 6, 9));
  }
  if (type != i32)
    body.push_back(op(KernelOp::convert, i32, 10, 6, 0, 0, type));
  else
    body.push_back(op(KernelOp::move, i32, 10, 6));
  body.push_back(op(KernelOp::lt, i32, 11, 1, 2));  // nothing chosen yet
  body.push_back(op(KernelOp::max, i32, 10, 10, 11));
  body.push_back(op(KernelOp::eq, i32, 12, 4, 2));  // not taken
  body.push_back(op(KernelOp::min, i32, 10, 10, 12));
  if (type != i32)
    body.push_back(op(KernelOp::convert, type, 13, 10, 0, 0, i32));
  else
    body.push_back(op(KernelOp::move, i32, 13, 10));
  body.push_back(op(KernelOp::select, type, 0, 13, 3, 0));
  body.push_back(op(KernelOp::select, i32, 1, 10, 5, 1));
  kernel.epilogue = {op(KernelOp::store, type, 0, 2, 0), op(KernelOp::store, i32, 0, 3, 1)};
  return kernel;
}

// Operands: 0 the position just chosen, 1 the taken flags (read), 2 the taken flags (written).
GpsimdKernel mark_kernel() {
  const KernelType i32 = KernelType::i32;
  GpsimdKernel kernel;
  kernel.name = "mark_taken";
  kernel.prologue = {op(KernelOp::load, i32, 0, 0)};
  kernel.body = {op(KernelOp::load, i32, 1, 1), op(KernelOp::column, i32, 2), op(KernelOp::eq, i32, 3, 2, 0),
                 op(KernelOp::max, i32, 1, 1, 3), op(KernelOp::store, i32, 0, 2, 1)};
  return kernel;
}

}  // namespace

void emit_top_k(KernelBuilder& b, const TopK& t, int cores) {
  if (t.values.elements() == 0) return;
  const int64_t n = t.in.shape.back();
  const DType dtype = t.in.dtype;
  const int in_pool = b.pool("in", Memory::sbuf, n * size_of(dtype), 1);
  const int taken_pool = b.pool("taken", Memory::sbuf, n, 1);
  const int values_pool = b.pool("values", Memory::sbuf, t.k * size_of(dtype), 1);
  const int position_pool = b.pool("position", Memory::sbuf, t.k * 4, 1);
  const int wide_pool = b.pool("positions", Memory::sbuf, t.k * 8, 1);
  const int select = b.kernel(select_kernel(dtype, t.descending)), mark = b.kernel(mark_kernel());
  KernelOperand source;
  source.dtype = DType::i32;
  const int widen = b.kernel(elementwise_kernel(Op::convert, DType::i64, {source}, 1));
  for_rows(b, t.in.shape, cores, [&](const std::vector<Index>& at, int partition, int64_t partitions) {
    const Dim run{1, static_cast<int32_t>(n)}, chosen{1, static_cast<int32_t>(t.k)};
    const Tile in = b.take(in_pool), taken = b.take(taken_pool);
    const AccessPattern x = b.at(in, dtype, partitions, {run}), flags = b.at(taken, DType::u8, partitions, {run});
    b.dma(x, row_pattern(b, t.in, at, partition, partitions, 0, n), kLoad);
    b.memset(Engine::gpsimd, flags, 0);
    const Tile values = b.take(values_pool), positions = b.take(position_pool), wide = b.take(wide_pool);
    b.loop(t.k, [&](Index i) {
      auto& s = b.gpsimd(select, b.at(values, dtype, partitions, {Dim{1, 1}}, i), {x, flags});
      const AccessPattern position = b.at(positions, DType::i32, partitions, {Dim{1, 1}}, i);
      s.dst1 = position;
      b.gpsimd(mark, flags, {position, flags});
    });
    b.gpsimd(widen, b.at(wide, DType::i64, partitions, {chosen}), {b.at(positions, DType::i32, partitions, {chosen})});
    b.dma(row_pattern(b, t.values, at, partition, partitions, 0, t.k), b.at(values, dtype, partitions, {chosen}),
          kStoreScalar);
    b.dma(row_pattern(b, t.positions, at, partition, partitions, 0, t.k), b.at(wide, DType::i64, partitions, {chosen}),
          kStoreScalar);
  });
}

}  // namespace opentrn::compiler
