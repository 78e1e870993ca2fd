// iota and affine_select: numbers derived from positions.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "exec/index_pattern.h"
#include "exec/operation.h"

namespace opentrn::exec {
namespace {

using isa::AluOp;
using isa::Instruction;

class Iota final : public Operation {
 public:
  Iota(const Instruction& i, const Context& context)
      : dst_(context.operand(i.dst)), pattern_(i, context, dst_.partitions, dst_.free), wide_(dst_.size == 8) {
    const DType domain = wide_ ? DType::i64 : DType::i32;
    convert_ = is_integer(dst_.dtype) && dst_.size >= 4 ? nullptr : convert_fn(domain, dst_.dtype);
  }

  bool run(Frame& frame) const override {
    IndexCursor cursor(pattern_, pattern_.start(frame));
    Output output(dst_, dst_.address(frame.registers), convert_, frame.scratch->buffer);
    for (int64_t done = 0; done < dst_.total;) {
      const int64_t n = direct_chunk(output.cursor(), std::min(dst_.total - done, kChunk));
      void* to = output.begin(n);
      if (wide_) cursor.next(static_cast<int64_t*>(to), n);
      else cursor.next(static_cast<int32_t*>(to), n);
      output.done(n);
      done += n;
    }
    return true;
  }

 private:
  Operand dst_;
  IndexPattern pattern_;
  bool wide_;  // 64-bit arithmetic; else the chip's 32-bit arithmetic
  ConvertFn convert_;
};

class AffineSelect final : public Operation {
 public:
  AffineSelect(const Instruction& i, const Context& context)
      : dst_(context.operand(i.dst)), src_(context.operand(i.src[0])), pattern_(i, context, dst_.partitions, dst_.free),
        otherwise_(i.s1, context), op_(i.op0) {
    const auto conversion = [&](DType from) {
      return from == dst_.dtype || (is_integer(from) && is_integer(dst_.dtype) && size_of(from) == dst_.size)
                 ? nullptr : convert_fn(from, dst_.dtype);
    };
    convert_ = conversion(src_.dtype);
    integer_ = is_integer(dst_.dtype);
    from_value_ = conversion(integer_ ? DType::i64 : DType::f64);
    if (dst_.size > 8 || op_ < AluOp::is_equal || op_ > AluOp::is_le)
      throw UserError("affine_select compares with is_equal, not_equal, is_gt, is_ge, is_lt or is_le, on types of at most 8 bytes");
    select_ = simd().select[std::countr_zero(static_cast<unsigned>(dst_.size))];
  }

  bool run(Frame& frame) const override {
    std::byte* dst_at = dst_.address(frame.registers);
    Staged src{&src_, src_.address(frame.registers)};
    stage_if_overlapping(src, dst_, dst_at, frame, 0);
    Scratch::Buffer* buffers = frame.scratch->buffer;
    Input input(*src.operand, src.at, convert_, buffers);
    Output output(dst_, dst_at, nullptr, buffers + 2);
    std::byte* fill = buffers[4].bytes;
    auto* numbers = reinterpret_cast<int32_t*>(buffers[5].bytes);
    auto* mask = reinterpret_cast<uint8_t*>(buffers[6].bytes);
    const Value value = otherwise_.value(frame);
    const void* from = integer_ ? static_cast<const void*>(&value.integer) : &value.real;
    if (from_value_) from_value_(from, fill, 1);
    else std::memcpy(fill, from, static_cast<size_t>(dst_.size));
    for (int64_t k = 1; k < std::min(kChunk, dst_.total); ++k) std::memcpy(fill + k * dst_.size, fill, static_cast<size_t>(dst_.size));
    IndexCursor cursor(pattern_, pattern_.start(frame));
    for (int64_t done = 0; done < dst_.total;) {
      const int64_t n = direct_chunk(output.cursor(), direct_chunk(input.cursor(), std::min(dst_.total - done, kChunk)));
      cursor.next(numbers, n);
      compare(numbers, mask, n);
      const void* kept = input.next(n);
      select_(output.begin(n), mask, kept, fill, static_cast<size_t>(n));
      output.done(n);
      done += n;
    }
    return true;
  }

 private:
  void compare(const int32_t* numbers, uint8_t* mask, int64_t n) const {
    switch (op_) {
      case AluOp::is_equal: for (int64_t i = 0; i < n; ++i) mask[i] = numbers[i] == 0; break;
      case AluOp::not_equal: for (int64_t i = 0; i < n; ++i) mask[i] = numbers[i] != 0; break;
      case AluOp::is_gt: for (int64_t i = 0; i < n; ++i) mask[i] = numbers[i] > 0; break;
      case AluOp::is_ge: for (int64_t i = 0; i < n; ++i) mask[i] = numbers[i] >= 0; break;
      case AluOp::is_lt: for (int64_t i = 0; i < n; ++i) mask[i] = numbers[i] < 0; break;
      default: for (int64_t i = 0; i < n; ++i) mask[i] = numbers[i] <= 0;
    }
  }

  Operand dst_, src_;
  IndexPattern pattern_;
  ScalarOperand otherwise_;
  AluOp op_;
  ConvertFn convert_ = nullptr, from_value_ = nullptr;
  bool integer_ = false;
  SelectFn select_ = nullptr;
};

}  // namespace

std::unique_ptr<Operation> make_iota(const Instruction& i, const Context& context) {
  return std::make_unique<Iota>(i, context);
}

std::unique_ptr<Operation> make_affine_select(const Instruction& i, const Context& context) {
  return std::make_unique<AffineSelect>(i, context);
}

}  // namespace opentrn::exec
