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
      : dst_(context.operand(i.dst)), dst_row_(one_row(i.dst, context)), accumulate_(i.accumulate), f32_(&simd().matmul) {
    for (int s = 0; s < 2; ++s) {
      Side& side = s == 0 ? stationary_ : moving_;
      side.all = context.operand(i.src[s]);
      side.row = one_row(i.src[s], context);
      side.convert = convert_fn(side.all.dtype, DType::f32);
      if (side.row.ndim != 1) continue;
      if (side.row.contiguous) {
        side.stride = side.all.partition_stride;
      } else if (side.all.partition_stride == side.all.size) {
        side.stride = side.row.stride[0];
        side.transposed = true;
      }
    }
    const bool pairs = stationary_.is_bf16_lines() && moving_.is_bf16_lines() && stationary_.all.partitions % 2 == 0;
    tables_ = pairs && simd().matmul_bf16.rows > 0 && !exact_numerics() ? &simd().matmul_bf16 : f32_;
    for (Side* side : {&stationary_, &moving_}) {
      if (side->stride == 0) continue;
      if (side->all.dtype == DType::f32) side->pack = side->transposed ? tables_->pack_transposed_f32 : tables_->pack_f32;
      if (side->all.dtype == DType::bf16) side->pack = side->transposed ? tables_->pack_transposed_bf16 : tables_->pack_bf16;
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
    // Each element's sum goes on in f32 from one block of K to the next: the same bits as without blocks.
    const int64_t most = to_dst_ ? k_ : kBlock;
    for (int64_t first = 0; first < k_; first += most)
      block(*frame.scratch, frame.registers, first, std::min(most, k_ - first), accumulate_ || first > 0);
    return true;
  }

 private:
  // K values at a time, so that the packed operands stay small; shorter blocks pass over the result more often.
  static constexpr int64_t kBlock = 1024;

  void block(Scratch& scratch, const Registers& registers, int64_t first_k, int64_t count_k, bool accumulate) const {
    const std::byte* stationary = stationary_.all.address(registers) + first_k * stationary_.all.partition_stride;
    const std::byte* moving = moving_.all.address(registers) + first_k * moving_.all.partition_stride;
    std::byte* dst = dst_.address(registers);
    const int64_t width = tables_->columns, height = tables_->rows, k = count_k / tables_->k_step;
    const bool direct = direct_ && aligned(dst, 4);
    // One panel of stationary columns uses a row of the moving operand once: packing it does not pay.
    const bool in_place = m_ <= height && moving_.all.dtype == DType::f32 && !moving_.transposed &&
                          moving_.aligned_lines(moving);

    // Panels of the stationary operand, then some of the moving one, then a tile for ragged columns.
    const size_t stationary_floats = static_cast<size_t>((k * m_ + 15) / 16 * 16);
    const int64_t panel_floats = k * width + 16;  // a line apart: panels of a power of two would share cache sets
    const size_t group_floats = static_cast<size_t>(panel_floats * (kGroup / width));
    const size_t wanted = stationary_floats + group_floats + static_cast<size_t>(width * height) + 64;
    std::vector<float>& packed = scratch.packed[0];
    if (packed.size() < wanted) packed.resize(wanted);
    float* a = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(packed.data()) + 63) & ~uintptr_t{63});
    float* b = a + stationary_floats;
    float* edge = b + group_floats;

    const Rows wide_a = rows_of(stationary_, stationary, count_k, m_, scratch);
    const int64_t whole_rows = m_ / height * height;
    if (whole_rows > 0) pack(wide_a, count_k, 0, whole_rows, a, height, k * height);
    if (whole_rows < m_) pack(wide_a, count_k, whole_rows, m_ - whole_rows, a + whole_rows * k, m_ - whole_rows, 0);
    const Rows wide_b = rows_of(moving_, moving, count_k, n_, scratch);
    for (int64_t group = 0; group < n_; group += kGroup) {
      const int64_t end = std::min(n_, group + kGroup);
      const bool unpacked = in_place && end - group == kGroup;
      if (!unpacked) pack(wide_b, count_k, group, end - group, b, width, panel_floats);
      const bool wide = unpacked && direct && m_ <= 2 && f32_->wide[m_];
      const int64_t step = wide ? f32_->wide_columns[m_] : width;
      for (int64_t n = group; n < end; n += step) {
        const int64_t columns = std::min(step, end - n);
        const float* panel_b = unpacked ? reinterpret_cast<const float*>(moving) + n : b + (n - group) / width * panel_floats;
        const int64_t b_stride = unpacked ? moving_.stride / 4 : width;
        const bool whole = direct && columns == step;
        for (int64_t m = 0; m < m_; m += height) {
          const int64_t rows = std::min(height, m_ - m);
          const MatmulTileFn tile = wide ? f32_->wide[rows] : tables_->tile[rows];
          const float* panel = a + m * k;
          std::byte* at = dst + m * dst_.partition_stride;
          if (whole) {
            tile(panel, panel_b, b_stride, static_cast<size_t>(k), reinterpret_cast<float*>(at) + n, dst_.partition_stride / 4, accumulate);
            continue;
          }
          if (accumulate)
            for (int64_t r = 0; r < rows; ++r) load_row(at + r * dst_.partition_stride, n, columns, edge + r * width, scratch);
          tile(panel, panel_b, b_stride, static_cast<size_t>(k), edge, width, accumulate);
          for (int64_t r = 0; r < rows; ++r) store_row(at + r * dst_.partition_stride, n, columns, edge + r * width, scratch);
        }
      }
    }
  }

  // Columns of the moving operand that are packed at a time: whole lines are read from each of its rows, the panels stay
  // in the second-level cache. A multiple of every table's width.
  static constexpr int64_t kGroup = 128;

  struct Side {
    Operand all, row;
    ConvertFn convert = nullptr;
    bool transposed = false;
    int64_t stride = 0;           // bytes between rows, transposed: between columns; 0 if neither is dense
    MatmulPackFn pack = nullptr;
    bool aligned_lines(const std::byte* at) const { return stride != 0 && stride % all.size == 0 && aligned(at, all.size); }
    bool is_bf16_lines() const { return all.dtype == DType::bf16 && stride != 0; }
  };
  // What a pack function reads: the operand itself, or an f32 copy.
  struct Rows {
    const std::byte* at;
    int64_t stride, step;  // bytes between rows (transposed: columns) and from one column to the next
    MatmulPackFn pack;
  };

  Rows rows_of(const Side& side, const std::byte* at, int64_t count_k, int64_t length, Scratch& scratch) const {
    if (side.pack && (tables_ != f32_ || side.aligned_lines(at))) return {at, side.stride, side.transposed ? side.stride : side.all.size, side.pack};
    std::vector<float>& copy = scratch.packed[1];
    const size_t wanted = static_cast<size_t>(count_k * length);
    if (copy.size() < wanted) copy.resize(wanted);
    const auto* from = reinterpret_cast<const std::byte*>(copy.data());
    if (side.convert && side.aligned_lines(at)) {
      const int64_t lines = side.transposed ? length : count_k, elements = side.transposed ? count_k : length;
      for (int64_t line = 0; line < lines; ++line) side.convert(at + line * side.stride, copy.data() + line * elements, static_cast<size_t>(elements));
      return {from, elements * 4, side.transposed ? elements * 4 : 4, side.transposed ? f32_->pack_transposed_f32 : f32_->pack_f32};
    }
    for (int64_t k = 0; k < count_k; ++k) {
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
    return {from, length * 4, 4, f32_->pack_f32};
  }

  void pack(const Rows& from, int64_t count_k, int64_t column, int64_t columns, float* to, int64_t width, int64_t panel) const {
    from.pack(from.at + column * from.step, from.stride, static_cast<size_t>(count_k), static_cast<size_t>(columns), to,
              static_cast<size_t>(width), panel);
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
  const Matmul* f32_;
  const Matmul* tables_;  // in use
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
