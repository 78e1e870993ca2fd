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

// Free sizes below this are cheaper gathered across partitions (and a per-partition scalar read as a row) than row by row.
constexpr int64_t kShortRow = 16;

bool is_bitwise(AluOp op) { return op >= AluOp::bitwise_and && op <= AluOp::arith_shift_right; }

struct Stage {
  int alu = 0;             // index into the table of the computation's type
  UnaryFn unary = nullptr; // when set, the stage has no second operand
  MixedFn mixed = nullptr; // when set, the stage reads or writes bf16 itself
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
    Staged staged[3];
    bool dense = rows_ > 0 && aligned(dst_at, alignment_[0]);
    for (int s = 0; s < sources_; ++s) {
      staged[s].operand = &src_[s];
      staged[s].at = src_[s].address(frame.registers);
      stage_if_overlapping(staged[s], dst_, dst_at, frame, s);
      dense &= staged[s].operand == &src_[s] && aligned(staged[s].at, alignment_[1 + s]);
    }
    T value[2] = {};
    const std::byte* tile_at[2] = {};
    for (int s = 0; s < 2; ++s) {
      if (!scalar_[s].is_tile()) value[s] = to_domain(scalar_[s].value(frame));
      else tile_at[s] = scalar_[s].tile.address(frame.registers);
    }
    if (dense) run_rows(frame, dst_at, staged, value, tile_at);
    else run_any(frame, dst_at, staged, value, tile_at);
    return true;
  }

 private:
  // One chunk through all stages: `source(s)` and `tile(s)` give the next n elements of a source or of a scalar that is
  // read as a row.
  template <typename Source, typename Tile>
  void compute(int64_t n, void* result, std::byte* between, const T* value, Source&& source, Tile&& tile) const {
    const void* from = source(0);
    for (int k = 0; k < stages_; ++k) {
      const Stage& stage = stage_[k];
      // Intermediate results stay out of dst, which may be a later stage's source.
      void* to = k + 1 == stages_ ? result : between;
      if (stage.unary) {
        stage.unary(static_cast<float*>(to), static_cast<const float*>(from), static_cast<size_t>(n));
      } else {
        const void* other;
        Form form = Form::rows;
        if (stage.source >= 0) {
          other = source(stage.source);
        } else if (scalar_[stage.scalar].is_tile() && !per_partition_) {
          other = tile(stage.scalar);
        } else {
          other = &value[stage.scalar];
          form = stage.reverse ? Form::value_row : Form::row_value;
        }
        const void* a = stage.reverse ? other : from;
        const void* b = stage.reverse ? from : other;
        if (stage.mixed) stage.mixed(to, a, b, static_cast<size_t>(n), form);
        else alu_[stage.alu](static_cast<T*>(to), static_cast<const T*>(a), static_cast<const T*>(b), static_cast<size_t>(n), form);
      }
      from = to;
    }
  }

  // Every operand is dense rows of the same length.
  void run_rows(Frame& frame, std::byte* dst_at, const Staged* staged, T* value, const std::byte* const* tile_at) const {
    Scratch::Buffer* buffers = frame.scratch->buffer;
    const std::byte* at[3];
    for (int s = 0; s < sources_; ++s) at[s] = staged[s].at;
    for (int64_t row = 0; row < rows_; ++row) {
      for (int s = 0; s < 2; ++s)
        if (tile_at[s]) value[s] = read_tile(s, tile_at[s] + row * scalar_[s].tile.partition_stride);
      for (int64_t done = 0; done < columns_; done += chunk_) {
        const int64_t n = std::min(columns_ - done, chunk_);
        std::byte* to = dst_at + done * dst_.size;
        compute(
            n, to_dst_ ? buffers[0].bytes : to, buffers[1].bytes, value,
            [&](int s) -> const void* {
              const std::byte* from = at[s] + done * src_[s].size;
              if (!from_src_[s]) return from;
              from_src_[s](from, buffers[2 + s].bytes, static_cast<size_t>(n));
              return buffers[2 + s].bytes;
            },
            [](int) -> const void* { return nullptr; });
        if (to_dst_) to_dst_(buffers[0].bytes, to, static_cast<size_t>(n));
      }
      dst_at += row_stride_[0];
      for (int s = 0; s < sources_; ++s) at[s] += row_stride_[1 + s];
    }
  }

  void run_any(Frame& frame, std::byte* dst_at, const Staged* staged, T* value, const std::byte* const* tile_at) const {
    Scratch::Buffer* buffers = frame.scratch->buffer;
    Output output(dst_, dst_at, to_dst_, buffers), row_output;
    Input input[3], tile_input[2];
    for (int s = 0; s < sources_; ++s) input[s] = Input(*staged[s].operand, staged[s].at, from_src_[s], buffers + 2 + 2 * s);
    for (int s = 0; s < 2; ++s)
      if (tile_at[s] && !per_partition_) {  // read chunk by chunk, while dst is written
        Staged tile{&broadcast_[s], const_cast<std::byte*>(tile_at[s])};
        stage_if_overlapping(tile, dst_, dst_at, frame, 3 + s);
        tile_input[s] = Input(*tile.operand, tile.at, from_tile_[s], buffers + 6 + 2 * s);
      }
    Reduction reduction;
    if (row_) reduction = Reduction(row_op_);
    if (row_) row_output = Output(row_, row_.address(frame.registers), to_row_, buffers + 8);

    const int64_t partitions = per_partition_ ? dst_.partitions : 1;
    const int64_t length = per_partition_ ? dst_.free : dst_.total;
    for (int64_t p = 0; p < partitions; ++p) {
      if (per_partition_) {
        for (int s = 0; s < 2; ++s)
          if (tile_at[s]) value[s] = read_tile(s, tile_at[s] + p * scalar_[s].tile.partition_stride);
      }
      if (row_) reduction.restart();
      for (int64_t done = 0; done < length;) {
        int64_t n = std::min(length - done, chunk_);
        if (!row_) {  // a reduction's blocks must start at multiples of their size
          n = direct_chunk(output.cursor(), n);
          for (int s = 0; s < sources_; ++s) n = direct_chunk(input[s].cursor(), n);
        }
        void* result = output.begin(n);
        compute(
            n, result, buffers[1].bytes, value, [&](int s) { return input[s].next(n); },
            [&](int s) { return tile_input[s].next(n); });
        if (row_) reduction.add(result, static_cast<size_t>(n));
        output.done(n);
        done += n;
      }
      if (row_) {
        *static_cast<float*>(row_output.begin(1)) = reduction.finish();
        row_output.done(1);
      }
    }
  }

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
    Stage stage;
    stage.alu = static_cast<int>(op);
    stage.source = source;
    stage.scalar = scalar;
    stage.reverse = reverse;
    push(stage);
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
    if constexpr (std::is_same_v<T, float>) fuse_conversions();
    plan_rows(i, context);
    bool converts = to_dst_ != nullptr;
    for (int s = 0; s < sources_; ++s) converts |= from_src_[s] != nullptr;
    if (converts) chunk_ = kChunk / 2;  // more buffers in the first-level cache at a time; whole blocks of a reduction
  }

  // Stages that read or write bf16 themselves instead of through a buffer of f32.
  void fuse_conversions() {
    for (int k = 0; k < stages_; ++k) {
      Stage& stage = stage_[k];
      if (stage.unary) continue;
      const bool last = k + 1 == stages_;
      DType a = k == 0 ? src_[0].dtype : DType::f32, b = stage.source >= 0 ? src_[stage.source].dtype : DType::f32;
      const DType to = last && !row_ ? dst_.dtype : DType::f32;
      const auto narrow = [](DType dtype) { return dtype == DType::bf16 || dtype == DType::f32; };
      if (!narrow(a) || !narrow(b) || !narrow(to)) continue;
      if (stage.reverse) std::swap(a, b);
      stage.mixed = simd().mixed[stage.alu][mixed_form(a, b, to)];
      if (!stage.mixed) continue;
      if (k == 0) from_src_[0] = nullptr;
      if (stage.source >= 0) from_src_[stage.source] = nullptr;
      if (last && !row_) to_dst_ = nullptr;
    }
  }

  void plan_rows(const Instruction& i, const Context& context) {
    if (row_ || (!per_partition_ && (scalar_[0].is_tile() || scalar_[1].is_tile()))) return;
    const Operand* all[4] = {&dst_, &src_[0], &src_[1], &src_[2]};
    bool merged = !per_partition_;  // all rows are one
    for (int o = 0; o < 1 + sources_; ++o) {
      isa::AccessPattern pattern = o == 0 ? i.dst : i.src[static_cast<size_t>(o - 1)];
      pattern.partitions = 1;
      const Operand one = context.operand(pattern);
      const Operand& operand = *all[o];
      if (operand.partitions != dst_.partitions || operand.free != dst_.free || one.ndim != 1 || !one.contiguous) return;
      alignment_[o] = std::min(operand.size, 8);
      row_stride_[o] = operand.partition_stride;
      if (operand.partitions > 1 && operand.partition_stride % alignment_[o] != 0) return;
      merged &= operand.ndim == 1 && operand.contiguous;
    }
    if (!merged && dst_.partitions > 1 && dst_.free < kShortRow) return;
    rows_ = merged ? 1 : dst_.partitions;
    columns_ = merged ? dst_.total : dst_.free;
  }

  Operand dst_, row_, src_[3];
  Operand broadcast_[2];  // a scalar tile as a row operand of dst's shape
  ScalarOperand scalar_[2];
  ConvertFn to_dst_ = nullptr, to_row_ = nullptr, from_src_[3] = {}, from_tile_[2] = {};
  BinaryFn<T> alu_[kAluOps];
  Stage stage_[3];
  int sources_ = 0, stages_ = 0;
  bool per_partition_ = false;
  int64_t chunk_ = kChunk;
  // Dense rows of the same length, dst first; 0 rows: the operands are not all such rows.
  int64_t rows_ = 0, columns_ = 0, row_stride_[4] = {}, alignment_[4] = {1, 1, 1, 1};
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
