// nc_matmul and the transposes (nc_transpose on either engine, dma_transpose).
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "exec/operation.h"

namespace opentrn::exec {
namespace {

using isa::Instruction;

// One partition's free dimensions.
Operand one_row(isa::AccessPattern pattern, const Context& context) {
  pattern.partitions = 1;
  return context.operand(pattern);
}

class MatrixMultiply final : public Operation {
 public:
  MatrixMultiply(const Instruction& i, const Context& context)
      : dst_(context.operand(i.dst)), accumulate_(i.accumulate), tables_(simd().matmul) {
    stationary_ = {context.operand(i.src[0]), one_row(i.src[0], context), nullptr, nullptr};
    moving_ = {context.operand(i.src[1]), one_row(i.src[1], context), nullptr, nullptr};
    dst_row_ = one_row(i.dst, context);
    for (Side* side : {&stationary_, &moving_}) {
      const DType dtype = side->all.dtype;
      side->convert = convert_fn(dtype, DType::f32);
      if (side->row.contiguous && side->row.ndim == 1)
        side->pack = dtype == DType::f32 ? tables_.pack_f32 : dtype == DType::bf16 ? tables_.pack_bf16 : nullptr;
    }
    from_dst_ = convert_fn(dst_.dtype, DType::f32);
    to_dst_ = convert_fn(DType::f32, dst_.dtype);
    direct_ = dst_.dtype == DType::f32 && dst_row_.contiguous && dst_row_.ndim == 1;
    k_ = stationary_.all.partitions;
    m_ = stationary_.all.free;
    n_ = moving_.all.free;
  }

  bool run(Frame& frame) const override {
    if (m_ == 0 || n_ == 0) return true;
    Scratch& scratch = *frame.scratch;
    const size_t k = static_cast<size_t>(k_);
    const std::byte* stationary = stationary_.all.address(frame.registers);
    const std::byte* moving = moving_.all.address(frame.registers);
    std::byte* dst = dst_.address(frame.registers);
    const int64_t width = tables_.columns, height = tables_.rows;
    const bool direct = direct_ && aligned(dst, 4);

    // Panels of the stationary operand, then one panel of the moving one, then a tile for ragged columns.
    const size_t stationary_floats = k * static_cast<size_t>(m_);
    const size_t wanted = stationary_floats + k * static_cast<size_t>(width) + static_cast<size_t>(width * height) + 64;
    std::vector<float>& packed = scratch.packed[0];
    if (packed.size() < wanted) packed.resize(wanted);
    float* a = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(packed.data()) + 63) & ~uintptr_t{63});
    float* b = a + ((stationary_floats + 15) & ~size_t{15});
    float* edge = b + k * static_cast<size_t>(width);

    const Wide wide_a = dense(stationary_, stationary, m_, scratch, 1);
    for (int64_t m = 0; m < m_; m += height) {
      const int64_t rows = std::min(height, m_ - m);
      pack(wide_a, m, k, rows, a + static_cast<size_t>(m) * k, rows);
    }
    const Wide wide_b = dense(moving_, moving, n_, scratch, 1);
    for (int64_t n = 0; n < n_; n += width) {
      const int64_t columns = std::min(width, n_ - n);
      pack(wide_b, n, k, columns, b, width);
      const bool whole = direct && columns == width;
      for (int64_t m = 0; m < m_; m += height) {
        const int64_t rows = std::min(height, m_ - m);
        const MatmulTileFn tile = tables_.tile[rows];
        const float* panel = a + static_cast<size_t>(m) * k;
        std::byte* at = dst + m * dst_.partition_stride;
        if (whole) {
          tile(panel, b, k, reinterpret_cast<float*>(at) + n, dst_.partition_stride / 4, accumulate_);
          continue;
        }
        if (accumulate_)
          for (int64_t r = 0; r < rows; ++r) load_row(at + r * dst_.partition_stride, n, columns, edge + r * width, scratch);
        tile(panel, b, k, edge, width, accumulate_);
        for (int64_t r = 0; r < rows; ++r) store_row(at + r * dst_.partition_stride, n, columns, edge + r * width, scratch);
      }
    }
    return true;
  }

 private:
  struct Side {
    Operand all, row;
    ConvertFn convert = nullptr;
    MatmulPackFn pack = nullptr;
  };
  // Rows that a pack function reads: the operand itself, or a dense f32 copy.
  struct Wide {
    const std::byte* at;
    int64_t stride, size;
    MatmulPackFn pack;
  };

  Wide dense(const Side& side, const std::byte* at, int64_t length, Scratch& scratch, int buffer) const {
    if (side.pack && aligned(at, side.all.size)) return {at, side.all.partition_stride, side.all.size, side.pack};
    std::vector<float>& copy = scratch.packed[buffer];
    const size_t wanted = static_cast<size_t>(k_ * length);
    if (copy.size() < wanted) copy.resize(wanted);
    for (int64_t k = 0; k < k_; ++k) {
      Cursor cursor(side.row, const_cast<std::byte*>(at) + k * side.all.partition_stride);
      float* to = copy.data() + k * length;
      for (int64_t done = 0; done < length;) {
        const int64_t n = std::min(length - done, kChunk);
        std::byte* raw = side.convert ? scratch.buffer[0].bytes : reinterpret_cast<std::byte*>(to + done);
        gather(cursor, raw, n);
        if (side.convert) side.convert(raw, to + done, static_cast<size_t>(n));
        done += n;
      }
    }
    return {reinterpret_cast<const std::byte*>(copy.data()), length * 4, 4, tables_.pack_f32};
  }

  static void pack(const Wide& from, int64_t column, size_t k, int64_t columns, float* to, int64_t width) {
    from.pack(from.at + column * from.size, from.stride, k, static_cast<size_t>(columns), to, static_cast<size_t>(width));
  }

  // Elements [n, n + columns) of one row of dst.
  Cursor row_cursor(std::byte* row, int64_t n) const {
    Cursor cursor(dst_row_, row);
    while (n > 0) {
      const int64_t step = std::min(n, cursor.run());
      cursor.skip(step);
      n -= step;
    }
    return cursor;
  }
  void load_row(std::byte* row, int64_t n, int64_t columns, float* to, Scratch& scratch) const {
    Cursor cursor = row_cursor(row, n);
    std::byte* raw = from_dst_ ? scratch.buffer[0].bytes : reinterpret_cast<std::byte*>(to);
    gather(cursor, raw, columns);
    if (from_dst_) from_dst_(raw, to, static_cast<size_t>(columns));
  }
  void store_row(std::byte* row, int64_t n, int64_t columns, const float* from, Scratch& scratch) const {
    Cursor cursor = row_cursor(row, n);
    const std::byte* raw = reinterpret_cast<const std::byte*>(from);
    if (to_dst_) {
      to_dst_(from, scratch.buffer[0].bytes, static_cast<size_t>(columns));
      raw = scratch.buffer[0].bytes;
    }
    scatter(cursor, raw, columns);
  }

  Operand dst_, dst_row_;
  Side stationary_, moving_;
  ConvertFn from_dst_, to_dst_;
  bool accumulate_, direct_;
  int64_t k_, m_, n_;
  const Matmul tables_;
};

// dst[F, P] = src[P, F]^T. Elements of the source's flattened free dimensions become partitions (HBM: rows) of dst.
class Transpose final : public Operation {
 public:
  Transpose(const Instruction& i, const Context& context)
      : dst_(context.operand(i.dst)), src_(context.operand(i.src[0])), src_row_(one_row(i.src[0], context)),
        dst_row_(one_row(i.dst, context)), rows_(src_.partitions), columns_(src_.free) {
    if (dst_.total != src_.total)
      throw UserError(std::string(isa::name_of(i.opcode)) + ": source and destination have different numbers of elements");
    convert_ = src_.dtype == dst_.dtype || (is_integer(src_.dtype) && is_integer(dst_.dtype) && src_.size == dst_.size)
                   ? nullptr : convert_fn(src_.dtype, dst_.dtype);
    if (dst_.size > 8)
      throw Unsupported(std::string(isa::name_of(i.opcode)) + " on " + std::string(name_of(dst_.dtype)) + " (exec/tensor_engine.cc)");
    transpose_ = simd().transpose[std::countr_zero(static_cast<unsigned>(dst_.size))];
    // Writing rows of dst directly needs dst to be [columns][rows] with dense rows.
    direct_dst_ = dst_row_.contiguous && dst_row_.ndim == 1 && dst_.partitions == columns_ && dst_.free == rows_;
    direct_src_ = src_row_.contiguous && src_row_.ndim == 1 && !convert_;
  }

  bool run(Frame& frame) const override {
    if (dst_.total == 0) return true;
    std::byte* dst = dst_.address(frame.registers);
    std::byte* src = src_.address(frame.registers);
    const bool overlapping = overlaps_unequally(dst_, dst, src_, src) || (dst == src && src_.total > 1);
    std::vector<std::byte>& in = frame.scratch->stage[0];
    std::vector<std::byte>& out = frame.scratch->stage[1];
    const std::byte* from = src;
    int64_t from_stride = src_.partition_stride;
    const int64_t size = dst_.size;
    if (!direct_src_ || overlapping) {
      if (static_cast<int64_t>(in.size()) < src_.total * size) in.resize(static_cast<size_t>(src_.total * size));
      Input input(src_, src, convert_, frame.scratch->buffer);
      for (int64_t done = 0; done < src_.total;) {
        const int64_t n = direct_chunk(input.cursor(), std::min(src_.total - done, kChunk));
        std::memcpy(in.data() + done * size, input.next(n), static_cast<size_t>(n * size));
        done += n;
      }
      from = in.data();
      from_stride = columns_ * size;
    }
    if (direct_dst_) {
      transpose_(from, from_stride, dst, dst_.partition_stride, static_cast<size_t>(rows_), static_cast<size_t>(columns_));
      return true;
    }
    if (static_cast<int64_t>(out.size()) < dst_.total * size) out.resize(static_cast<size_t>(dst_.total * size));
    transpose_(from, from_stride, out.data(), rows_ * size, static_cast<size_t>(rows_), static_cast<size_t>(columns_));
    Cursor to(dst_, dst);
    scatter(to, out.data(), dst_.total);
    return true;
  }

 private:
  Operand dst_, src_, src_row_, dst_row_;
  int64_t rows_, columns_;
  ConvertFn convert_;
  TransposeFn transpose_;
  bool direct_dst_, direct_src_;
};

}  // namespace

std::unique_ptr<Operation> make_matmul(const Instruction& i, const Context& context) {
  return std::make_unique<MatrixMultiply>(i, context);
}

std::unique_ptr<Operation> make_transpose(const Instruction& i, const Context& context) {
  return std::make_unique<Transpose>(i, context);
}

}  // namespace opentrn::exec
