// Writes one core's code of a program, kernel by kernel: loops, tiles from rotating pools, and instructions in
// program order. Semaphores are not written here: `end_kernel` inserts them (compiler/synchronize.h).
//
// A kernel starts with empty on-chip memory and ends with a barrier; what it passes on lies in HBM. Inside a kernel
// instructions are emitted as if executed one after the other; which engine and queue carry them out decides what
// overlaps. A tile is valid until the loop body that took it ends.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "isa/program.h"
#include "spec/chip.h"

namespace opentrn::compiler {

// constant + sum(coefficient * loop register)
class Index {
 public:
  Index(int64_t constant = 0) : constant_(constant) {}  // NOLINT: an integer is an index
  static Index of(int16_t reg) {
    Index i;
    i.terms_.push_back({reg, 1});
    return i;
  }
  int64_t constant() const { return constant_; }
  const SmallVector<isa::Term, 6>& terms() const { return terms_; }
  friend Index operator+(const Index& a, const Index& b);
  friend Index operator*(const Index& a, int64_t factor);

 private:
  int64_t constant_ = 0;
  SmallVector<isa::Term, 6> terms_;
};

struct Tile {
  isa::Memory memory = isa::Memory::none;
  int16_t pool = -1, slot = -1;
  int64_t bytes = 0;  // per partition
};

// Which engine triggers which transfers; a queue has one triggering engine.
struct Queue {
  isa::Engine engine = isa::Engine::sync;
  int8_t number = 0;
};
inline constexpr Queue kLoad{isa::Engine::sync, 0};         // HBM to SBUF, runs ahead of the computation
inline constexpr Queue kStore{isa::Engine::gpsimd, 1};      // SBUF to HBM, waits for the computation
inline constexpr Queue kStoreScalar{isa::Engine::scalar, 2};  // the same for kernels that compute on GpSimd
inline constexpr Queue kIndirect{isa::Engine::gpsimd, 3};   // gather and scatter: GpSimd builds the descriptors

class KernelBuilder {
 public:
  KernelBuilder(isa::Program& program, int core, const spec::Chip& chip);

  const spec::Chip& chip() const { return chip_; }
  isa::Program& program() { return program_; }
  int core() const { return core_; }
  void set_origin(int32_t origin) { origin_ = origin; }

  // ---- structure
  // body(i) with i = 0 .. count-1. No loop is written for a count of 0 (nothing) or 1.
  void loop(int64_t count, const std::function<void(Index)>& body);
  // Covers [0, extent) with blocks of `size`: body(start, block size), once for the full blocks (in a loop) and once
  // for the rest, when there is one. The second argument is the only thing that differs.
  void blocks(int64_t extent, int64_t size, const std::function<void(Index, int64_t)>& body);

  // ---- on-chip memory
  // A pool of `depth` slots of `bytes` per partition. SBUF: rounded up to 64 bytes; PSUM: to whole banks.
  // Throws Unsupported when the memory does not suffice (see free_bytes).
  int pool(const std::string& name, isa::Memory memory, int64_t bytes, int depth);
  int64_t free_bytes(isa::Memory memory) const;
  Tile take(int pool);

  // ---- operands
  // dims outermost first, strides in elements; `offset` in elements from the slot's start.
  isa::AccessPattern at(const Tile& tile, DType dtype, int64_t partitions, std::initializer_list<isa::Dim> dims,
                        const Index& offset = 0, int64_t first_partition = 0) const;
  isa::AccessPattern at(const Tile& tile, DType dtype, int64_t partitions, const SmallVector<isa::Dim, 4>& dims,
                        const Index& offset = 0, int64_t first_partition = 0) const;
  // `offset` in elements from the buffer's start.
  isa::AccessPattern hbm(int buffer, DType dtype, const Index& offset, int64_t partitions, int64_t partition_stride,
                         const SmallVector<isa::Dim, 4>& dims) const;

  // ---- instructions (the returned reference is valid until the next call)
  isa::Instruction& emit(isa::Opcode opcode, isa::Engine engine);
  isa::Instruction& dma(const isa::AccessPattern& dst, const isa::AccessPattern& src, Queue queue);
  isa::Instruction& dma_transpose(const isa::AccessPattern& dst, const isa::AccessPattern& src, Queue queue);
  isa::Instruction& copy(isa::Engine engine, const isa::AccessPattern& dst, const isa::AccessPattern& src);
  isa::Instruction& memset(isa::Engine engine, const isa::AccessPattern& dst, double value);
  // The same for every dtype: 64-bit types are filled by a row program on GpSimd.
  void fill(isa::Engine engine, const isa::AccessPattern& dst, const isa::Scalar& value);
  isa::Instruction& tensor_tensor(isa::Engine engine, const isa::AccessPattern& dst, const isa::AccessPattern& a,
                                  isa::AluOp op, const isa::AccessPattern& b);
  isa::Instruction& tensor_scalar(isa::Engine engine, const isa::AccessPattern& dst, const isa::AccessPattern& a,
                                  isa::AluOp op0, const isa::Scalar& s0, isa::AluOp op1 = isa::AluOp::none,
                                  const isa::Scalar& s1 = {});
  isa::Instruction& activation(const isa::AccessPattern& dst, isa::ActFn act, const isa::AccessPattern& src,
                               const isa::Scalar& scale = {}, const isa::Scalar& bias = {});
  isa::Instruction& reduce(const isa::AccessPattern& dst, isa::AluOp op, const isa::AccessPattern& src, int axes);
  isa::Instruction& matmul(const isa::AccessPattern& dst, const isa::AccessPattern& stationary,
                           const isa::AccessPattern& moving, bool accumulate);
  isa::Instruction& gpsimd(int kernel, const isa::AccessPattern& dst, std::initializer_list<isa::AccessPattern> src);
  int kernel(isa::GpsimdKernel kernel);  // adds a register program (or finds an equal one)

  // Inserts the semaphores of the kernel written since the last call and a barrier over all cores.
  // Every core of a program must end the same number of kernels.
  void end_kernel();
  // Hands the finished code to the program. The last kernel's barrier is dropped.
  void finish();

 private:
  isa::Program& program_;
  isa::CoreProgram code_;
  const int core_;
  const spec::Chip& chip_;
  int32_t origin_ = -1;
  size_t kernel_start_ = 0;
  int16_t loop_depth_ = 0;
  int64_t sbuf_used_ = 0, psum_used_ = 0;
};

}  // namespace opentrn::compiler
