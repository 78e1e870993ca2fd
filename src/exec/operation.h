// One decoded instruction: what is known before launch, and how it runs. Each family of opcodes has a maker in its own
// file (elementwise.cc, reduce.cc, copy.cc, tensor_engine.cc, indexed.cc, order.cc, register_program.cc).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/convert.h"
#include "exec/interpreter.h"
#include "exec/launch_values.h"
#include "exec/operand.h"
#include "exec/simd.h"
#include "isa/program.h"

namespace opentrn::exec {

// Working memory of one thread, kept between runs.
struct Scratch {
  static constexpr int kBuffers = 10;
  // Room for kChunk elements of 16 bytes each; the odd lines keep buffers out of each other's cache sets.
  struct alignas(64) Buffer {
    std::byte bytes[kChunk * 16 + 192];
  };
  Buffer buffer[kBuffers];
  std::vector<std::byte> stage[5];   // whole operands, where source and destination overlap
  Operand staged[5];                 // how those lie there
  std::vector<float> packed[2];      // nc_matmul; tensor_reduce over columns
  std::vector<uint64_t> registers;   // gpsimd_kernel
};

// What an operation sees of the running core.
struct Frame {
  Registers registers;
  const Value* scalars = nullptr;
  Scratch* scratch = nullptr;
  std::string fault;  // set when run returns false
};

class Operation {
 public:
  virtual ~Operation() = default;
  // False: a fault of the user's data, described in frame.fault.
  virtual bool run(Frame& frame) const = 0;
};

// What decoding needs to know.
struct Context {
  const isa::Program& program;
  const isa::CoreProgram& core;
  int64_t sbuf_pitch, psum_pitch;

  Operand operand(const isa::AccessPattern& pattern) const;
};

// A scalar operand: immediate, launch argument, or one value per partition.
struct ScalarOperand {
  isa::Scalar::Kind kind = isa::Scalar::Kind::none;
  Value immediate;
  int argument = -1;
  Operand tile;

  ScalarOperand() = default;
  ScalarOperand(const isa::Scalar& scalar, const Context& context);
  explicit operator bool() const { return kind != isa::Scalar::Kind::none; }
  bool is_tile() const { return kind == isa::Scalar::Kind::tile; }
  // Immediate or argument; 0 for none.
  Value value(const Frame& frame) const {
    return kind == isa::Scalar::Kind::argument ? frame.scalars[argument] : immediate;
  }
};

using Maker = std::unique_ptr<Operation> (*)(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_elementwise(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_copy(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_select(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_memset(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_reduce(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_partition_reduce(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_scan(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_bn_stats(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_bn_aggr(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_max8(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_find_index8(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_match_replace8(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_iota(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_affine_select(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_matmul(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_transpose(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_gather(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_scatter(const isa::Instruction&, const Context&);
std::unique_ptr<Operation> make_register_program(const isa::Instruction&, const Context&);

// ---- streams: operands as a sequence of dense chunks in a computation's type ------------------------------

// Bytes of the dtype an operation computes in equal its alignment; pointers handed out are aligned to it.
inline bool aligned(const void* at, int64_t size) { return (reinterpret_cast<uintptr_t>(at) & (size - 1)) == 0; }

// The longest chunk that keeps the stream inside one dense run, for runs long enough to be worth it.
inline int64_t direct_chunk(const Cursor& cursor, int64_t n) {
  if (cursor.operand->contiguous && cursor.operand->inner() >= 64 && cursor.run() < n) return cursor.run();
  return n;
}

class Input {
 public:
  // `convert` null: the operand's own type. `buffers` are two consecutive scratch buffers.
  Input() {}
  Input(const Operand& operand, std::byte* at, ConvertFn convert, Scratch::Buffer* buffers)
      : cursor_(operand, at), convert_(convert), buffers_(buffers) {}
  const Cursor& cursor() const { return cursor_; }
  // The next n <= kChunk elements, dense and aligned.
  const void* next(int64_t n) {
    const void* from;
    const Operand& operand = *cursor_.operand;
    if (operand.contiguous && cursor_.run() >= n && aligned(cursor_.at(), std::min(operand.size, 8))) {
      from = cursor_.at();
      cursor_.skip(n);
    } else {
      gather(cursor_, buffers_[0].bytes, n);
      from = buffers_[0].bytes;
    }
    if (!convert_) return from;
    convert_(from, buffers_[1].bytes, static_cast<size_t>(n));
    return buffers_[1].bytes;
  }

 private:
  Cursor cursor_;
  ConvertFn convert_;
  Scratch::Buffer* buffers_;
};

class Output {
 public:
  Output() {}
  Output(const Operand& operand, std::byte* at, ConvertFn convert, Scratch::Buffer* buffers)
      : cursor_(operand, at), convert_(convert), buffers_(buffers) {}
  const Cursor& cursor() const { return cursor_; }
  // Where to write the next n elements; then call done.
  void* begin(int64_t n) {
    const Operand& operand = *cursor_.operand;
    dense_ = operand.contiguous && cursor_.run() >= n && aligned(cursor_.at(), std::min(operand.size, 8));
    return dense_ && !convert_ ? static_cast<void*>(cursor_.at()) : buffers_[0].bytes;
  }
  void done(int64_t n) {
    if (dense_) {
      if (convert_) convert_(buffers_[0].bytes, cursor_.at(), static_cast<size_t>(n));
      cursor_.skip(n);
    } else if (convert_) {
      convert_(buffers_[0].bytes, buffers_[1].bytes, static_cast<size_t>(n));
      scatter(cursor_, buffers_[1].bytes, n);
    } else {
      scatter(cursor_, buffers_[0].bytes, n);
    }
  }

 private:
  Cursor cursor_;
  ConvertFn convert_;
  Scratch::Buffer* buffers_;
  bool dense_ = false;
};

// A source that `dst` would overwrite while it is still needed is copied first and then read from the copy.
struct Staged {
  const Operand* operand;
  std::byte* at;
};
void stage(Staged& source, Frame& frame, int slot);
inline void stage_if_overlapping(Staged& source, const Operand& dst, const std::byte* dst_at, Frame& frame, int slot) {
  if (source.operand->memory == dst.memory && overlaps_unequally(dst, dst_at, *source.operand, source.at))
    stage(source, frame, slot);
}

// What `dst += src` computes in for a destination's type (f32, f64 or i64), and the addition itself.
DType accumulation_type(DType dtype);
void accumulate(DType domain, void* to, const void* a, const void* b, int64_t n);
// `dst + src` in dst's type without conversions before and after; null for types other than f32 and bf16, and for f32 alone.
MixedFn addition(DType src, DType dst);

// The integer type of the same size, for operations on raw bits.
DType raw_unsigned(DType dtype);

}  // namespace opentrn::exec
