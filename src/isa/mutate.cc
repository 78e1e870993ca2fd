#include "isa/mutate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "isa/access.h"
#include "isa/names.h"
#include "isa/verify_operands.h"

namespace opentrn::isa {
namespace {

// Enumerates the mutations in a fixed order; applies number `target`.
class Mutator {
 public:
  Mutator(Program& program, size_t target) : program_(program), target_(target) {}

  size_t count() const { return count_; }
  const std::string& description() const { return description_; }

  void run() {
    for (size_t k = 0; k < program_.kernels.size() && !done(); ++k) kernel(program_.kernels[k]);
    for (size_t c = 0; c < program_.cores.size() && !done(); ++c) {
      CoreProgram& core = program_.cores[c];
      for (size_t s = 0; s < core.semaphores.size() && !done(); ++s)
        if (waits_executed(core, s) > core.semaphores[s].initial && !implied(core, s) &&
            applies("core {}: semaphore '{}' starts with one token more", c, core.semaphores[s].name))
          ++core.semaphores[s].initial;
      for (size_t p = 0; p < core.pools.size() && !done(); ++p)
        if (core.pools[p].depth > 1 && rotations_executed(core, p) >= core.pools[p].depth && lanes_of(core, p) > 1 &&
            applies("core {}: pool '{}' has one slot less", c, core.pools[p].name))
          --core.pools[p].depth;
      for (size_t k = 0; k < core.code.size() && !done(); ++k) {
        where_ = fmt::format("core {}, instruction {}", c, k);
        instruction(core, k);
      }
    }
  }

 private:
  bool done() const { return !description_.empty(); }

  // Counts one mutation; true when it is the one to apply.
  template <typename... Args>
  bool applies(fmt::format_string<Args...> text, Args&&... args) {
    if (count_++ != target_) return false;
    description_ = fmt::format(text, std::forward<Args>(args)...);
    return true;
  }
  template <typename... Args>
  bool here(fmt::format_string<Args...> text, Args&&... args) {
    if (count_++ != target_) return false;
    description_ = where_ + ": " + fmt::format(text, std::forward<Args>(args)...);
    return true;
  }

  static bool waits_on(const Instruction& i, size_t semaphore) {
    for (const Signal& s : i.waits)
      if (s.semaphore == static_cast<int>(semaphore)) return true;
    return false;
  }
  // Sum over the core's instructions, each as often as its loops run, limited to 32 bits.
  template <typename F>
  static int64_t executed(const CoreProgram& core, const F& amount) {
    constexpr int64_t kLimit = INT32_MAX;
    std::vector<int64_t> times{1};
    int64_t sum = 0;
    for (const Instruction& i : core.code) {
      if (i.opcode == Opcode::loop_begin) times.push_back(std::min(kLimit, times.back() * std::min(kLimit, i.count)));
      if (i.opcode == Opcode::loop_end && times.size() > 1) times.pop_back();
      sum = std::min(kLimit, sum + times.back() * std::min<int64_t>(kLimit, amount(i)));
    }
    return sum;
  }
  static int64_t waits_executed(const CoreProgram& core, size_t semaphore) {
    return executed(core, [&](const Instruction& i) {
      int64_t count = 0;
      for (const Signal& s : i.waits) count += s.semaphore == static_cast<int>(semaphore) ? s.count : 0;
      return count;
    });
  }
  static int64_t rotations_executed(const CoreProgram& core, size_t pool) {
    return executed(core, [&](const Instruction& i) -> int64_t {
      return i.opcode == Opcode::rotate && i.pool == static_cast<int>(pool);
    });
  }
  // Where an instruction completes: its queue or its engine.
  static int lane(const Instruction& i) { return is_dma(i.opcode) ? kEngines + i.queue : static_cast<int>(i.engine); }
  // Engines and queues that use the pool; one alone keeps its own order, whatever the depth.
  int lanes_of(const CoreProgram& core, size_t pool) const {
    uint32_t lanes = 0;
    for (const Instruction& i : core.code)
      if (!is_sequencer(i.opcode))
        for (const OperandUse& use : operand_uses(i, program_))
          if (use.pattern->memory != Memory::hbm && use.pattern->buffer == static_cast<int>(pool))
            lanes |= 1u << lane(i);
    return __builtin_popcount(lanes);
  }
  // The only lane that posts the semaphore, and the last instruction that does; false when there are several.
  static bool posting_lane(const CoreProgram& core, size_t semaphore, int& poster, size_t& last) {
    poster = -1;
    for (size_t k = 0; k < core.code.size(); ++k)
      for (const Signal& s : core.code[k].posts)
        if (s.semaphore == static_cast<int>(semaphore)) {
          if (poster >= 0 && lane(core.code[k]) != poster) return false;
          poster = lane(core.code[k]);
          last = k;
        }
    return poster >= 0;
  }
  // Whoever waits on it also waits on a later post of the same engine or queue, which alone says as much.
  static bool implied(const CoreProgram& core, size_t semaphore) {
    int poster = -1, other_poster = -1;
    size_t last = 0, other_last = 0;
    if (!posting_lane(core, semaphore, poster, last)) return false;
    for (const Instruction& i : core.code) {
      if (!waits_on(i, semaphore)) continue;
      bool later = false;
      for (const Signal& s : i.waits)
        later |= s.semaphore != static_cast<int>(semaphore) &&
                 posting_lane(core, static_cast<size_t>(s.semaphore), other_poster, other_last) &&
                 other_poster == poster && other_last > last;
      if (!later) return false;
    }
    return true;
  }

  void instruction(CoreProgram& core, size_t index) {
    Instruction& i = core.code[index];
    const Opcode op = i.opcode;
    if (op == Opcode::loop_end) return;
    if (op == Opcode::loop_begin) {
      if (here("one iteration more")) ++i.count;
      if (!done() && i.count > 1 && here("one iteration less")) --i.count;
      return;
    }
    if (here("{} deleted", name_of(op))) {
      core.code.erase(core.code.begin() + static_cast<std::ptrdiff_t>(index));
      return;
    }
    if (done()) return;
    signals(core, i);
    if (done() || is_sequencer(op)) return;
    for (int e = 0; e < kEngines; ++e)
      if (!engine_has(static_cast<Engine>(e), op)) {
        if (here("moved to {}", name_of(static_cast<Engine>(e)))) i.engine = static_cast<Engine>(e);
        break;
      }
    if (!done()) operations(i);
    if (!done()) numbers(i);
    static constexpr std::string_view kSource[] = {"src0", "src1", "src2"};
    for (size_t s = 0; s < i.src.size() && !done(); ++s) operand(i.src[s], kSource[s], false);
    if (!done() && i.dst) operand(i.dst, "dst", true);
    if (!done() && i.dst1) operand(i.dst1, "dst1", true);
    if (!done() && i.s0.kind == Scalar::Kind::tile) operand(i.s0.tile, scalar_name(op, 0), false);
    if (!done() && i.s1.kind == Scalar::Kind::tile) operand(i.s1.tile, scalar_name(op, 1), false);
  }

  void signals(CoreProgram& core, Instruction& i) {
    auto name = [&](const Signal& s) { return core.semaphores[s.semaphore].name; };
    for (size_t k = 0; k < i.waits.size() && !done(); ++k) {
      if (here("wait on '{}' deleted", name(i.waits[k]))) return i.waits.erase(k);
      if (here("wait on '{}' for one more", name(i.waits[k]))) ++i.waits[k].count;
    }
    for (size_t k = 0; k < i.posts.size() && !done(); ++k) {
      if (here("post to '{}' deleted", name(i.posts[k]))) return i.posts.erase(k);
      if (here("post to '{}' of one more", name(i.posts[k]))) ++i.posts[k].count;
    }
  }

  static AluOp other(AluOp op) {
    switch (op) {
      case AluOp::add: return AluOp::subtract;
      case AluOp::subtract: return AluOp::add;
      case AluOp::mult: return AluOp::add;
      case AluOp::divide: return AluOp::mult;
      case AluOp::max: return AluOp::min;
      case AluOp::min: return AluOp::max;
      case AluOp::pow: return AluOp::mult;
      case AluOp::mod: return AluOp::add;
      case AluOp::abs_max: return AluOp::min;
      case AluOp::is_equal: return AluOp::not_equal;
      case AluOp::not_equal: return AluOp::is_equal;
      case AluOp::is_gt: return AluOp::is_le;
      case AluOp::is_ge: return AluOp::is_lt;
      case AluOp::is_lt: return AluOp::is_ge;
      case AluOp::is_le: return AluOp::is_gt;
      case AluOp::logical_and: return AluOp::logical_or;
      case AluOp::logical_or: return AluOp::logical_and;
      case AluOp::logical_xor: return AluOp::is_equal;
      case AluOp::bitwise_and: return AluOp::bitwise_or;
      case AluOp::bitwise_or: return AluOp::bitwise_and;
      case AluOp::bitwise_xor: return AluOp::bitwise_and;
      case AluOp::shift_left: return AluOp::arith_shift_right;
      case AluOp::shift_right: return AluOp::shift_left;
      case AluOp::arith_shift_right: return AluOp::shift_left;
      case AluOp::average: return AluOp::max;
      default: return op;
    }
  }
  static bool commutes(AluOp op) {
    return op == AluOp::add || op == AluOp::mult || (op >= AluOp::max && op <= AluOp::min) || op == AluOp::abs_max ||
           op == AluOp::is_equal || op == AluOp::not_equal || (op >= AluOp::logical_and && op <= AluOp::bitwise_xor) ||
           op == AluOp::average;
  }
  static ActFn other(ActFn act) {
    switch (act) {
      case ActFn::copy: return ActFn::square;
      case ActFn::relu: return ActFn::copy;
      case ActFn::gelu: return ActFn::silu;
      case ActFn::gelu_tanh: return ActFn::silu;
      default: return ActFn::copy;
    }
  }

  void operations(Instruction& i) {
    for (AluOp* op : {&i.op0, &i.op1})
      if (other(*op) != *op && here("{} becomes {}", name_of(*op), name_of(other(*op)))) {
        *op = other(*op);
        return;
      }
    if (i.opcode == Opcode::activation && here("{} becomes {}", name_of(i.act), name_of(other(i.act)))) {
      i.act = other(i.act);
      return;
    }
    if (i.opcode == Opcode::nc_matmul && here("accumulate {}", i.accumulate ? "off" : "on")) {
      i.accumulate = !i.accumulate;
      return;
    }
    if ((i.opcode == Opcode::dma_copy || i.opcode == Opcode::dma_scatter) && i.accumulate && here("accumulate off")) {
      i.accumulate = false;
      return;
    }
    const bool scalar_first = i.opcode == Opcode::tensor_scalar || i.opcode == Opcode::scalar_tensor_tensor;
    if (scalar_first && i.op0 != AluOp::none && !commutes(i.op0) && here("operands of op0 swapped")) {
      i.reverse0 = !i.reverse0;
      return;
    }
    if (scalar_first && i.op1 != AluOp::none && !commutes(i.op1) && here("operands of op1 swapped")) {
      i.reverse1 = !i.reverse1;
      return;
    }
    if (i.opcode == Opcode::tensor_copy_predicated && here("predicate inverted")) {
      i.reverse0 = !i.reverse0;
      return;
    }
    if (i.opcode == Opcode::tensor_tensor && !commutes(i.op0) && !(i.src[0] == i.src[1]) && here("sources swapped")) {
      std::swap(i.src[0], i.src[1]);
      return;
    }
    if (i.opcode == Opcode::tensor_reduce && here("negate {}", i.negate ? "off" : "on")) i.negate = !i.negate;
  }

  void immediate(Scalar& s, std::string_view name) {
    if (s.kind != Scalar::Kind::immediate) return;
    const double changed = std::isfinite(s.value) && std::abs(s.value) < 1e6 ? s.value + 1 : 0;
    if (here("{} {} becomes {}", name, s.value, changed)) s.value = changed;
  }

  void numbers(Instruction& i) {
    immediate(i.s0, scalar_name(i.opcode, 0));
    if (!done()) immediate(i.s1, scalar_name(i.opcode, 1));
    if (done()) return;
    if (i.opcode == Opcode::tensor_reduce && i.axes > 1 && here("one axis less is reduced")) return --i.axes, void();
    const bool indirect = i.opcode == Opcode::dma_gather || i.opcode == Opcode::dma_scatter;
    if (indirect && i.rows > 1 && here("row_bytes larger")) i.row_bytes += size_of(i.dst.dtype);
    const bool pattern = i.opcode == Opcode::iota || i.opcode == Opcode::affine_select;
    if (!done() && pattern && i.dst.partitions > 1 && here("channel_multiplier larger")) ++i.channel_multiplier;
    for (size_t d = 0; d < i.pattern.size() && !done(); ++d)
      if (i.pattern[d].count > 1 && here("pattern stride {} larger", d)) ++i.pattern[d].stride;
    for (size_t t = 0; t < i.pattern_terms.size() && !done(); ++t)
      if (here("pattern term {} larger", t)) ++i.pattern_terms[t].bytes;
  }

  void operand(AccessPattern& ap, std::string_view name, bool written) {
    const int64_t size = size_of(ap.dtype);
    if (here("{} one element further", name)) {
      ap.offset += size;
      return;
    }
    for (size_t t = 0; t < ap.terms.size(); ++t)
      if (here("{} moves further per iteration of i{}", name, ap.terms[t].reg)) {
        ap.terms[t].bytes += size;
        return;
      }
    for (size_t d = 0; d < ap.dims.size(); ++d) {
      if (ap.dims[d].count < 2) continue;
      if (here("stride {} of {} larger", d, name)) {
        ++ap.dims[d].stride;
        return;
      }
      if (here("{} elements less in dimension {} of {}", 1, d, name)) {
        --ap.dims[d].count;
        return;
      }
    }
    if (ap.memory == Memory::hbm && ap.partitions > 1 && here("partition stride of {} larger", name)) {
      ++ap.partition_stride;
      return;
    }
    if (ap.partitions > 1 && here("{} has one partition less", name)) {
      --ap.partitions;
      return;
    }
    if (ap.memory != Memory::hbm && ap.partition + ap.partitions + 32 <= 128 && here("{} 32 partitions further", name))
      ap.partition = static_cast<int16_t>(ap.partition + 32);
    if (!done() && !written && ap.dtype == DType::f32 && here("{} read as i32", name)) ap.dtype = DType::i32;
  }

  static KernelOp other(KernelOp op) {
    switch (op) {
      case KernelOp::add: return KernelOp::sub;
      case KernelOp::sub: return KernelOp::add;
      case KernelOp::mul: return KernelOp::add;
      case KernelOp::div: return KernelOp::mul;
      case KernelOp::min: return KernelOp::max;
      case KernelOp::max: return KernelOp::min;
      case KernelOp::eq: return KernelOp::ne;
      case KernelOp::ne: return KernelOp::eq;
      case KernelOp::lt: return KernelOp::ge;
      case KernelOp::le: return KernelOp::gt;
      case KernelOp::gt: return KernelOp::le;
      case KernelOp::ge: return KernelOp::lt;
      case KernelOp::bit_and: return KernelOp::bit_or;
      case KernelOp::bit_or: return KernelOp::bit_and;
      case KernelOp::bit_xor: return KernelOp::bit_or;
      case KernelOp::shl: return KernelOp::shr;
      case KernelOp::shr: return KernelOp::shl;
      default: return op;
    }
  }

  void kernel(GpsimdKernel& kernel) {
    auto section = [&](std::string_view title, std::vector<KernelInstruction>& code) {
      for (size_t n = 0; n < code.size() && !done(); ++n) {
        KernelInstruction& k = code[n];
        const std::string where = fmt::format("kernel '{}', {} {}", kernel.name, title, n);
        if (applies("{}: {} deleted", where, name_of(k.op))) {
          code.erase(code.begin() + static_cast<std::ptrdiff_t>(n));
          return;
        }
        if (other(k.op) != k.op && applies("{}: {} becomes {}", where, name_of(k.op), name_of(other(k.op)))) {
          k.op = other(k.op);
          return;
        }
        if (k.op != KernelOp::constant) continue;
        const bool real = k.type == KernelType::f32 || k.type == KernelType::f64;
        if (!applies("{}: constant {} changed", where, real ? k.imm : static_cast<double>(k.imm_int))) continue;
        if (real)
          k.imm = std::isfinite(k.imm) ? k.imm * 1.5 + 1 : 0;
        else
          k.imm_int = static_cast<int64_t>(static_cast<uint64_t>(k.imm_int) + 1);
        return;
      }
    };
    section("prologue", kernel.prologue);
    section("body", kernel.body);
    section("epilogue", kernel.epilogue);
  }

  Program& program_;
  const size_t target_;
  size_t count_ = 0;
  std::string where_, description_;
};

}  // namespace

size_t mutation_count(const Program& program) {
  Mutator mutator(const_cast<Program&>(program), SIZE_MAX);  // applies nothing
  mutator.run();
  return mutator.count();
}

std::string mutate(Program& program, size_t which) {
  Mutator mutator(program, which);
  mutator.run();
  if (mutator.description().empty())
    throw InternalError(fmt::format("mutation {} does not exist: the program has {}", which, mutator.count()));
  return mutator.description();
}

}  // namespace opentrn::isa
