// A program: what one logical NeuronCore executes, one instruction list per physical core.
// The instructions are those of the public NKI ISA; every operand is an access pattern.
//
// Order and synchronisation
//   A core's code is one list in *program order*. Each instruction belongs to an engine; an engine
//   executes its own instructions in that order, asynchronously to the other engines. Loops are
//   replicated in every engine that has instructions in them. A DMA instruction is triggered by its
//   engine (which evaluates its waits) and carried out by a queue; a queue is first in, first out, and
//   completes in order. Engines and queues synchronise through semaphores only: a `post` adds to a
//   semaphore when the instruction has completed, a `wait` blocks the engine until the semaphore is at
//   least `count` and then subtracts it. Semaphores start at `initial`. Within an engine and within a
//   queue instructions complete in order.
//   Executing the list from top to bottom is always a legal order; the verifier proves that every pair
//   of conflicting accesses is ordered the same way by engine order, queue order and semaphores.
//
// On-chip memory
//   SBUF and PSUM operands name a *pool*: `depth` slots of `bytes` per partition at a fixed offset.
//   `rotate` takes the pool's next slot (slots are used round robin) and stores its number in a slot
//   register; operands refer to that register, so a loop body is written once for all buffers of a
//   rotation. Rotations are per core and in program order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/small_vector.h"

namespace opentrn::isa {

enum class Engine : uint8_t { tensor, vector, scalar, gpsimd, sync };
inline constexpr int kEngines = 5;

enum class Memory : uint8_t { none, hbm, sbuf, psum };

// One free dimension: `count` elements, `stride` elements apart (may be 0 or negative).
struct Dim {
  int64_t stride = 1;
  int32_t count = 1;
  bool operator==(const Dim&) const = default;
};

// Adds `bytes` times the loop register to an address.
struct Term {
  int16_t reg = 0;
  int64_t bytes = 0;
  bool operator==(const Term&) const = default;
};

// Where an operand's elements are. Elements are ordered partition first, then the free dimensions,
// outermost first. Offsets in bytes, strides in elements of `dtype`.
struct AccessPattern {
  Memory memory = Memory::none;
  DType dtype = DType::f32;
  int16_t buffer = -1;          // hbm: index into Program::buffers; sbuf, psum: index into CoreProgram::pools
  int16_t slot = -1;            // sbuf, psum: slot register that a `rotate` wrote
  int16_t partition = 0;        // first partition (sbuf, psum)
  int16_t partitions = 1;       // number of partitions: at most the chip's in sbuf and psum, any number in hbm
  int64_t offset = 0;           // hbm: from the buffer's start; sbuf, psum: from the slot's start in a partition
  int64_t partition_stride = 0; // hbm only: elements from one partition's data to the next
  SmallVector<Dim, 4> dims;     // free dimensions; none means one element per partition
  SmallVector<Term, 6> terms;   // loop-dependent part of the address

  int64_t free_elements() const {
    int64_t n = 1;
    for (const Dim& d : dims) n *= d.count;
    return n;
  }
  int64_t elements() const { return free_elements() * partitions; }
  int64_t bytes() const { return elements() * size_of(dtype); }
  explicit operator bool() const { return memory != Memory::none; }
  bool operator==(const AccessPattern&) const = default;
};

enum class Opcode : uint8_t {
  // Tensor engine
  nc_matmul,     // dst[M,N] (+)= stationary[K,M]^T @ moving[K,N]; src0 stationary, src1 moving (SBUF), dst PSUM f32
  nc_transpose,  // dst[F,P] = src0[P,F]^T; tensor: up to 128x128 SBUF->PSUM; vector: up to 32x32
  // Scalar engine
  activation,    // dst = act(src0 * scale + bias); optional row result (reduce_op over the free elements) in dst1
  // Vector engine (some also scalar or gpsimd)
  tensor_tensor,           // dst = src0 op0 src1
  tensor_scalar,           // dst = (src0 op0 s0) op1 s1; reverse0/1 swap the operands; op1 may be `none`
  scalar_tensor_tensor,    // dst = (src0 op0 s0) op1 src1
  tensor_copy,             // dst = src0, converted
  tensor_copy_predicated,  // dst = src0 where src1 (predicate, non-zero) holds, unchanged elsewhere; reverse0 inverts
  select,                  // dst = src1 where src0 (predicate) holds, else src2  (select_reduce without reduction)
  tensor_reduce,           // dst[P, outer] = op0 over the trailing `axes` free dimensions of src0; negate
  tensor_tensor_scan,      // along the last free dim: dst[i] = (src0[i] op0 dst[i-1]) op1 src1[i]; dst[-1] = s0
  reciprocal,              // dst = 1 / src0
  bn_stats,                // dst[P,6] from src0
  bn_aggr,                 // dst[P,2] (mean, variance) from src0 (bn_stats tuples)
  max8,                    // dst[P,8] = the 8 largest of src0's free elements, descending
  nc_find_index8,          // dst[P,8] u32 = positions in src0 of the 8 values src1[P,8]; equal values: successive positions
  nc_match_replace8,       // dst = src0 with the first occurrence of each of src1[P,8] replaced by s0 (immediate)
  memset,                  // dst = s0 (immediate or argument)
  // GpSimd
  iota,                     // dst i32 = s0 + channel_multiplier * partition + sum(pattern[d].stride * index[d])
  affine_select,            // dst = src0 where (s0 + channel_multiplier*partition + pattern.index) op0 0, else s1
  tensor_partition_reduce,  // dst[1,F] = op0 over the partitions of src0[P,F]
  gpsimd_kernel,            // the register program `kernel` over at most four operands (our addition)
  // DMA
  dma_copy,       // dst = src0, converted (through f32 where the types differ); accumulate: dst += src0
  dma_transpose,  // dst[F,P] = src0[P,F]^T for one free dimension, types of 2 or 4 bytes; an HBM source may have more
                  // than 128 rows (P up to 512, so that a transfer is long enough for the documented 90 % of the rate)
  dma_gather,     // dst[p,j,:] = src0.row(src1[p,j]); see `row_bytes`, `rows`
  dma_scatter,    // dst.row(src1[p,j]) = src0[p,j,:]; accumulate adds, rows in order of (p, j)
  // Sequencer
  event_semaphore,  // nothing but its waits and posts
  rotate,           // slot register `reg` = next slot of pool `pool`
  loop_begin,       // loop register `reg` counts 0 .. count-1
  loop_end,
  barrier,          // all engines and queues of all cores of the program have completed everything before
};

enum class AluOp : uint8_t {
  none, add, subtract, mult, divide, max, min, pow, mod, abs_max,
  is_equal, not_equal, is_gt, is_ge, is_lt, is_le,
  logical_and, logical_or, logical_xor,
  bitwise_and, bitwise_or, bitwise_xor, shift_left, shift_right, arith_shift_right,
  average, bypass,
};

enum class ActFn : uint8_t {
  copy, exp, log, sqrt, rsqrt, square, reciprocal, abs, sign, sigmoid, tanh, relu, gelu, gelu_tanh, silu, erf,
  softplus, sin, arctan, log1p, expm1, floor, ceil, cos, erfc,
};

// A scalar operand of tensor_scalar, scalar_tensor_tensor, activation (scale, bias), memset, iota, affine_select.
struct Scalar {
  enum class Kind : uint8_t { none, immediate, argument, tile } kind = Kind::none;
  double value = 0;      // immediate
  int16_t argument = -1; // index into Program::scalars: a launch-time value held in a sequencer register
  AccessPattern tile;    // one value per partition ([P, 1] in SBUF or PSUM)
  static Scalar imm(double v) { Scalar s; s.kind = Kind::immediate; s.value = v; return s; }
  static Scalar arg(int index) { Scalar s; s.kind = Kind::argument; s.argument = static_cast<int16_t>(index); return s; }
  static Scalar of(const AccessPattern& ap) { Scalar s; s.kind = Kind::tile; s.tile = ap; return s; }
  explicit operator bool() const { return kind != Kind::none; }
  bool operator==(const Scalar&) const = default;
};

struct Signal {
  int16_t semaphore = -1;
  int32_t count = 1;
  bool operator==(const Signal&) const = default;
};

struct Instruction {
  Opcode opcode = Opcode::event_semaphore;
  Engine engine = Engine::sync;
  int8_t queue = -1;       // DMA: queue number, 0 .. kMaxQueues-1
  AluOp op0 = AluOp::none, op1 = AluOp::none;
  ActFn act = ActFn::copy;
  bool reverse0 = false, reverse1 = false;
  bool accumulate = false; // nc_matmul: add to PSUM; dma_copy, dma_scatter: add to dst
  bool negate = false;     // tensor_reduce
  bool skip_out_of_bounds = false;  // dma_gather, dma_scatter: skip rows out of range instead of raising an error
  int8_t axes = 1;         // tensor_reduce: number of trailing free dimensions reduced
  int16_t reg = -1;        // loop register or slot register written
  int16_t pool = -1;       // rotate
  int16_t kernel = -1;     // gpsimd_kernel: index into Program::kernels
  int32_t origin = -1;     // id of the graph node this came from; not part of equality or of the cache key
  int64_t count = 0;       // loop_begin: trip count (at least 1)
  int64_t rows = 0;        // dma_gather, dma_scatter: number of rows that may be addressed; an index outside
                           // [0, rows) is an error unless skip_out_of_bounds
  int64_t row_bytes = 0;   // dma_gather, dma_scatter: bytes from one row to the next in HBM
  int64_t channel_multiplier = 0;   // iota, affine_select
  SmallVector<Dim, 4> pattern;      // iota, affine_select: strides are values added per index
  SmallVector<Term, 4> pattern_terms;  // iota, affine_select, gpsimd_kernel `base`: value += bytes * register
  Scalar s0, s1;           // activation: s0 scale, s1 bias
  AccessPattern dst, dst1; // dst1: second result (activation's row reduction, gpsimd_kernel's second output)
  SmallVector<AccessPattern, 3> src;
  SmallVector<Signal, 8> waits, posts;
};

bool is_dma(Opcode opcode);
std::string_view name_of(Opcode opcode);
std::string_view name_of(AluOp op);
std::string_view name_of(ActFn act);
std::string_view name_of(Engine engine);

inline constexpr int kMaxQueues = 16;

// ---- gpsimd_kernel -------------------------------------------------------------------------------
// A register program of the GpSimd engine, executed once per element: `prologue` before each row
// (the innermost free dimension), `body` for each element of the row, `epilogue` after it. Registers keep
// their values inside a row. Operand k is src[k] for k < number of sources, then dst, then dst1. All operands
// have the same outer dimensions; an operand used in prologue or epilogue only has an innermost count of 1.
enum class KernelOp : uint8_t {
  load,     // dst = operand a's element, converted to `type`
  store,    // operand a's element = register b
  constant, // dst = imm (floats) or imm_int (integers)
  argument, // dst = launch scalar imm_int
  index,    // dst = base + position in the flattened [partition, free...] iteration of this instruction,
            //       base = s0 + pattern_terms, strides from `pattern` and channel_multiplier when given
  column,   // dst = position inside the row, 0 ..
  move, add, sub, mul, div, rem, floor_div, mod, min, max, pow, fma,
  mul_hi,   // high half of the product (u32, i32, u64)
  bit_and, bit_or, bit_xor, bit_not, shl, shr, sar,
  eq, ne, lt, le, gt, ge,  // operands of `type`; the result is 0 or 1 in the same type
  select,   // dst = a != 0 ? b : c
  neg, abs, sign, floor, ceil, round, trunc, sqrt, rsqrt, exp, log, log2, log10, log1p, expm1, exp2,
  sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh, erf, erfc, erfinv, lgamma, digamma,
  atan2, fmod, hypot, copysign, nextafter, is_nan, is_inf,
  convert,  // dst = a converted from `from` to `type` (C++ semantics, saturating from float to int)
  bitcast,  // dst = a's bits
};

enum class KernelType : uint8_t { i32, u32, i64, u64, f32, f64 };

struct KernelInstruction {
  KernelOp op = KernelOp::move;
  KernelType type = KernelType::f32;
  KernelType from = KernelType::f32;  // convert, bitcast
  uint8_t dst = 0, a = 0, b = 0, c = 0;  // register numbers below kKernelRegisters; load, store: a is the operand
  double imm = 0;
  int64_t imm_int = 0;
  bool operator==(const KernelInstruction&) const = default;
};

inline constexpr int kKernelRegisters = 64;

struct GpsimdKernel {
  std::string name;
  std::vector<KernelInstruction> prologue, body, epilogue;
  bool operator==(const GpsimdKernel&) const = default;
};

// ---- Program -------------------------------------------------------------------------------------
struct Pool {
  std::string name;
  Memory memory = Memory::sbuf;
  int64_t offset = 0;   // first byte in each partition
  int64_t bytes = 0;    // per slot and partition
  int32_t depth = 1;    // number of slots
  bool operator==(const Pool&) const = default;
};

struct Semaphore {
  std::string name;
  int32_t initial = 0;
  bool operator==(const Semaphore&) const = default;
};

struct CoreProgram {
  std::vector<Pool> pools;
  std::vector<Semaphore> semaphores;
  std::vector<Instruction> code;
  int16_t loop_registers = 0;
  int16_t slot_registers = 0;
};

struct Buffer {
  enum class Kind : uint8_t { input, output, scratch, constant } kind = Kind::input;
  std::string name;
  int64_t bytes = 0;         // extent that the program may touch, from the address given at launch
  int32_t alias = -1;        // index of an earlier buffer that is the same memory (an output written in place)
  std::vector<std::byte> data;  // constant
};

struct ScalarArgument {
  std::string name;
  DType dtype = DType::f32;  // type the launch value is converted to: f32, f64, i32 or i64
};

struct Program {
  static constexpr uint32_t kVersion = 1;
  std::string name;
  std::string chip = "trn2";
  std::vector<Buffer> buffers;      // inputs, then outputs, in the graph's order; then scratch and constants
  std::vector<ScalarArgument> scalars;
  std::vector<GpsimdKernel> kernels;
  std::vector<CoreProgram> cores;   // 1 (LNC=1) or 2 (LNC=2)
  int64_t model_flops = 0;          // 2*M*N*K of the graph's dot operations (without padding or transposes)

  int64_t scratch_bytes() const;    // sum over scratch buffers, each rounded up to 512
};

}  // namespace opentrn::isa
