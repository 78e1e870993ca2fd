// dma_gather and dma_scatter: rows of an HBM tensor chosen by numbers in SBUF, checked against the tensor's extent.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "exec/operation.h"

namespace opentrn::exec {
namespace {

using isa::Instruction;

// The row numbers of a gather or scatter, in order of (partition, position).
class RowNumbers {
 public:
  RowNumbers(const Instruction& i, const Context& context)
      : index_(context.operand(i.src[1])), to_i64_(convert_fn(index_.dtype, DType::i64)), rows_(i.rows), skip_(i.skip_out_of_bounds) {}
  bool skips() const { return skip_; }

  // Calls row(number) for each; skipped() for those out of range when these are to be skipped, else they are a fault:
  // false, described in the frame.
  template <typename Row, typename Skipped>
  bool each(Frame& frame, Scratch::Buffer* buffers, Row&& row, Skipped&& skipped) const {
    Input input(index_, index_.address(frame.registers), to_i64_, buffers);
    for (int64_t done = 0; done < index_.total;) {
      const int64_t n = std::min(index_.total - done, kChunk);
      const auto* numbers = static_cast<const int64_t*>(input.next(n));
      for (int64_t k = 0; k < n; ++k) {
        const int64_t number = numbers[k];
        if (number >= 0 && number < rows_) {
          row(number);
        } else if (skip_) {
          skipped();
        } else {
          frame.fault = "index " + std::to_string(number) + " is out of bounds for dimension with size " + std::to_string(rows_);
          return false;
        }
      }
      done += n;
    }
    return true;
  }

 private:
  Operand index_;
  ConvertFn to_i64_;
  int64_t rows_;
  bool skip_;
};

bool moves(DType from, DType to) {
  return from == to || (is_integer(from) && is_integer(to) && size_of(from) == size_of(to));
}

void advance(Cursor& cursor, int64_t n) {
  while (n > 0) {
    const int64_t step = std::min(n, cursor.run());
    cursor.skip(step);
    n -= step;
  }
}

class Gather final : public Operation {
 public:
  Gather(const Instruction& i, const Context& context)
      : dst_(context.operand(i.dst)), row_(context.operand(i.src[0])), numbers_(i, context), row_bytes_(i.row_bytes),
        convert_(moves(row_.dtype, dst_.dtype) ? nullptr : convert_fn(row_.dtype, dst_.dtype)) {}

  bool run(Frame& frame) const override {
    Scratch::Buffer* buffers = frame.scratch->buffer;
    std::byte* table = row_.address(frame.registers);
    Cursor to(dst_, dst_.address(frame.registers));
    const int64_t length = row_.total;
    if (length == 1 && !convert_ && !numbers_.skips()) {
      switch (dst_.size) {
        case 1: return elements<uint8_t>(frame, table, to);
        case 2: return elements<uint16_t>(frame, table, to);
        case 4: return elements<uint32_t>(frame, table, to);
        case 8: return elements<uint64_t>(frame, table, to);
      }
    }
    const bool dense = !convert_ && row_.contiguous && row_.ndim == 1 && dst_.contiguous;
    return numbers_.each(
        frame, buffers,
        [&](int64_t number) {
          std::byte* at = table + number * row_bytes_;
          if (dense && to.run() >= length) {
            copy_run(to.at(), at, static_cast<size_t>(length * dst_.size));
            to.skip(length);
            return;
          }
          Cursor from(row_, at);
          if (!convert_) return copy(to, from, length, buffers[2].bytes);
          for (int64_t done = 0; done < length;) {
            const int64_t n = std::min(length - done, kChunk);
            gather(from, buffers[2].bytes, n);
            convert_(buffers[2].bytes, buffers[3].bytes, static_cast<size_t>(n));
            scatter(to, buffers[3].bytes, n);
            done += n;
          }
        },
        [&] { advance(to, length); });
  }

 private:
  // Rows of one element: collected in a buffer first.
  template <typename T>
  bool elements(Frame& frame, const std::byte* table, Cursor to) const {
    Scratch::Buffer* buffers = frame.scratch->buffer;
    auto* collected = reinterpret_cast<T*>(buffers[2].bytes);
    int64_t count = 0;
    const bool ok = numbers_.each(
        frame, buffers,
        [&](int64_t number) {
          std::memcpy(collected + count, table + number * row_bytes_, sizeof(T));
          if (++count < kChunk) return;
          scatter(to, buffers[2].bytes, count);
          count = 0;
        },
        [] {});
    scatter(to, buffers[2].bytes, count);
    return ok;
  }

  Operand dst_, row_;
  RowNumbers numbers_;
  int64_t row_bytes_;
  ConvertFn convert_;
};

class Scatter final : public Operation {
 public:
  Scatter(const Instruction& i, const Context& context)
      : src_(context.operand(i.src[0])), row_(context.operand(i.dst)), numbers_(i, context), row_bytes_(i.row_bytes),
        accumulate_(i.accumulate), domain_(accumulation_type(row_.dtype)) {
    if (accumulate_ && (add_ = addition(src_.dtype, row_.dtype))) return;
    if (accumulate_) {
      from_src_ = convert_fn(src_.dtype, domain_);
      from_row_ = convert_fn(row_.dtype, domain_);
      to_row_ = convert_fn(domain_, row_.dtype);
    } else {
      from_src_ = moves(src_.dtype, row_.dtype) ? nullptr : convert_fn(src_.dtype, row_.dtype);
    }
  }

  bool run(Frame& frame) const override {
    Scratch::Buffer* buffers = frame.scratch->buffer;
    std::byte* table = row_.address(frame.registers);
    Cursor from(src_, src_.address(frame.registers));
    const int64_t length = row_.total;
    const bool dense = !from_src_ && row_.contiguous && row_.ndim == 1 && src_.contiguous;
    const bool adds_in_place = accumulate_ && (add_ || domain_ == row_.dtype) && !from_row_;
    return numbers_.each(
        frame, buffers,
        [&](int64_t number) {
          std::byte* at = table + number * row_bytes_;
          if (dense && from.run() >= length) {
            if (!accumulate_) {
              copy_run(at, from.at(), static_cast<size_t>(length * row_.size));
              from.skip(length);
              return;
            }
            if (adds_in_place && aligned(at, row_.size) && aligned(from.at(), src_.size)) {
              if (add_) add_(at, at, from.at(), static_cast<size_t>(length), Form::rows);
              else accumulate(domain_, at, at, from.at(), length);
              from.skip(length);
              return;
            }
          }
          Input old(row_, at, from_row_, buffers + 4);
          Output to(row_, at, to_row_, buffers + 6);
          for (int64_t done = 0; done < length;) {
            const int64_t n = std::min(length - done, kChunk);
            gather(from, buffers[2].bytes, n);
            const std::byte* values = buffers[2].bytes;
            if (from_src_) {
              from_src_(values, buffers[3].bytes, static_cast<size_t>(n));
              values = buffers[3].bytes;
            }
            void* result = to.begin(n);
            if (add_) add_(result, old.next(n), values, static_cast<size_t>(n), Form::rows);
            else if (accumulate_) accumulate(domain_, result, old.next(n), values, n);
            else std::memcpy(result, values, static_cast<size_t>(n * row_.size));
            to.done(n);
            done += n;
          }
        },
        [&] { advance(from, length); });
  }

 private:
  Operand src_, row_;
  RowNumbers numbers_;
  int64_t row_bytes_;
  bool accumulate_;
  DType domain_;
  MixedFn add_ = nullptr;
  ConvertFn from_src_ = nullptr, from_row_ = nullptr, to_row_ = nullptr;
};

}  // namespace

std::unique_ptr<Operation> make_gather(const Instruction& i, const Context& context) {
  return std::make_unique<Gather>(i, context);
}

std::unique_ptr<Operation> make_scatter(const Instruction& i, const Context& context) {
  return std::make_unique<Scatter>(i, context);
}

}  // namespace opentrn::exec
