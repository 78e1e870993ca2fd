#include "isa/verify_operands.h"

#include <algorithm>

#include <fmt/format.h>

#include "isa/access.h"
#include "isa/names.h"
#include "isa/verify_kernel.h"

namespace opentrn::isa {
namespace {

constexpr uint8_t bit(Engine engine) { return static_cast<uint8_t>(1u << static_cast<int>(engine)); }
constexpr uint8_t kTensor = bit(Engine::tensor), kVector = bit(Engine::vector), kScalar = bit(Engine::scalar),
                  kGpsimd = bit(Engine::gpsimd), kSync = bit(Engine::sync);

// What an opcode needs: engines that have it (facts/hardware.md 2.1, 2.6), number of sources (-1: any), whether it
// takes a second result, and which scalars: 'i' immediate or argument, 't' also a tile, '-' none; upper case: required.
struct Rule {
  uint8_t engines;
  int8_t sources;
  bool second_result;
  char s0, s1;
};

Rule rule(Opcode opcode) {
  switch (opcode) {
    case Opcode::nc_matmul: return {kTensor, 2, false, '-', '-'};
    case Opcode::nc_transpose: return {kTensor | kVector, 1, false, '-', '-'};
    case Opcode::activation: return {kScalar, 1, true, 't', 't'};
    case Opcode::tensor_tensor: return {kVector | kGpsimd, 2, false, '-', '-'};
    case Opcode::tensor_scalar: return {kVector | kScalar | kGpsimd, 1, false, 'T', 't'};
    case Opcode::scalar_tensor_tensor: return {kVector, 2, false, 'T', '-'};
    case Opcode::tensor_copy: return {kVector | kScalar | kGpsimd, 1, false, '-', '-'};
    case Opcode::tensor_copy_predicated: return {kVector, 2, false, '-', '-'};
    case Opcode::select: return {kVector, 3, false, '-', '-'};
    case Opcode::tensor_reduce: return {kVector, 1, false, '-', '-'};
    case Opcode::tensor_tensor_scan: return {kVector, 2, false, 'T', '-'};
    case Opcode::reciprocal: return {kVector, 1, false, '-', '-'};
    case Opcode::bn_stats: return {kVector, 1, false, '-', '-'};
    case Opcode::bn_aggr: return {kVector, 1, false, '-', '-'};
    case Opcode::max8: return {kVector, 1, false, '-', '-'};
    case Opcode::nc_find_index8: return {kVector, 2, false, '-', '-'};
    case Opcode::nc_match_replace8: return {kVector, 2, false, 'I', '-'};
    case Opcode::memset: return {kVector | kGpsimd, 0, false, 'I', '-'};
    case Opcode::iota: return {kGpsimd, 0, false, 'i', '-'};
    case Opcode::affine_select: return {kGpsimd, 1, false, 'i', 'I'};
    case Opcode::tensor_partition_reduce: return {kGpsimd, 1, false, '-', '-'};
    case Opcode::gpsimd_kernel: return {kGpsimd, -1, true, 'i', '-'};
    case Opcode::dma_copy:
    case Opcode::dma_transpose: return {kVector | kScalar | kGpsimd | kSync, 1, false, '-', '-'};
    case Opcode::dma_gather:
    case Opcode::dma_scatter: return {kGpsimd, 2, false, '-', '-'};
    default: return {kTensor | kVector | kScalar | kGpsimd | kSync, 0, false, '-', '-'};
  }
}

std::string engines_of(uint8_t set) {
  std::string text;
  for (int e = 0; e < kEngines; ++e)
    if (set >> e & 1) (text += text.empty() ? "" : ", ") += name_of(static_cast<Engine>(e));
  return text;
}

bool is_bitwise(AluOp op) { return op >= AluOp::bitwise_and && op <= AluOp::arith_shift_right; }
bool is_comparison(AluOp op) { return op >= AluOp::is_equal && op <= AluOp::is_le; }
// A binary operation of two elements.
bool is_binary(AluOp op) { return op != AluOp::none && op != AluOp::average; }

// What compute engines calculate with; 64-bit and complex types move by DMA or go through gpsimd_kernel.
bool is_compute_type(DType dtype) { return size_of(dtype) <= 4 && !is_complex(dtype) && dtype != DType::f4e2m1x2; }

class Checker {
 public:
  Checker(const Program& program, int core, const spec::Chip& chip, Findings& findings)
      : program_(program), code_(program.cores[core]), core_(core), chip_(chip), findings_(findings) {}

  void check() {
    for (size_t k = 0; k < code_.code.size() && !findings_.full(); ++k) {
      index_ = static_cast<int>(k);
      const Instruction& i = code_.code[k];
      if (i.opcode == Opcode::loop_begin) loops_.push_back(&i);
      if (i.opcode == Opcode::loop_end) loops_.pop_back();
      if (!is_sequencer(i.opcode))
        instruction(i);
      else if (i.dst || i.dst1 || !i.src.empty() || i.s0 || i.s1)
        fail("{} has no operands", name_of(i.opcode));
    }
  }

 private:
  template <typename... Args>
  void fail(fmt::format_string<Args...> text, Args&&... args) {
    findings_.add(core_, index_, fmt::format(text, std::forward<Args>(args)...));
  }
  void require(bool condition, std::string_view message) {
    if (!condition) fail("{}", message);
  }

  void instruction(const Instruction& i) {
    const Rule r = rule(i.opcode);
    if (!(r.engines & bit(i.engine)))
      fail("{} runs on {}, not on {}", name_of(i.opcode), engines_of(r.engines), name_of(i.engine));
    if (r.sources >= 0 && static_cast<int>(i.src.size()) != r.sources) {
      fail("{} has {} source operands, not {}", name_of(i.opcode), r.sources, i.src.size());
      return;
    }
    for (const AccessPattern& src : i.src)
      if (!src) return fail("a source operand is missing");
    if (!i.dst) return fail("{} needs a destination", name_of(i.opcode));
    if (i.dst1 && !r.second_result) fail("{} has one result", name_of(i.opcode));
    scalar(i, i.s0, 0, r.s0);
    scalar(i, i.s1, 1, r.s1);
    const size_t before = findings_.size();
    for (const OperandUse& use : operand_uses(i, program_)) operand(i, use);
    if (findings_.size() != before) return;  // shapes are checked when each operand is sound
    shapes(i);
  }

  void scalar(const Instruction& i, const Scalar& s, int which, char rule) {
    const std::string_view name = scalar_name(i.opcode, which);
    const bool required = rule == 'T' || rule == 'I';
    if (!s) {
      if (required) fail("{} needs {}", name_of(i.opcode), name);
      return;
    }
    if (rule == '-') return fail("{} takes no {}", name_of(i.opcode), name);
    if (s.kind != Scalar::Kind::tile) return;
    if (rule == 'i' || rule == 'I')
      return fail("{} of {} is a number or an argument, not a tile", name, name_of(i.opcode));
    if (s.tile.memory == Memory::hbm) return fail("{} must lie in sbuf or psum", name);
    if (s.tile.free_elements() != 1 || s.tile.partitions != i.dst.partitions)
      fail("{} is {}x{}; it has one value for each of the {} partitions", name, s.tile.partitions,
           s.tile.free_elements(), i.dst.partitions);
  }

  // ---- one operand
  void operand(const Instruction& i, const OperandUse& use) {
    const AccessPattern& ap = *use.pattern;
    const bool dma = is_dma(i.opcode);
    if (ap.memory == Memory::hbm) {
      if (!dma) return fail("{} lies in HBM; engines compute on sbuf and psum, DMA moves data there", use.name);
      if (ap.partition != 0)
        fail("{} begins at partition {}; HBM has no partitions, use the offset", use.name, ap.partition);
      const Buffer& buffer = program_.buffers[ap.buffer];
      bounds(i, use, buffer.bytes, fmt::format("buffer '{}'", buffer.name));
      if (use.writes && (buffer.kind == Buffer::Kind::input || buffer.kind == Buffer::Kind::constant))
        fail("{} writes '{}', which is {}; name an output that aliases it", use.name, buffer.name,
             buffer.kind == Buffer::Kind::input ? "an input" : "a constant");
    } else {
      const Pool& pool = code_.pools[ap.buffer];
      if (ap.partition < 0 || ap.partition + ap.partitions > chip_.partitions)
        fail("{} covers partitions {} to {}; {} has {}", use.name, ap.partition, ap.partition + ap.partitions - 1,
             chip_.name, chip_.partitions);
      if (ap.memory == Memory::psum && (dma || i.engine == Engine::gpsimd))
        fail("{} lies in psum, which {} cannot reach; copy it to sbuf on the vector or scalar engine", use.name,
             dma ? "DMA" : "GpSimd");
      if (!dma) on_engine(ap, use);
      const int64_t size = size_of(ap.dtype);
      bool aligned = ap.offset % size == 0;
      for (const Term& term : ap.terms) aligned &= term.bytes % size == 0;
      if (!aligned) fail("{} is not aligned to its {}-byte elements", use.name, size);
      bounds(i, use, pool.bytes, fmt::format("a slot of pool '{}'", pool.name));
    }
    if (!is_compute_type(ap.dtype) && !dma && i.opcode != Opcode::gpsimd_kernel)
      fail("{} is {}; engines compute on types of at most 4 bytes (gpsimd_kernel takes 64-bit types)", use.name,
           name_of(ap.dtype));
    if (use.writes && !i.accumulate) {
      bool repeated = ap.memory == Memory::hbm && ap.partition_stride == 0 && ap.partitions > 1;
      for (const Dim& dim : ap.dims) repeated |= dim.stride == 0 && dim.count > 1;
      if (repeated) fail("{} writes the same element several times (stride 0)", use.name);
    }
  }

  // Limits of an engine's access pattern: start partitions, 16-bit strides and counts (facts/hardware.md 4.1).
  void on_engine(const AccessPattern& ap, const OperandUse& use) {
    const int step = ap.partitions <= 32 ? 32 : ap.partitions <= 64 ? 64 : 128;
    if (ap.partition % step != 0)
      fail("{} has {} partitions from {}; {}", use.name, ap.partitions, ap.partition,
           step == 32   ? "up to 32 start at 0, 32, 64 or 96"
           : step == 64 ? "33 to 64 start at 0 or 64"
                        : "more than 64 start at 0");
    for (const Dim& dim : ap.dims) {
      if (dim.count > 65535) fail("{} has a dimension of {} elements; the limit is 65535", use.name, dim.count);
      if (dim.count > 1 && (dim.stride < -32768 || dim.stride > 32767))
        fail("{} has a stride of {} elements; the limits are -32768 and 32767", use.name, dim.stride);
    }
  }

  // The lowest and highest byte over all iterations.
  void bounds(const Instruction& i, const OperandUse& use, int64_t limit, const std::string& where) {
    const AccessPattern& ap = *use.pattern;
    __int128 low = ap.offset, high = ap.offset;
    auto extend = [&](__int128 stride, int64_t count) {
      const __int128 reach = stride * (count - 1);
      (reach < 0 ? low : high) += reach;
    };
    const int64_t size = size_of(ap.dtype);
    for (const Dim& dim : ap.dims) extend(static_cast<__int128>(dim.stride) * size, dim.count);
    if (ap.memory == Memory::hbm) extend(static_cast<__int128>(ap.partition_stride) * size, ap.partitions);
    for (const Term& term : ap.terms)
      for (const Instruction* loop : loops_)
        if (loop->reg == term.reg) extend(term.bytes, loop->count);
    if (use.indirect) {
      if (i.rows < 0 || i.row_bytes < 0) return fail("rows and row_bytes must not be negative");
      if (i.rows == 0) return;  // nothing can be addressed
      extend(i.row_bytes, i.rows);
    }
    high += size;
    if (low < 0 || high > limit)
      fail("{} reaches bytes {} to {} of {}, which has {}", use.name, text(low), text(high - 1), where, limit);
  }
  static std::string text(__int128 v) {
    const __int128 limit = INT64_MAX;
    return v > limit || v < -limit ? std::string("(beyond 64 bits)") : fmt::format("{}", static_cast<int64_t>(v));
  }

  // ---- shapes and types of the operands together
  static std::string shape(const AccessPattern& ap) {
    std::string text = fmt::format("{}", ap.partitions);
    for (const Dim& dim : ap.dims) text += fmt::format("x{}", dim.count);
    return text;
  }

  void same_shape(const Instruction& i, const AccessPattern& ap, std::string_view name) {
    if (ap.partitions != i.dst.partitions || ap.free_elements() != i.dst.free_elements())
      fail("{} is {}, dst is {}: {} needs as many partitions and elements in both", name, shape(ap), shape(i.dst),
           name_of(i.opcode));
  }
  void free_elements(const AccessPattern& ap, std::string_view name, int64_t count) {
    if (ap.free_elements() != count) fail("{} has {} elements per partition, not {}", name, ap.free_elements(), count);
  }
  void equal_partitions(const Instruction& i, const AccessPattern& ap, std::string_view name) {
    if (ap.partitions != i.dst.partitions)
      fail("{} has {} partitions, dst has {}", name, ap.partitions, i.dst.partitions);
  }
  void operation(AluOp op, std::string_view name, bool allowed) {
    if (!allowed) fail("{} cannot be '{}'", name, name_of(op));
  }
  void integers_for(const Instruction& i, AluOp op) {
    if (!is_bitwise(op)) return;
    for (const OperandUse& use : operand_uses(i, program_))
      if (is_float(use.pattern->dtype))
        fail("{} is {}; {} works on the bits of integers", use.name, name_of(use.pattern->dtype), name_of(op));
  }
  void not_both_psum(const Instruction& i) {
    if (i.src[0].memory == Memory::psum && i.src[1].memory == Memory::psum)
      fail("src0 and src1 both lie in psum; {} reads one of them from sbuf", name_of(i.opcode));
  }
  void only_sbuf(const Instruction& i) {
    for (const OperandUse& use : operand_uses(i, program_))
      if (use.pattern->memory != Memory::sbuf) fail("{} must lie in sbuf", use.name);
  }

  void shapes(const Instruction& i) {
    switch (i.opcode) {
      case Opcode::nc_matmul: return matmul(i);
      case Opcode::nc_transpose: return transpose(i);
      case Opcode::activation:
        same_shape(i, i.src[0], "src0");
        if (i.dst1) {
          free_elements(i.dst1, "dst1", 1);
          equal_partitions(i, i.dst1, "dst1");
          operation(i.op0, "the reduction",
                    i.op0 == AluOp::add || i.op0 == AluOp::max || i.op0 == AluOp::min || i.op0 == AluOp::mult);
        }
        return;
      case Opcode::tensor_tensor:
        same_shape(i, i.src[0], "src0");
        same_shape(i, i.src[1], "src1");
        operation(i.op0, "op0", is_binary(i.op0));
        integers_for(i, i.op0);
        return not_both_psum(i);
      case Opcode::tensor_scalar:
        same_shape(i, i.src[0], "src0");
        operation(i.op0, "op0", is_binary(i.op0));
        if (i.op1 != AluOp::none) {
          operation(i.op1, "op1", is_binary(i.op1));
          require(static_cast<bool>(i.s1), "op1 needs s1");
        } else {
          require(!i.s1, "s1 needs op1");
        }
        return;
      case Opcode::scalar_tensor_tensor:
        same_shape(i, i.src[0], "src0");
        same_shape(i, i.src[1], "src1");
        operation(i.op0, "op0", is_binary(i.op0));
        operation(i.op1, "op1", is_binary(i.op1));
        return not_both_psum(i);
      case Opcode::tensor_copy:
      case Opcode::reciprocal: return same_shape(i, i.src[0], "src0");
      case Opcode::tensor_copy_predicated: same_shape(i, i.src[0], "src0"); return same_shape(i, i.src[1], "src1");
      case Opcode::select:
        same_shape(i, i.src[0], "src0");
        same_shape(i, i.src[1], "src1");
        return same_shape(i, i.src[2], "src2");
      case Opcode::tensor_reduce: return reduce(i);
      case Opcode::tensor_tensor_scan:
        same_shape(i, i.src[0], "src0");
        same_shape(i, i.src[1], "src1");
        operation(i.op0, "op0", is_binary(i.op0));
        return operation(i.op1, "op1", is_binary(i.op1));
      case Opcode::bn_stats:
        equal_partitions(i, i.src[0], "src0");
        free_elements(i.dst, "dst", 6);
        if (i.src[0].free_elements() > 512) fail("bn_stats takes up to 512 elements, not {}", i.src[0].free_elements());
        return;
      case Opcode::bn_aggr:
        equal_partitions(i, i.src[0], "src0");
        free_elements(i.dst, "dst", 2);
        if (i.src[0].free_elements() % 3 != 0)
          fail("src0 has {} elements, not triples of (count, mean, variance)", i.src[0].free_elements());
        return;
      case Opcode::max8:
        equal_partitions(i, i.src[0], "src0");
        free_elements(i.dst, "dst", 8);
        return eight_of(i.src[0]);
      case Opcode::nc_find_index8:
        equal_partitions(i, i.src[0], "src0");
        equal_partitions(i, i.src[1], "src1");
        free_elements(i.dst, "dst", 8);
        free_elements(i.src[1], "src1", 8);
        if (!is_integer(i.dst.dtype) || size_of(i.dst.dtype) < 2)
          fail("dst is {}; positions are integers of 2 or 4 bytes", name_of(i.dst.dtype));
        return eight_of(i.src[0]);
      case Opcode::nc_match_replace8:
        same_shape(i, i.src[0], "src0");
        equal_partitions(i, i.src[1], "src1");
        free_elements(i.src[1], "src1", 8);
        return eight_of(i.src[0]);
      case Opcode::memset: return;
      case Opcode::iota: only_sbuf(i); return pattern(i);
      case Opcode::affine_select:
        only_sbuf(i);
        same_shape(i, i.src[0], "src0");
        operation(i.op0, "the comparison", is_comparison(i.op0));
        return pattern(i);
      case Opcode::tensor_partition_reduce:
        only_sbuf(i);
        if (i.dst.partitions != 1) fail("dst has {} partitions; the result lies in one", i.dst.partitions);
        free_elements(i.dst, "dst", i.src[0].free_elements());
        operation(i.op0, "op0",
                  i.op0 == AluOp::add || i.op0 == AluOp::average || i.op0 == AluOp::max || i.op0 == AluOp::min ||
                      i.op0 == AluOp::mult || i.op0 == AluOp::bitwise_and || i.op0 == AluOp::bitwise_or ||
                      i.op0 == AluOp::bitwise_xor);
        return integers_for(i, i.op0);
      case Opcode::gpsimd_kernel:
        if (!i.pattern.empty()) pattern(i);
        return check_kernel_use(program_.kernels[i.kernel], i, core_, index_, findings_);
      case Opcode::dma_copy: return copy(i);
      case Opcode::dma_transpose: return dma_transpose(i);
      case Opcode::dma_gather: return indirect(i, i.src[0], "src0", i.dst, "dst");
      case Opcode::dma_scatter: return indirect(i, i.dst, "dst", i.src[0], "src0");
      default: return;
    }
  }

  void eight_of(const AccessPattern& ap) {
    if (ap.free_elements() < 8 || ap.free_elements() > 16384)
      fail("src0 has {} elements per partition; 8 to 16384 are possible", ap.free_elements());
  }

  void pattern(const Instruction& i) {
    int64_t count = 1;
    for (const Dim& dim : i.pattern) count *= std::max(dim.count, 0);
    // A row program may write once per row; its longest operand is what it iterates over.
    int64_t elements = i.dst.free_elements();
    if (i.opcode == Opcode::gpsimd_kernel)
      for (const AccessPattern& src : i.src) elements = std::max(elements, src.free_elements());
    if (count != elements) fail("the pattern has {} elements, the operands have {} per partition", count, elements);
  }

  void matmul(const Instruction& i) {
    const AccessPattern& stationary = i.src[0];
    const AccessPattern& moving = i.src[1];
    require(stationary.memory == Memory::sbuf && moving.memory == Memory::sbuf,
            "nc_matmul reads both operands from sbuf");
    require(i.dst.memory == Memory::psum, "nc_matmul writes to psum");
    if (i.dst.dtype != DType::f32) fail("dst is {}; psum accumulates f32", name_of(i.dst.dtype));
    const bool full = stationary.dtype == DType::f32 && moving.dtype == DType::f32;
    auto narrow = [](DType d) {
      return d == DType::bf16 || d == DType::f16 || d == DType::f8e4m3 || d == DType::f8e4m3fn || d == DType::f8e5m2;
    };
    const bool mixed_e4m3 = (stationary.dtype == DType::f8e4m3 && moving.dtype == DType::f8e4m3fn) ||
                            (stationary.dtype == DType::f8e4m3fn && moving.dtype == DType::f8e4m3);
    if (!full && !(narrow(stationary.dtype) && narrow(moving.dtype) && !mixed_e4m3))
      fail("nc_matmul cannot multiply {} and {}; f32 goes with f32, bf16, f16 and f8 with each other",
           name_of(stationary.dtype), name_of(moving.dtype));
    const int64_t k = stationary.partitions, m = stationary.free_elements(), n = moving.free_elements();
    if (moving.partitions != k) fail("stationary has {} partitions (K), moving has {}", k, moving.partitions);
    if (k > chip_.tensor_rows || m > chip_.tensor_columns || n > chip_.moving_free_max)
      fail("K={} M={} N={} exceed {}'s tensor engine: {} x {}, {} moving columns", k, m, n, chip_.name,
           chip_.tensor_rows, chip_.tensor_columns, chip_.moving_free_max);
    if (i.dst.partitions != m || i.dst.free_elements() != n)
      fail("dst is {}, the product is {}x{}", shape(i.dst), m, n);
    one_bank(i.dst);
  }

  // Up to trn2 the result of one matmul lies in one bank; a longer moving operand (trn3) may fill several.
  void one_bank(const AccessPattern& ap) {
    if (ap.memory != Memory::psum) return;
    const int64_t bank = chip_.psum_bank_bytes;
    const ByteSet set = byte_set(ap);
    const int64_t span = std::max<int64_t>(bank, chip_.moving_free_max * size_of(DType::f32));
    if (set.end() - set.base > span)
      return fail("dst spans {} bytes of psum, more than {}", set.end() - set.base, span);
    if (span > bank) return;
    const Pool& pool = code_.pools[ap.buffer];
    const int64_t bytes = set.end() - set.base;
    // Where it starts, for every slot and every iteration; moves by whole banks change nothing.
    SmallVector<Step, 8> moves{{pool.bytes, pool.depth}};
    for (const Term& term : ap.terms)
      for (const Instruction* loop : loops_)
        if (loop->reg == term.reg && term.bytes % bank != 0) moves.push_back({term.bytes, loop->count});
    int budget = 4096;
    const bool split = any_start(moves, 0, pool.offset + set.base, budget,
                                 [&](int64_t start) { return start / bank != (start + bytes - 1) / bank; });
    if (split) fail("dst crosses a psum bank of {} bytes", bank);
  }

  template <typename F>
  static bool any_start(const SmallVector<Step, 8>& moves, size_t k, int64_t start, int& budget, const F& f) {
    if (k == moves.size()) return f(start);
    for (int64_t n = 0; n < moves[k].count && budget > 0; ++n, --budget)
      if (any_start(moves, k + 1, start + n * moves[k].bytes, budget, f)) return true;
    return false;
  }

  void transpose(const Instruction& i) {
    const AccessPattern& src = i.src[0];
    const bool tensor = i.engine == Engine::tensor;
    const int limit = tensor ? 128 : 32;
    if (src.partitions > limit || src.free_elements() > limit)
      fail("src0 is {}; nc_transpose on {} takes up to {}x{}", shape(src), name_of(i.engine), limit, limit);
    if (i.dst.partitions != src.free_elements() || i.dst.free_elements() != src.partitions)
      fail("dst is {}, the transpose of src0 is {}x{}", shape(i.dst), src.free_elements(), src.partitions);
    if (tensor) {
      require(src.memory == Memory::sbuf && i.dst.memory == Memory::psum,
              "nc_transpose on tensor goes from sbuf to psum");
      one_bank(i.dst);
    }
    if (i.dst.dtype != src.dtype && !(tensor && i.dst.dtype == DType::f32))
      fail("dst is {}, src0 is {}; a transpose keeps the type", name_of(i.dst.dtype), name_of(src.dtype));
  }

  void reduce(const Instruction& i) {
    const AccessPattern& src = i.src[0];
    equal_partitions(i, src, "src0");
    if (i.axes < 1 || i.axes > static_cast<int>(src.dims.size()))
      return fail("{} trailing dimensions are reduced, src0 has {}", i.axes, src.dims.size());
    int64_t kept = 1;
    for (size_t d = 0; d + i.axes < src.dims.size(); ++d) kept *= src.dims[d].count;
    if (i.dst.free_elements() != kept)
      fail("dst has {} elements per partition, the reduction leaves {}", i.dst.free_elements(), kept);
    operation(i.op0, "op0",
              is_binary(i.op0) && !is_comparison(i.op0) && i.op0 != AluOp::subtract && i.op0 != AluOp::divide &&
                  i.op0 != AluOp::pow && i.op0 != AluOp::mod && i.op0 != AluOp::bypass);
    integers_for(i, i.op0);
  }

  // DMA converts through f32, so types of more than 4 bytes are only moved.
  void converts(const AccessPattern& a, const AccessPattern& b, bool accumulate) {
    if (a.dtype != b.dtype && (!is_compute_type(a.dtype) || !is_compute_type(b.dtype)))
      fail("DMA cannot convert {} to {}; it converts types of at most 4 bytes", name_of(b.dtype), name_of(a.dtype));
    if (accumulate && (!is_compute_type(a.dtype) || a.dtype == DType::boolean))
      fail("DMA cannot accumulate {}", name_of(a.dtype));
  }

  void copy(const Instruction& i) {
    if (i.dst.elements() != i.src[0].elements())
      fail("dst has {} elements ({}), src0 has {} ({})", i.dst.elements(), shape(i.dst), i.src[0].elements(),
           shape(i.src[0]));
    converts(i.dst, i.src[0], i.accumulate);
  }

  void dma_transpose(const Instruction& i) {
    const AccessPattern& src = i.src[0];
    const int64_t size = size_of(src.dtype);
    if (src.dims.size() > 1 || i.dst.dims.size() > 1) fail("dma_transpose takes one free dimension");
    if (size != 2 && size != 4) fail("dma_transpose moves types of 2 or 4 bytes, not {}", name_of(src.dtype));
    if (i.dst.dtype != src.dtype)
      fail("dst is {}, src0 is {}; a transpose keeps the type", name_of(i.dst.dtype), name_of(src.dtype));
    if (i.dst.partitions != src.free_elements() || i.dst.free_elements() != src.partitions)
      fail("dst is {}, the transpose of src0 is {}x{}", shape(i.dst), src.free_elements(), src.partitions);
    if (i.accumulate) fail("dma_transpose cannot accumulate");
  }

  void indirect(const Instruction& i, const AccessPattern& table, std::string_view table_name,
                const AccessPattern& tile, std::string_view tile_name) {
    const AccessPattern& index = i.src[1];
    if (table.memory != Memory::hbm) fail("{} holds the rows and must lie in HBM", table_name);
    if (index.memory != Memory::sbuf) fail("src1 holds the row numbers and must lie in sbuf");
    if (index.dtype != DType::i32 && index.dtype != DType::u32 && index.dtype != DType::i64)
      fail("src1 is {}; row numbers are i32, u32 or i64", name_of(index.dtype));
    if (tile.partitions != index.partitions || tile.free_elements() != index.free_elements() * table.elements())
      fail("{} is {}; {} row numbers per partition and {} elements per row need {}x{}", tile_name, shape(tile),
           index.free_elements(), table.elements(), index.partitions, index.free_elements() * table.elements());
    if (i.row_bytes <= 0 && i.rows > 1) fail("row_bytes is {}; it is the distance from row to row", i.row_bytes);
    converts(i.dst, i.src[0], i.accumulate);
  }

  const Program& program_;
  const CoreProgram& code_;
  const int core_;
  const spec::Chip& chip_;
  Findings& findings_;
  int index_ = 0;
  std::vector<const Instruction*> loops_;
};

}  // namespace

bool engine_has(Engine engine, Opcode opcode) { return rule(opcode).engines & bit(engine); }

void check_operands(const Program& program, const spec::Chip& chip, Findings& findings) {
  for (const GpsimdKernel& kernel : program.kernels) check_kernel(kernel, program, findings);
  for (size_t core = 0; core < program.cores.size(); ++core)
    Checker(program, static_cast<int>(core), chip, findings).check();
}

}  // namespace opentrn::isa
