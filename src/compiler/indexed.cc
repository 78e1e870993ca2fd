#include "compiler/indexed.h"

#include <algorithm>

#include "base/error.h"

namespace opentrn::compiler {
namespace {

using isa::AccessPattern;
using isa::Dim;
using isa::Instruction;
using isa::KernelOp;
using isa::KernelType;
using isa::Memory;
using isa::Opcode;

// Bytes per partition that the rows of one transfer take.
constexpr int64_t kRowsBytes = 8192;

// i64 positions as i32, those outside of i32 as -1 (the transfer reports them).
isa::GpsimdKernel narrow_positions() {
  isa::GpsimdKernel kernel;
  kernel.name = "narrow_positions";
  auto op = [&](KernelOp op, KernelType type, int dst, int a, int b, int64_t imm, KernelType from = KernelType::f32) {
    isa::KernelInstruction i;
    i.op = op;
    i.type = type;
    i.from = from;
    i.dst = static_cast<uint8_t>(dst);
    i.a = static_cast<uint8_t>(a);
    i.b = static_cast<uint8_t>(b);
    i.imm_int = imm;
    i.imm = static_cast<double>(imm);
    kernel.body.push_back(i);
  };
  op(KernelOp::load, KernelType::i64, 0, 0, 0, 0);
  op(KernelOp::constant, KernelType::i64, 1, 0, 0, -1);
  op(KernelOp::constant, KernelType::i64, 2, 0, 0, INT32_MAX);
  op(KernelOp::max, KernelType::i64, 0, 0, 1, 0);
  op(KernelOp::min, KernelType::i64, 0, 0, 2, 0);
  op(KernelOp::convert, KernelType::i32, 3, 0, 0, 0, KernelType::i64);
  op(KernelOp::store, KernelType::i32, 0, 1, 3, 0);
  return kernel;
}

// The part of a dimension that one core works on.
struct Share {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
Share share(int64_t size, int core, int cores) { return {size * core / cores, size * (core + 1) / cores}; }

class IndexedEmitter {
 public:
  IndexedEmitter(KernelBuilder& builder, const View& rows, const View& indices, const View& values, int cores)
      : b_(builder), rows_(rows), indices_(indices), values_(values), cores_(cores) {
    outer_ = {0, rows.shape[0]};
    count_ = {0, indices.shape[0]};
    columns_ = {0, rows.shape[2]};
  }

  // `by_index`: the cores may share the indices (a gather); else they share outer or columns only.
  bool split(bool by_index) {
    if (cores_ == 1) return true;
    const int core = b_.core();
    if (outer_.size() >= 2)
      outer_ = share(outer_.size(), core, cores_);
    else if (by_index && count_.size() >= 256)
      count_ = share(count_.size(), core, cores_);
    else if (columns_.size() >= 256)
      columns_ = share(columns_.size(), core, cores_);
    else
      return core == 0;
    return outer_.size() > 0 && count_.size() > 0 && columns_.size() > 0;
  }

  template <typename Body>  // body(index tile pattern, values pattern in HBM, row pattern in HBM, tile)
  void run(Body body) {
    const int64_t element = size_of(rows_.dtype);
    const int64_t column_block = std::min(columns_.size(), std::max<int64_t>(1, kRowsBytes / element));
    const int64_t per_partition = std::clamp<int64_t>(kRowsBytes / (column_block * element), 1,
                                                      std::min<int64_t>(64, (count_.size() + 127) / 128));
    const bool wide = indices_.dtype != DType::i32;
    const int raw_pool = b_.pool("index", Memory::sbuf, per_partition * size_of(indices_.dtype), 2);
    const int index_pool = wide ? b_.pool("index32", Memory::sbuf, per_partition * 4, 2) : -1;
    const int rows_pool = b_.pool("rows", Memory::sbuf, per_partition * column_block * element, 2);
    const int narrow = wide ? b_.kernel(narrow_positions()) : -1;

    auto block = [&](Index outer, Index first, int64_t partitions, int64_t per) {
      const Tile raw = b_.take(raw_pool);
      const Dim run{1, static_cast<int32_t>(per)};
      b_.dma(b_.at(raw, indices_.dtype, partitions, {run}),
             b_.hbm(indices_.buffer, indices_.dtype, first * indices_.strides[0] + indices_.offset, partitions,
                    per * indices_.strides[0], {Dim{indices_.strides[0], static_cast<int32_t>(per)}}),
             kLoad);
      AccessPattern positions = b_.at(raw, DType::i32, partitions, {run});
      if (wide) {
        const Tile index = b_.take(index_pool);
        positions = b_.at(index, DType::i32, partitions, {run});
        b_.gpsimd(narrow, positions, {b_.at(raw, indices_.dtype, partitions, {run})});
      }
      b_.blocks(columns_.size(), column_block, [&](Index c, int64_t columns) {
        const Index column = c + columns_.begin;
        const Tile tile = b_.take(rows_pool);
        const SmallVector<Dim, 4> inner{Dim{columns, static_cast<int32_t>(per)}, Dim{1, static_cast<int32_t>(columns)}};
        const AccessPattern on_chip = b_.at(tile, rows_.dtype, partitions, inner);
        const AccessPattern values = b_.hbm(
            values_.buffer, values_.dtype,
            outer * values_.strides[0] + first * values_.strides[1] + column * values_.strides[2] + values_.offset,
            partitions, per * values_.strides[1],
            {Dim{values_.strides[1], static_cast<int32_t>(per)},
             Dim{values_.strides[2], static_cast<int32_t>(columns)}});
        const AccessPattern row =
            b_.hbm(rows_.buffer, rows_.dtype, outer * rows_.strides[0] + column * rows_.strides[2] + rows_.offset, 1, 0,
                   {Dim{rows_.strides[2], static_cast<int32_t>(columns)}});
        body(positions, values, row, on_chip);
      });
    };

    b_.loop(outer_.size(), [&](Index o) {
      const Index outer = o + outer_.begin;
      b_.blocks(count_.size(), 128 * per_partition, [&](Index i, int64_t n) {
        const Index first = i + count_.begin;
        const int64_t whole = n / per_partition, left = n % per_partition;
        if (whole) block(outer, first, whole, per_partition);
        if (left) block(outer, first + whole * per_partition, 1, left);
      });
    });
  }

  Instruction& indirect(Opcode opcode, const AccessPattern& dst, const AccessPattern& src,
                        const AccessPattern& positions) {
    Instruction& i = b_.emit(opcode, kIndirect.engine);
    i.queue = kIndirect.number;
    i.dst = dst;
    i.src.push_back(src);
    i.src.push_back(positions);
    i.rows = rows_.shape[1];
    i.row_bytes = rows_.strides[1] * size_of(rows_.dtype);
    return i;
  }

 private:
  KernelBuilder& b_;
  const View &rows_, &indices_, &values_;
  const int cores_;
  Share outer_, count_, columns_;
};

}  // namespace

void emit_gather(KernelBuilder& builder, const Gather& gather, int cores) {
  if (gather.out.elements() == 0) return;
  IndexedEmitter emitter(builder, gather.source, gather.indices, gather.out, cores);
  if (!emitter.split(true)) return;
  emitter.run([&](const AccessPattern& positions, const AccessPattern& out, const AccessPattern& row,
                  const AccessPattern& tile) {
    emitter.indirect(Opcode::dma_gather, tile, row, positions);
    builder.dma(out, tile, kStoreScalar);
  });
}

void emit_scatter(KernelBuilder& builder, const Scatter& scatter, int cores) {
  if (scatter.updates.elements() == 0) return;
  IndexedEmitter emitter(builder, scatter.target, scatter.indices, scatter.updates, cores);
  if (!emitter.split(false)) return;
  emitter.run([&](const AccessPattern& positions, const AccessPattern& updates, const AccessPattern& row,
                  const AccessPattern& tile) {
    builder.dma(tile, updates, kLoad);
    emitter.indirect(Opcode::dma_scatter, row, tile, positions).accumulate = scatter.accumulate;
  });
}

}  // namespace opentrn::compiler
