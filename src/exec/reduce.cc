// tensor_reduce over trailing free dimensions and tensor_partition_reduce over partitions.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "exec/operation.h"
#include "exec/reduction.h"

namespace opentrn::exec {
namespace {

using isa::AluOp;
using isa::Instruction;

bool is_logical(AluOp op) { return op >= AluOp::logical_and && op <= AluOp::logical_xor; }
bool is_bitwise(AluOp op) { return op == AluOp::bitwise_and || op == AluOp::bitwise_or || op == AluOp::bitwise_xor; }

void check_op(AluOp op) {
  switch (op) {
    case AluOp::add: case AluOp::mult: case AluOp::max: case AluOp::min: case AluOp::abs_max:
    case AluOp::logical_and: case AluOp::logical_or: case AluOp::logical_xor:
    case AluOp::bitwise_and: case AluOp::bitwise_or: case AluOp::bitwise_xor: return;
    default:
      throw UserError("a reduction with " + std::string(isa::name_of(op)) +
                      ": use add, mult, max, min, abs_max, logical_* or bitwise_*");
  }
}

bool exact_integers(const Instruction& i) {
  const DType from = i.src[0].dtype;
  return is_bitwise(i.op0) || (i.engine == isa::Engine::gpsimd && !is_float(from) && size_of(from) <= 4);
}

// Reduces n values with an associative operation on lanes; order does not matter for integers and truth values.
template <typename T>
T fold(BinaryFn<T> op, T* values, int64_t n) {
  while (n > 1) {
    const int64_t half = n / 2;
    op(values, values, values + (n - half), static_cast<size_t>(half), Form::rows);
    n -= half;
  }
  return values[0];
}

// The order of ReduceBlockFn for many columns at a time: a stack of blocks' lanes, merged as a binary counter carries.
class ColumnReduction {
 public:
  ColumnReduction(AluOp op, int64_t length, size_t columns, std::vector<float>& memory)
      : combine_(simd().f32[static_cast<int>(op)]), pitch_(column_pitch(columns)), level_(kReduceLanes * pitch_) {
    size_t depth = 1;
    for (int64_t blocks = (length - 1) / static_cast<int64_t>(kReduceBlock); blocks > 0; blocks /= 2) ++depth;
    if (memory.size() < depth * level_ + 16) memory.resize(depth * level_ + 16);
    stack_ = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) & ~uintptr_t{63});
  }
  // Lanes of the next block, to be filled before the next call.
  float* push() {
    for (size_t b = blocks_; b > 0 && b % 2 == 0; b /= 2) merge();
    ++blocks_;
    return stack_ + level_ * depth_++;
  }
  // One result per column, valid until the next push.
  const float* finish() {
    while (depth_ > 1) merge();
    for (size_t half = kReduceLanes / 2; half > 0; half /= 2)
      combine_(stack_, stack_, stack_ + half * pitch_, half * pitch_, Form::rows);
    return stack_;
  }

 private:
  void merge() {
    --depth_;
    float* to = stack_ + level_ * (depth_ - 1);
    combine_(to, to, to + level_, level_, Form::rows);
  }
  BinaryFn<float> combine_;
  size_t pitch_, level_;
  float* stack_;
  size_t blocks_ = 0, depth_ = 0;
};

class Reduce final : public Operation {
 public:
  Reduce(const Instruction& i, const Context& context)
      : dst_(context.operand(i.dst)), src_(context.operand(i.src[0])), op_(i.op0), negate_(i.negate) {
    check_op(op_);
    const auto& dims = i.src[0].dims;
    for (size_t d = dims.size() - std::min<size_t>(dims.size(), static_cast<size_t>(i.axes)); d < dims.size(); ++d)
      length_ *= dims[d].count;
    integers_ = exact_integers(i);
    const DType domain = integers_ ? DType::i32 : DType::f32;
    bf16_ = src_.dtype == DType::bf16 && !integers_ && simd().reduce_rows_bf16[static_cast<int>(op_)];
    from_src_ = bf16_ ? nullptr : convert_fn(src_.dtype, domain);
    to_dst_ = convert_fn(domain, dst_.dtype);
    rows_fn_ = (bf16_ ? simd().reduce_rows_bf16 : simd().reduce_rows)[static_cast<int>(op_)];
    plan_columns(i.src[0], static_cast<size_t>(i.axes));
  }

  bool run(Frame& frame) const override {
    std::byte* dst_at = dst_.address(frame.registers);
    if (src_.total == 0 || dst_.total == 0) return true;
    Staged src{&src_, src_.address(frame.registers)};
    if (src_.memory == dst_.memory && length_ > 1) stage_if_overlapping(src, dst_, dst_at, frame, 0);
    if (columns_ > 0 && src.operand == &src_ && aligned(src.at, src_.size)) {
      run_columns(frame, dst_at, src.at);
      return true;
    }
    Scratch::Buffer* buffers = frame.scratch->buffer;
    Output output(dst_, dst_at, to_dst_, buffers);
    Input input(*src.operand, src.at, from_src_, buffers + 2);
    const int64_t rows = src_.total / length_;
    const int64_t group = integers_ || length_ > static_cast<int64_t>(kReduceBlock) ? 1 : kChunk / length_;
    for (int64_t row = 0; row < rows;) {
      const int64_t n = std::min(group, rows - row);
      void* to = output.begin(n);
      if (integers_) {
        *static_cast<uint32_t*>(to) = integer_row(input, reinterpret_cast<uint32_t*>(buffers[4].bytes));
      } else if (!rows_fn_) {
        for (int64_t r = 0; r < n; ++r) static_cast<float*>(to)[r] = logical_row(input, reinterpret_cast<float*>(buffers[4].bytes));
      } else if (length_ <= static_cast<int64_t>(kReduceBlock)) {
        rows_fn_(input.next(n * length_), static_cast<size_t>(n), static_cast<size_t>(length_), static_cast<float*>(to));
      } else {
        Reduction reduction(op_, bf16_);
        for (int64_t done = 0; done < length_;) {
          const int64_t m = std::min(length_ - done, kChunk);
          reduction.add(input.next(m), static_cast<size_t>(m));
          done += m;
        }
        *static_cast<float*>(to) = reduction.finish();
      }
      if (negate_) {
        if (integers_) *static_cast<uint32_t*>(to) = 0 - *static_cast<uint32_t*>(to);
        else simd().negate(static_cast<float*>(to), static_cast<float*>(to), static_cast<size_t>(n));
      }
      output.done(n);
      row += n;
    }
    return true;
  }

 private:
  // Where the elements to be reduced are strided and a dimension that is kept is dense in memory, rows of that dimension
  // are combined element by element: it is the partition, or the last free dimension kept.
  void plan_columns(const isa::AccessPattern& pattern, size_t axes) {
    const auto& dims = pattern.dims;
    const size_t kept = dims.size() - std::min(dims.size(), axes);
    if (!rows_fn_ || integers_ || length_ < 2) return;
    Operand reduced = src_, outer = src_;
    int64_t count[6], stride[6];
    const auto merge = [&](Operand& operand, size_t begin, size_t end, bool partition) {
      int n = 0;
      if (partition) count[n] = pattern.partitions, stride[n++] = src_.partition_stride;
      for (size_t d = begin; d < end; ++d, ++n) count[n] = dims[d].count, stride[n] = dims[d].stride * src_.size;
      set_dims(operand, count, stride, n);
    };
    merge(reduced, kept, dims.size(), false);
    if (reduced.ndim != 1 || reduced.contiguous) return;
    merge(outer, 0, kept, true);
    const int last = outer.ndim - 1;
    if (!outer.contiguous || outer.count[last] < 8 || reduced.stride[0] % src_.size != 0) return;
    columns_ = outer.count[last];
    column_stride_ = reduced.stride[0];
    outer_ = outer;
    set_dims(outer_, outer.count, outer.stride, last);
    columns_fn_ = (bf16_ ? simd().reduce_columns_bf16 : simd().reduce_columns)[static_cast<int>(op_)];
  }

  void run_columns(Frame& frame, std::byte* dst_at, std::byte* src_at) const {
    Scratch::Buffer* buffers = frame.scratch->buffer;
    Output output(dst_, dst_at, to_dst_, buffers);
    Cursor outer(outer_, src_at);
    constexpr auto kWide = static_cast<int64_t>(kReduceColumns), kBlock = static_cast<int64_t>(kReduceBlock);
    constexpr int64_t kRows = 32;  // converted at a time
    for (int64_t at = 0; at < outer_.total; ++at) {
      for (int64_t column = 0; column < columns_; column += kWide) {
        const int64_t n = std::min(kWide, columns_ - column);
        const std::byte* from = outer.at() + column * src_.size;
        ColumnReduction reduction(op_, length_, static_cast<size_t>(n), frame.scratch->packed[0]);
        for (int64_t start = 0; start < length_; start += kBlock) {
          const int64_t rows = std::min(kBlock, length_ - start);
          float* lanes = reduction.push();
          if (!from_src_) {
            columns_fn_(from, column_stride_, static_cast<size_t>(rows), static_cast<size_t>(n), true, lanes);
            from += rows * column_stride_;
            continue;
          }
          for (int64_t row = 0; row < rows; row += kRows) {
            const int64_t m = std::min(kRows, rows - row);
            for (int64_t r = 0; r < m; ++r, from += column_stride_)
              from_src_(from, buffers[2].bytes + r * kWide * 4, static_cast<size_t>(n));
            columns_fn_(buffers[2].bytes, kWide * 4, static_cast<size_t>(m), static_cast<size_t>(n), row == 0, lanes);
          }
        }
        const float* result = reduction.finish();
        void* to = output.begin(n);
        if (negate_) simd().negate(static_cast<float*>(to), result, static_cast<size_t>(n));
        else std::memcpy(to, result, static_cast<size_t>(n) * 4);
        output.done(n);
      }
      outer.skip(1);
    }
  }

  uint32_t integer_row(Input& input, uint32_t* work) const {
    const BinaryFn<uint32_t> op = simd().i32[static_cast<int>(op_)];
    uint32_t result = 0;
    for (int64_t done = 0; done < length_;) {
      const int64_t m = std::min(length_ - done, kChunk);
      std::memcpy(work, input.next(m), static_cast<size_t>(m) * 4);
      if (is_logical(op_)) {
        const uint32_t zero = 0;
        simd().i32[static_cast<int>(AluOp::not_equal)](work, work, &zero, static_cast<size_t>(m), Form::row_value);
      }
      const uint32_t part = fold(op, work, m);
      if (done == 0) result = op_ == AluOp::abs_max && static_cast<int32_t>(part) < 0 ? 0 - part : part;
      else op(&result, &result, &part, 1, Form::rows);
      done += m;
    }
    return result;
  }

  float logical_row(Input& input, float* work) const {
    const BinaryFn<float> op = simd().f32[static_cast<int>(op_)];
    float result = 0;
    for (int64_t done = 0; done < length_;) {
      const int64_t m = std::min(length_ - done, kChunk);
      const float zero = 0;
      simd().f32[static_cast<int>(AluOp::not_equal)](work, static_cast<const float*>(input.next(m)), &zero,
                                                     static_cast<size_t>(m), Form::row_value);
      const float part = fold(op, work, m);
      if (done == 0) result = part;
      else op(&result, &result, &part, 1, Form::rows);
      done += m;
    }
    return result;
  }

  Operand dst_, src_;
  AluOp op_;
  bool negate_, integers_ = false, bf16_ = false;
  int64_t length_ = 1;
  ConvertFn from_src_, to_dst_;
  ReduceRowsFn rows_fn_;
  ReduceColumnsFn columns_fn_ = nullptr;
  Operand outer_;                             // the dimensions kept, without the dense one
  int64_t columns_ = 0, column_stride_ = 0;   // of the dense one; bytes from one element to be reduced to the next
};

// Rows of different partitions are combined pairwise, as the digits of a binary counter carry.
template <typename T>
class PartitionReduce final : public Operation {
 public:
  PartitionReduce(const Instruction& i, const Context& context, DType domain, const BinaryFn<T>* table)
      : dst_(context.operand(i.dst)), op_(i.op0 == AluOp::average ? AluOp::add : i.op0), average_(i.op0 == AluOp::average),
        negate_(i.negate) {
    check_op(op_);
    src_ = context.operand(i.src[0]);
    partitions_ = src_.partitions;
    free_ = src_.free;
    // One partition's row at a time.
    isa::AccessPattern row = i.src[0];
    row.partitions = 1;
    row_ = context.operand(row);
    from_src_ = convert_fn(src_.dtype, domain);
    to_dst_ = convert_fn(domain, dst_.dtype);
    combine_ = table[static_cast<int>(op_)];
    multiply_ = table[static_cast<int>(AluOp::mult)];
    divide_ = table[static_cast<int>(AluOp::divide)];
    not_equal_ = table[static_cast<int>(AluOp::not_equal)];
  }

  bool run(Frame& frame) const override {
    std::byte* dst_at = dst_.address(frame.registers);
    if (dst_.total == 0 || src_.total == 0) return true;
    Staged src{&src_, src_.address(frame.registers)};
    stage_if_overlapping(src, dst_, dst_at, frame, 0);
    const bool staged = src.operand != &src_;
    const Operand& row = staged ? *src.operand : row_;
    const int64_t row_stride = staged ? free_ * src_.size : src_.partition_stride;
    Scratch::Buffer* buffers = frame.scratch->buffer;
    Output output(dst_, dst_at, to_dst_, buffers);
    constexpr int64_t kColumns = 256;
    T stack[9][kColumns];
    std::vector<Cursor> cursors;
    for (int64_t p = 0; p < partitions_; ++p) cursors.emplace_back(row, src.at + p * row_stride);
    for (int64_t column = 0; column < free_; column += kColumns) {
      const int64_t n = std::min(kColumns, free_ - column);
      int depth = 0;
      for (int64_t p = 0; p < partitions_; ++p) {
        gather(cursors[p], buffers[2].bytes, n);
        T* to = stack[depth++];
        if (from_src_) from_src_(buffers[2].bytes, to, static_cast<size_t>(n));
        else std::memcpy(to, buffers[2].bytes, static_cast<size_t>(n) * sizeof(T));
        if (is_logical(op_)) {
          const T zero = 0;
          not_equal_(to, to, &zero, static_cast<size_t>(n), Form::row_value);
        } else if (op_ == AluOp::abs_max) {
          combine_(to, to, to, static_cast<size_t>(n), Form::rows);
        }
        for (int64_t b = p + 1; b % 2 == 0; b /= 2) merge(stack, depth, n);
      }
      while (depth > 1) merge(stack, depth, n);
      if (average_) {
        const T count = static_cast<T>(partitions_);
        divide_(stack[0], stack[0], &count, static_cast<size_t>(n), Form::row_value);
      }
      if (negate_) {
        const T minus_one = static_cast<T>(-1);
        multiply_(stack[0], stack[0], &minus_one, static_cast<size_t>(n), Form::row_value);
      }
      std::memcpy(output.begin(n), stack[0], static_cast<size_t>(n) * sizeof(T));
      output.done(n);
    }
    return true;
  }

 private:
  template <int64_t kColumns>
  void merge(T (&stack)[9][kColumns], int& depth, int64_t n) const {
    combine_(stack[depth - 2], stack[depth - 2], stack[depth - 1], static_cast<size_t>(n), Form::rows);
    --depth;
  }

  Operand dst_, src_, row_;
  AluOp op_;
  bool average_, negate_;
  int64_t partitions_, free_;
  ConvertFn from_src_, to_dst_;
  BinaryFn<T> combine_, multiply_, divide_, not_equal_;
};

}  // namespace

std::unique_ptr<Operation> make_reduce(const Instruction& i, const Context& context) {
  return std::make_unique<Reduce>(i, context);
}

std::unique_ptr<Operation> make_partition_reduce(const Instruction& i, const Context& context) {
  if (exact_integers(i)) return std::make_unique<PartitionReduce<uint32_t>>(i, context, DType::i32, simd().i32);
  return std::make_unique<PartitionReduce<float>>(i, context, DType::f32, simd().f32);
}

}  // namespace opentrn::exec
