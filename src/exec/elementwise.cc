// tensor_tensor, tensor_scalar, scalar_tensor_tensor, activation and reciprocal: a short chain of stages over chunks
// that stay in the first-level cache, in f32 or (bitwise operations, integers on GpSimd) in 32-bit integers.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "exec/operation.h"
#include "exec/reduction.h"

namespace opentrn::exec {
namespace {

using isa::ActFn;
using isa::AluOp;
using isa::Instruction;
using isa::Opcode;

// Free sizes below this are cheaper with a per-partition scalar read as a row than row by row.
constexpr int64_t kShortRow = 16;

bool is_bitwise(AluOp op) { return op >= AluOp::bitwise_and && op <= AluOp::arith_shift_right; }

struct Stage {
  int alu = 0;             // index into the table of the computation's type
  UnaryFn unary = nullptr; // when set, the stage has no second operand
  int source = -1;         // second operand: a source, or
  int scalar = -1;         // a scalar
  bool reverse = false;    // second operand first
};

template <typename T>
class Elementwise final : public Operation {
 public:
  Elementwise(const Instruction& i, const Context& context, DType domain, bool raw, const BinaryFn<T>* alu) {
    const auto conversion = [&](DType from) { return convert_fn(raw ? raw_unsigned(from) : from, domain); };
    dst_ = context.operand(i.dst);
    to_dst_ = convert_fn(domain, raw ? raw_unsigned(dst_.dtype) : dst_.dtype);
    for (const isa::AccessPattern& pattern : i.src) {
      src_[sources_] = context.operand(pattern);
      from_src_[sources_] = conversion(pattern.dtype);
      ++sources_;
    }
    scalar_[0] = ScalarOperand(i.s0, context);
    scalar_[1] = ScalarOperand(i.s1, context);
    for (int s = 0; s < 2; ++s)
      if (scalar_[s].is_tile()) from_tile_[s] = conversion(scalar_[s].tile.dtype);
    std::copy_n(alu, kAluOps, alu_);
    build(i, context);
  }

  bool run(Frame& frame) const override {
    if (dst_.total == 0) return true;
    std::byte* dst_at = dst_.address(frame.registers);
    Scratch::Buffer* buffers = frame.scratch->buffer;
    Output output(dst_, dst_at, to_dst_, buffers);
    Staged staged[3];
    Input input[3];
    for (int s = 0; s < sources_; ++s) {
      staged[s].operand = &src_[s];
      staged[s].at = src_[s].address(frame.registers);
      stage_if_overlapping(staged[s], dst_, dst_at, frame, s);
      input[s] = Input(*staged[s].operand, staged[s].at, from_src_[s], buffers + 2 + 2 * s);
    }
    T value[2] = {};
    const std::byte* tile_at[2] = {};
    Input tile_input[2];
    for (int s = 0; s < 2; ++s) {
      if (!scalar_[s].is_tile()) {
        value[s] = to_domain(scalar_[s].value(frame));
      } else {
        tile_at[s] = scalar_[s].tile.address(frame.registers);
        if (!per_partition_) tile_input[s] = Input(broadcast_[s], const_cast<std::byte*>(tile_at[s]), from_tile_[s], buffers + 6 + 2 * s);
      }
    }
    Output row_output;
    Reduction reduction;
    if (row_) reduction = Reduction(row_op_);
    if (row_) row_output = Output(row_, row_.address(frame.registers), to_row_, buffers + 8);

    const int64_t partitions = per_partition_ ? dst_.partitions : 1;
    const int64_t length = per_partition_ ? dst_.free : dst_.total;
    for (int64_t p = 0; p < partitions; ++p) {
      if (per_partition_) {
        for (int s = 0; s < 2; ++s)
          if (scalar_[s].is_tile()) value[s] = read_tile(s, tile_at[s] + p * scalar_[s].tile.partition_stride);
      }
      if (row_) reduction.restart();
      for (int64_t done = 0; done < length;) {
        int64_t n = std::min(length - done, kChunk);
        if (!row_) {  // a reduction's blocks must start at multiples of their size
          n = direct_chunk(output.cursor(), n);
          for (int s = 0; s < sources_; ++s) n = direct_chunk(input[s].cursor(), n);
        }
        T* result = static_cast<T*>(output.begin(n));
        // Intermediate results stay out of dst, which may be a later stage's source.
        T* between = reinterpret_cast<T*>(buffers[1].bytes);
        const T* from = static_cast<const T*>(input[0].next(n));
        for (int k = 0; k < stages_; ++k) {
          const Stage& stage = stage_[k];
          T* to = k + 1 == stages_ ? result : between;
          if (stage.unary) {
            if constexpr (std::is_same_v<T, float>) stage.unary(to, from, static_cast<size_t>(n));
          } else {
            const T* other;
            Form form = Form::rows;
            if (stage.source >= 0) {
              other = static_cast<const T*>(input[stage.source].next(n));
            } else if (scalar_[stage.scalar].is_tile() && !per_partition_) {
              other = static_cast<const T*>(tile_input[stage.scalar].next(n));
            } else {
              other = &value[stage.scalar];
              form = stage.reverse ? Form::value_row : Form::row_value;
            }
            alu_[stage.alu](to, stage.reverse ? other : from, stage.reverse ? from : other, static_cast<size_t>(n), form);
          }
          from = to;
        }
        if constexpr (std::is_same_v<T, float>)
          if (row_) reduction.add(result, static_cast<size_t>(n));
        output.done(n);
        done += n;
      }
      if constexpr (std::is_same_v<T, float>) {
        if (row_) {
          *static_cast<float*>(row_output.begin(1)) = reduction.finish();
          row_output.done(1);
        }
      }
    }
    return true;
  }

 private:
  static T to_domain(const Value& value) {
    if constexpr (std::is_same_v<T, float>) return static_cast<float>(value.real);
    return static_cast<T>(value.integer);
  }

  T read_tile(int s, const std::byte* at) const {
    T value;
    if (!from_tile_[s]) {
      std::memcpy(&value, at, sizeof(T));
    } else {
      alignas(8) std::byte element[8];
      std::memcpy(element, at, static_cast<size_t>(scalar_[s].tile.size));
      from_tile_[s](element, &value, 1);
    }
    return value;
  }

  void push(Stage stage) { stage_[stages_++] = stage; }
  void push_alu(AluOp op, int source, int scalar, bool reverse) {
    if (!alu_[static_cast<int>(op)])
      throw Unsupported("ALU operation " + std::string(isa::name_of(op)) + " in this element type (exec/elementwise.cc)");
    push({static_cast<int>(op), nullptr, source, scalar, reverse});
  }
  void push_act(ActFn act) {
    Stage stage;
    stage.unary = simd().act[static_cast<int>(act)];
    push(stage);
  }

  void build(const Instruction& i, const Context& context) {
    switch (i.opcode) {
      case Opcode::tensor_tensor: push_alu(i.op0, 1, -1, i.reverse0); break;
      case Opcode::tensor_scalar:
        push_alu(i.op0, -1, 0, i.reverse0);
        if (i.op1 != AluOp::none) push_alu(i.op1, -1, 1, i.reverse1);
        break;
      case Opcode::scalar_tensor_tensor:
        push_alu(i.op0, -1, 0, i.reverse0);
        push_alu(i.op1, 1, -1, i.reverse1);
        break;
      case Opcode::reciprocal: push_act(ActFn::reciprocal); break;
      default:  // activation
        if (scalar_[0] && !(i.s0.kind == isa::Scalar::Kind::immediate && i.s0.value == 1)) push_alu(AluOp::mult, -1, 0, false);
        if (scalar_[1]) push_alu(AluOp::add, -1, 1, false);
        if (i.act != ActFn::copy || stages_ == 0) push_act(i.act);
        if (i.dst1) {
          row_ = context.operand(i.dst1);
          to_row_ = convert_fn(DType::f32, row_.dtype);
          row_op_ = i.op0 != AluOp::none ? i.op0 : i.op1 != AluOp::none ? i.op1 : AluOp::add;
        }
    }
    const bool has_tile = scalar_[0].is_tile() || scalar_[1].is_tile();
    per_partition_ = static_cast<bool>(row_) || (has_tile && dst_.free >= kShortRow);
    for (int s = 0; s < 2; ++s) {
      if (!scalar_[s].is_tile()) continue;
      broadcast_[s] = scalar_[s].tile;
      const int64_t count[2] = {dst_.partitions, dst_.free}, stride[2] = {scalar_[s].tile.partition_stride, 0};
      set_dims(broadcast_[s], count, stride, 2);
    }
  }

  Operand dst_, row_, src_[3];
  Operand broadcast_[2];  // a scalar tile as a row operand of dst's shape
  ScalarOperand scalar_[2];
  ConvertFn to_dst_ = nullptr, to_row_ = nullptr, from_src_[3] = {}, from_tile_[2] = {};
  BinaryFn<T> alu_[kAluOps];
  Stage stage_[3];
  int sources_ = 0, stages_ = 0;
  bool per_partition_ = false;
  AluOp row_op_ = AluOp::add;
};

bool fits_32_bits(DType dtype) { return dtype == DType::boolean || (is_integer(dtype) && size_of(dtype) <= 4); }

}  // namespace

std::unique_ptr<Operation> make_elementwise(const Instruction& i, const Context& context) {
  const bool arithmetic = i.opcode == Opcode::tensor_tensor || i.opcode == Opcode::tensor_scalar ||
                          i.opcode == Opcode::scalar_tensor_tensor;
  const bool bitwise = arithmetic && (is_bitwise(i.op0) || is_bitwise(i.op1));
  bool integers = arithmetic && i.engine == isa::Engine::gpsimd;
  bool all_unsigned = true, any_float = is_float(i.dst.dtype);
  for (const isa::AccessPattern& pattern : i.src) {
    integers &= fits_32_bits(pattern.dtype);
    all_unsigned &= !is_signed(pattern.dtype);
    any_float |= is_float(pattern.dtype);
    if (bitwise && size_of(pattern.dtype) > 4)
      throw Unsupported("bitwise " + std::string(isa::name_of(i.opcode)) + " on " + std::string(name_of(pattern.dtype)) +
                        ": 64-bit types are for gpsimd_kernel");
  }
  for (const isa::Scalar* scalar : {&i.s0, &i.s1}) {
    if (scalar->kind == isa::Scalar::Kind::tile) integers &= fits_32_bits(scalar->tile.dtype);
    // A fraction compared or multiplied with integers is not an integer operation.
    if (scalar->kind == isa::Scalar::Kind::immediate) integers &= std::trunc(scalar->value) == scalar->value;
  }
  for (const AluOp op : {i.op0, i.op1})
    if (op == AluOp::divide || op == AluOp::average || op == AluOp::pow) integers &= !is_float(i.dst.dtype);
  if (!bitwise && !integers) return std::make_unique<Elementwise<float>>(i, context, DType::f32, false, simd().f32);
  // Raw bits: floats, and logical shifts, which must not see a narrow type's sign extension.
  const bool raw = bitwise && (any_float || i.op0 == AluOp::shift_right || i.op1 == AluOp::shift_right);
  if (raw || (all_unsigned && !(i.op0 == AluOp::arith_shift_right || i.op1 == AluOp::arith_shift_right)))
    return std::make_unique<Elementwise<uint32_t>>(i, context, DType::u32, raw, simd().u32);
  return std::make_unique<Elementwise<uint32_t>>(i, context, DType::i32, false, simd().i32);
}

}  // namespace opentrn::exec
