// tensor_copy and dma_copy (one operation: on chip and between memories), predicated copies, select and memset.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "exec/operation.h"

namespace opentrn::exec {
namespace {

using isa::Instruction;
using isa::Opcode;

// Types whose values survive a move of the bits.
bool same_bits(DType from, DType to) {
  return from == to || (is_integer(from) && is_integer(to) && size_of(from) == size_of(to));
}

class Copy final : public Operation {
 public:
  Copy(const Instruction& i, const Context& context)
      : dst_(context.operand(i.dst)), src_(context.operand(i.src[0])),
        convert_(same_bits(src_.dtype, dst_.dtype) ? nullptr : convert_fn(src_.dtype, dst_.dtype)) {
    plan_transpose();
  }

  bool run(Frame& frame) const override {
    std::byte* dst_at = dst_.address(frame.registers);
    Staged src{&src_, src_.address(frame.registers)};
    stage_if_overlapping(src, dst_, dst_at, frame, 0);
    Scratch::Buffer* buffers = frame.scratch->buffer;
    if (convert_) {
      Input input(*src.operand, src.at, nullptr, buffers);
      Output output(dst_, dst_at, nullptr, buffers + 2);
      for (int64_t done = 0; done < dst_.total;) {
        const int64_t n = direct_chunk(output.cursor(), direct_chunk(input.cursor(), std::min(dst_.total - done, kChunk)));
        const void* from = input.next(n);
        convert_(from, output.begin(n), static_cast<size_t>(n));
        output.done(n);
        done += n;
      }
      return true;
    }
    if (transpose_ && src.operand == &src_) {
      run_transpose(dst_at, src.at);
      return true;
    }
    Cursor to(dst_, dst_at), from(*src.operand, src.at);
    copy(to, from, dst_.total, buffers[0].bytes);
    return true;
  }

 private:
  // Where one side is dense along the last common dimension and the other along an earlier one, the copy is a batch
  // of two-dimensional transposes, done in blocks.
  void plan_transpose() {
    if (convert_ || dst_.size > 8) return;
    dims_ = common_dims(dst_, src_, count_, dst_stride_, src_stride_);
    const int last = dims_ - 1;
    if (last < 1) return;
    const bool dst_dense = dst_stride_[last] == dst_.size, src_dense = src_stride_[last] == src_.size;
    if (dst_dense == src_dense) return;
    const int64_t* other = dst_dense ? src_stride_ : dst_stride_;
    for (int d = 0; d < last; ++d) {
      if (other[d] != dst_.size || count_[d] < 4 || count_[last] < 4) continue;
      crossed_ = d;
      // The source block has rows along its non-dense dimension and columns along its dense one.
      rows_ = dst_dense ? last : d;
      columns_ = dst_dense ? d : last;
      transpose_ = simd().transpose[std::countr_zero(static_cast<unsigned>(dst_.size))];
      return;
    }
  }

  void run_transpose(std::byte* dst_at, const std::byte* src_at) const {
    int64_t index[kMaxCommonDims] = {};
    for (;;) {
      transpose_(src_at, src_stride_[rows_], dst_at, dst_stride_[columns_], static_cast<size_t>(count_[rows_]),
                 static_cast<size_t>(count_[columns_]));
      int d = dims_ - 2;
      for (; d >= 0; --d) {
        if (d == crossed_) continue;
        if (++index[d] < count_[d]) {
          src_at += src_stride_[d];
          dst_at += dst_stride_[d];
          break;
        }
        src_at -= src_stride_[d] * (count_[d] - 1);
        dst_at -= dst_stride_[d] * (count_[d] - 1);
        index[d] = 0;
      }
      if (d < 0) return;
    }
  }

  Operand dst_, src_;
  ConvertFn convert_;
  int dims_ = 0, crossed_ = -1, rows_ = 0, columns_ = 0;
  int64_t count_[kMaxCommonDims], dst_stride_[kMaxCommonDims], src_stride_[kMaxCommonDims];
  TransposeFn transpose_ = nullptr;
};

// dst += src, in f32, f64 or 64-bit integers (which wrap to the destination's width exactly).
class Accumulate final : public Operation {
 public:
  Accumulate(const Instruction& i, const Context& context) : dst_(context.operand(i.dst)), src_(context.operand(i.src[0])) {
    add_ = addition(src_.dtype, dst_.dtype);
    domain_ = accumulation_type(dst_.dtype);
    if (add_) return;
    from_src_ = convert_fn(src_.dtype, domain_);
    from_dst_ = convert_fn(dst_.dtype, domain_);
    to_dst_ = convert_fn(domain_, dst_.dtype);
  }

  bool run(Frame& frame) const override {
    std::byte* dst_at = dst_.address(frame.registers);
    Staged src{&src_, src_.address(frame.registers)};
    stage_if_overlapping(src, dst_, dst_at, frame, 0);
    Scratch::Buffer* buffers = frame.scratch->buffer;
    Input input(*src.operand, src.at, from_src_, buffers), old(dst_, dst_at, from_dst_, buffers + 2);
    Output output(dst_, dst_at, to_dst_, buffers + 4);
    for (int64_t done = 0; done < dst_.total;) {
      const int64_t n = direct_chunk(output.cursor(), direct_chunk(input.cursor(), std::min(dst_.total - done, kChunk)));
      const void* a = old.next(n);
      const void* b = input.next(n);
      if (add_) add_(output.begin(n), a, b, static_cast<size_t>(n), Form::rows);
      else accumulate(domain_, output.begin(n), a, b, n);
      output.done(n);
      done += n;
    }
    return true;
  }

 private:
  Operand dst_, src_;
  DType domain_;
  MixedFn add_;
  ConvertFn from_src_ = nullptr, from_dst_ = nullptr, to_dst_ = nullptr;
};

class Select final : public Operation {
 public:
  Select(const Instruction& i, const Context& context) : dst_(context.operand(i.dst)) {
    const bool predicated = i.opcode == Opcode::tensor_copy_predicated;
    const int predicate = predicated ? 1 : 0;
    predicate_ = context.operand(i.src[predicate]);
    to_mask_ = convert_fn(predicate_.dtype, DType::boolean);
    value_[0] = context.operand(i.src[predicated ? 0 : 1]);
    value_[1] = predicated ? dst_ : context.operand(i.src[2]);
    for (int k = 0; k < 2; ++k)
      convert_[k] = same_bits(value_[k].dtype, dst_.dtype) ? nullptr : convert_fn(value_[k].dtype, dst_.dtype);
    inverted_ = i.reverse0;
    if (dst_.size > 8)
      throw Unsupported(std::string(isa::name_of(i.opcode)) + " on " + std::string(name_of(dst_.dtype)) + " (exec/copy.cc)");
    select_ = simd().select[std::countr_zero(static_cast<unsigned>(dst_.size))];
  }

  bool run(Frame& frame) const override {
    std::byte* dst_at = dst_.address(frame.registers);
    const Operand* source[3] = {&predicate_, &value_[0], &value_[1]};
    const ConvertFn convert[3] = {to_mask_, convert_[0], convert_[1]};
    Staged staged[3];
    Input input[3];
    Scratch::Buffer* buffers = frame.scratch->buffer;
    Output output(dst_, dst_at, nullptr, buffers);
    for (int s = 0; s < 3; ++s) {
      staged[s].operand = source[s];
      staged[s].at = source[s]->address(frame.registers);
      stage_if_overlapping(staged[s], dst_, dst_at, frame, s);
      input[s] = Input(*staged[s].operand, staged[s].at, convert[s], buffers + 1 + 2 * s);
    }
    for (int64_t done = 0; done < dst_.total;) {
      int64_t n = direct_chunk(output.cursor(), std::min(dst_.total - done, kChunk));
      for (const Input& in : input) n = direct_chunk(in.cursor(), n);
      const void* mask = input[0].next(n);
      const void* a = input[1].next(n);
      const void* b = input[2].next(n);
      select_(output.begin(n), static_cast<const uint8_t*>(mask), inverted_ ? b : a, inverted_ ? a : b, static_cast<size_t>(n));
      output.done(n);
      done += n;
    }
    return true;
  }

 private:
  Operand dst_, predicate_, value_[2];
  ConvertFn to_mask_, convert_[2];
  SelectFn select_;
  bool inverted_;
};

template <typename T>
void fill(Cursor cursor, int64_t total, const std::byte* element) {
  T value;
  std::memcpy(&value, element, sizeof(T));
  const int64_t stride = cursor.operand->stride[cursor.operand->ndim - 1];
  while (total > 0) {
    const int64_t m = cursor.run();
    std::byte* to = cursor.at();
    if (stride == sizeof(T) && static_cast<size_t>(m) * sizeof(T) >= kStreamBytes) {
      simd().stream_fill(to, element, sizeof(T), static_cast<size_t>(m) * sizeof(T));
    } else if (stride == sizeof(T)) {
      for (int64_t i = 0; i < m; ++i) std::memcpy(to + i * sizeof(T), &value, sizeof(T));
    } else {
      for (int64_t i = 0; i < m; ++i) std::memcpy(to + i * stride, &value, sizeof(T));
    }
    cursor.skip(m);
    total -= m;
  }
}

class Memset final : public Operation {
 public:
  Memset(const Instruction& i, const Context& context) : dst_(context.operand(i.dst)), value_(i.s0, context) {
    if (value_.is_tile()) {
      tile_ = value_.tile;
      const int64_t count[2] = {dst_.partitions, dst_.free}, stride[2] = {tile_.partition_stride, 0};
      set_dims(tile_, count, stride, 2);
      from_tile_ = same_bits(tile_.dtype, dst_.dtype) ? nullptr : convert_fn(tile_.dtype, dst_.dtype);
      return;
    }
    component_ = dst_.dtype == DType::c32 ? DType::f16 : dst_.dtype == DType::c64 ? DType::f32
               : dst_.dtype == DType::c128 ? DType::f64 : dst_.dtype;
    packed_ = dst_.dtype == DType::f4e2m1x2;  // two values in a byte: the immediate is the byte
    if (!packed_) {
      from_integer_ = convert_fn(DType::i64, component_);
      from_real_ = convert_fn(DType::f64, component_);
    }
  }

  bool run(Frame& frame) const override {
    if (dst_.total == 0) return true;
    std::byte* dst_at = dst_.address(frame.registers);
    if (value_.is_tile()) {
      Staged staged{&tile_, tile_.address(frame.registers)};
      stage_if_overlapping(staged, dst_, dst_at, frame, 0);
      Input input(*staged.operand, staged.at, from_tile_, frame.scratch->buffer);
      Output output(dst_, dst_at, nullptr, frame.scratch->buffer + 2);
      for (int64_t done = 0; done < dst_.total;) {
        const int64_t n = direct_chunk(output.cursor(), std::min(dst_.total - done, kChunk));
        const void* from = input.next(n);
        std::memcpy(output.begin(n), from, static_cast<size_t>(n * dst_.size));
        output.done(n);
        done += n;
      }
      return true;
    }
    const Value value = value_.value(frame);
    alignas(16) std::byte element[16] = {};
    if (packed_) {
      element[0] = static_cast<std::byte>(value.integer);
    } else if (is_integer(component_)) {
      if (from_integer_) from_integer_(&value.integer, element, 1);
      else std::memcpy(element, &value.integer, 8);
    } else {
      if (from_real_) from_real_(&value.real, element, 1);
      else std::memcpy(element, &value.real, 8);
    }
    const Cursor cursor(dst_, dst_at);
    switch (dst_.size) {
      case 1: fill<uint8_t>(cursor, dst_.total, element); break;
      case 2: fill<uint16_t>(cursor, dst_.total, element); break;
      case 4: fill<uint32_t>(cursor, dst_.total, element); break;
      case 8: fill<uint64_t>(cursor, dst_.total, element); break;
      default: fill<Wide>(cursor, dst_.total, element);
    }
    return true;
  }

 private:
  Operand dst_, tile_;
  ScalarOperand value_;
  DType component_ = DType::f32;
  bool packed_ = false;
  ConvertFn from_integer_ = nullptr, from_real_ = nullptr, from_tile_ = nullptr;
};

}  // namespace

DType accumulation_type(DType dtype) {
  if (dtype == DType::f64) return DType::f64;
  if (is_float(dtype)) return DType::f32;
  return DType::i64;
}

MixedFn addition(DType src, DType dst) {
  const auto narrow = [](DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; };
  return narrow(src) && narrow(dst) ? simd().mixed[static_cast<int>(isa::AluOp::add)][mixed_form(dst, src, dst)] : nullptr;
}

void accumulate(DType domain, void* to, const void* a, const void* b, int64_t n) {
  if (domain == DType::f32) {
    simd().f32[static_cast<int>(isa::AluOp::add)](static_cast<float*>(to), static_cast<const float*>(a),
                                                  static_cast<const float*>(b), static_cast<size_t>(n), Form::rows);
  } else if (domain == DType::f64) {
    for (int64_t i = 0; i < n; ++i)
      static_cast<double*>(to)[i] = static_cast<const double*>(a)[i] + static_cast<const double*>(b)[i];
  } else {
    for (int64_t i = 0; i < n; ++i)
      static_cast<uint64_t*>(to)[i] = static_cast<const uint64_t*>(a)[i] + static_cast<const uint64_t*>(b)[i];
  }
}

std::unique_ptr<Operation> make_copy(const Instruction& i, const Context& context) {
  if (i.accumulate) return std::make_unique<Accumulate>(i, context);
  return std::make_unique<Copy>(i, context);
}

std::unique_ptr<Operation> make_select(const Instruction& i, const Context& context) {
  return std::make_unique<Select>(i, context);
}

std::unique_ptr<Operation> make_memset(const Instruction& i, const Context& context) {
  return std::make_unique<Memset>(i, context);
}

}  // namespace opentrn::exec
