// gpsimd_kernel: register programs, carried out one register operation at a time over many lanes. Lanes are consecutive
// elements when the body passes nothing from one element to the next, else rows that advance together.
#include <algorithm>
#include <bitset>
#include <cmath>

#include "base/error.h"
#include "exec/index_pattern.h"
#include "exec/operation.h"
#include "exec/register_math.h"

namespace opentrn::exec {
namespace {

using isa::Instruction;
using isa::KernelInstruction;
using isa::KernelOp;
using isa::KernelType;

constexpr int64_t kLanes = 256;
constexpr int kOperands = 6;
constexpr int64_t kRegisterWords = kLanes;  // 64-bit words per register

DType dtype_of(KernelType type) {
  static constexpr DType kTypes[] = {DType::i32, DType::u32, DType::i64, DType::u64, DType::f32, DType::f64};
  return kTypes[static_cast<int>(type)];
}
int64_t size_of(KernelType type) { return type == KernelType::i32 || type == KernelType::u32 || type == KernelType::f32 ? 4 : 8; }

// How many registers an operation reads (a, b, c in order).
int operand_count(KernelOp op) {
  switch (op) {
    case KernelOp::load: case KernelOp::constant: case KernelOp::argument: case KernelOp::index: case KernelOp::column: return 0;
    case KernelOp::fma: case KernelOp::select: return 3;
    case KernelOp::add: case KernelOp::sub: case KernelOp::mul: case KernelOp::div: case KernelOp::rem: case KernelOp::floor_div:
    case KernelOp::mod: case KernelOp::min: case KernelOp::max: case KernelOp::pow: case KernelOp::mul_hi:
    case KernelOp::bit_and: case KernelOp::bit_or: case KernelOp::bit_xor: case KernelOp::shl: case KernelOp::shr:
    case KernelOp::sar: case KernelOp::eq: case KernelOp::ne: case KernelOp::lt: case KernelOp::le: case KernelOp::gt:
    case KernelOp::ge: case KernelOp::atan2: case KernelOp::fmod: case KernelOp::hypot: case KernelOp::copysign:
    case KernelOp::nextafter: return 2;
    default: return 1;
  }
}

struct Decoded {
  KernelInstruction instruction;
  RegisterFn fn = nullptr;
  ConvertFn convert = nullptr;  // load, store, convert; null: the bits move
};

using Registers64 = std::bitset<isa::kKernelRegisters>;

// Registers that `code` reads before it has written them, and those it writes.
void uses(const std::vector<KernelInstruction>& code, Registers64& read_first, Registers64& written) {
  for (const KernelInstruction& k : code) {
    const auto read = [&](uint8_t r) {
      if (!written[r]) read_first.set(r);
    };
    if (k.op == KernelOp::store) {
      read(k.b);
      continue;
    }
    const int n = operand_count(k.op);
    if (n > 0) read(k.a);
    if (n > 1) read(k.b);
    if (n > 2) read(k.c);
    written.set(k.dst);
  }
}

class RegisterProgram final : public Operation {
 public:
  RegisterProgram(const Instruction& i, const Context& context) {
    const isa::GpsimdKernel& kernel = context.program.kernels.at(static_cast<size_t>(i.kernel));
    std::vector<isa::AccessPattern> patterns(i.src.begin(), i.src.end());
    patterns.push_back(i.dst);
    if (i.dst1) patterns.push_back(i.dst1);
    count_ = static_cast<int>(patterns.size());

    size_t ndim = 0;
    for (const isa::AccessPattern& p : patterns) ndim = std::max(ndim, p.dims.size());
    for (int o = 0; o < count_; ++o) {
      const isa::AccessPattern& p = patterns[static_cast<size_t>(o)];
      base_[o] = context.operand(p);
      inner_[o] = p.dims.size() == ndim && ndim > 0 ? p.dims.back().count : 1;
      inner_stride_[o] = p.dims.size() == ndim && ndim > 0 ? p.dims.back().stride * base_[o].size : 0;
      length_ = std::max(length_, inner_[o]);
      rows_ = std::max(rows_, inner_[o] == 0 ? 0 : base_[o].total / inner_[o]);
      if (base_[o].total == 0) empty_ = true;
    }
    for (int o = 0; o < count_; ++o) set_shapes(patterns[static_cast<size_t>(o)], o, ndim);
    const isa::AccessPattern& shape = patterns[static_cast<size_t>(i.src.size())];
    index_ = IndexPattern(i, context, shape.partitions, rows_ / std::max<int64_t>(1, shape.partitions) * length_);

    decode(kernel.prologue, prologue_);
    decode(kernel.body, body_);
    decode(kernel.epilogue, epilogue_);
    plan(kernel);
  }

  bool run(Frame& frame) const override {
    if (empty_ || rows_ == 0) return true;
    Run run(*this, frame);
    if (flat_) run.elements();
    else run.rows(aliased(run) ? 1 : std::min<int64_t>(kLanes, rows_));
    return true;
  }

 private:
  friend struct Run;

  void set_shapes(const isa::AccessPattern& p, int o, size_t ndim) {
    int64_t count[6], stride[6];
    int n = 0;
    count[n] = p.partitions;
    stride[n++] = base_[o].partition_stride;
    const size_t outer = p.dims.size() == ndim && ndim > 0 ? ndim - 1 : p.dims.size();
    for (size_t d = 0; d < outer; ++d) {
      count[n] = p.dims[d].count;
      stride[n++] = p.dims[d].stride * base_[o].size;
    }
    row_[o] = base_[o];
    set_dims(row_[o], count, stride, n);
    if (inner_[o] == length_ && inner_stride_[o] != 0) {
      element_[o] = base_[o];
    } else if (n < 5) {  // one value per row, seen by each of its elements
      count[n] = length_;
      stride[n++] = inner_[o] == length_ ? inner_stride_[o] : 0;
      element_[o] = base_[o];
      set_dims(element_[o], count, stride, n);
    } else {
      element_[o] = base_[o];
      if (inner_[o] != length_) expandable_ = false;
    }
  }

  void decode(const std::vector<KernelInstruction>& from, std::vector<Decoded>& to) {
    for (const KernelInstruction& k : from) {
      Decoded d{k, nullptr, nullptr};
      switch (k.op) {
        case KernelOp::load:
          check_operand(k.a);
          d.convert = moves(base_[k.a].dtype, dtype_of(k.type)) ? nullptr : convert_fn(base_[k.a].dtype, dtype_of(k.type));
          break;
        case KernelOp::store:
          check_operand(k.a);
          stored_ |= 1u << k.a;
          d.convert = moves(dtype_of(k.type), base_[k.a].dtype) ? nullptr : convert_fn(dtype_of(k.type), base_[k.a].dtype);
          break;
        case KernelOp::convert: d.convert = moves(dtype_of(k.from), dtype_of(k.type)) ? nullptr : convert_fn(dtype_of(k.from), dtype_of(k.type)); break;
        case KernelOp::constant: case KernelOp::argument: case KernelOp::index: case KernelOp::column: case KernelOp::bitcast: break;
        default: d.fn = register_fn(k.op, k.type);
      }
      to.push_back(d);
    }
  }

  void check_operand(uint8_t a) const {
    if (a >= count_)
      throw UserError("gpsimd_kernel: operand " + std::to_string(a) + " of " + std::to_string(count_) + "; sources come first, then dst and dst1");
  }

  static bool moves(DType from, DType to) {
    return from == to || (is_integer(from) && is_integer(to) && opentrn::size_of(from) == opentrn::size_of(to));
  }

  void plan(const isa::GpsimdKernel& kernel) {
    Registers64 body_first, body_written, epilogue_first, epilogue_written, prologue_first, prologue_written;
    uses(kernel.body, body_first, body_written);
    uses(kernel.prologue, prologue_first, prologue_written);
    uses(kernel.epilogue, epilogue_first, epilogue_written);
    const bool carried = (body_first & body_written).any();
    // A row starts with zero in every register that nothing has written.
    zeroed_ = prologue_first | (body_first & ~prologue_written) | (epilogue_first & ~prologue_written);
    // Lanes as elements: nothing may pass from one to the next, neither in a register nor through a place that several
    // of them store to, and what precedes a row must be the same for all rows.
    bool uniform_prologue = true;
    for (const Decoded& d : prologue_) uniform_prologue &= !touches_element(d.instruction.op);
    flat_ = !carried && epilogue_.empty() && uniform_prologue && expandable_;
    unsigned stored_in_body = 0;
    for (const Decoded& d : body_) {
      if (d.instruction.op == KernelOp::store) stored_in_body |= 1u << d.instruction.a;
      uses_index_ |= d.instruction.op == KernelOp::index;
    }
    for (const std::vector<Decoded>* code : {&prologue_, &epilogue_})
      for (const Decoded& d : *code) uses_index_ |= d.instruction.op == KernelOp::index;
    for (int o = 0; o < count_; ++o) {
      if (stored_in_body >> o & 1) flat_ &= !repeats(element_[o]);
      if (stored_ >> o & 1) sequential_ |= repeats(row_[o]);
    }
    if (flat_) {
      body_.insert(body_.begin(), prologue_.begin(), prologue_.end());
      prologue_.clear();
      sequential_ = false;
      hoist();
    }
    for (int a = 0; a < count_; ++a)
      for (int b = 0; b < count_; ++b)
        if (a != b && (stored_ >> a & 1) && base_[a].memory == base_[b].memory) check_alias_.emplace_back(a, b);
  }

  // Moves what is the same for all elements out of the body: operations on constants and arguments alone, in registers
  // that are written once.
  void hoist() {
    int writes[isa::kKernelRegisters] = {};
    for (const Decoded& d : body_)
      if (d.instruction.op != KernelOp::store) ++writes[d.instruction.dst];
    Registers64 invariant;
    std::vector<Decoded> rest;
    for (const Decoded& d : body_) {
      const KernelInstruction& k = d.instruction;
      const int reads = operand_count(k.op);
      const bool same = !touches_element(k.op) && writes[k.dst] == 1 && (reads < 1 || invariant[k.a]) &&
                        (reads < 2 || invariant[k.b]) && (reads < 3 || invariant[k.c]);
      if (same) invariant.set(k.dst);
      (same ? hoisted_ : rest).push_back(d);
    }
    body_ = std::move(rest);
  }

  static bool touches_element(KernelOp op) {
    return op == KernelOp::load || op == KernelOp::store || op == KernelOp::index || op == KernelOp::column;
  }
  // Several elements lie in one place.
  static bool repeats(const Operand& operand) {
    bool result = false;
    for (int d = 0; d < operand.ndim; ++d) result |= operand.stride[d] == 0 && operand.count[d] > 1;
    return result;
  }

  struct Run {
    const RegisterProgram& program;
    Frame& frame;
    std::byte* at[kOperands];
    std::byte* registers;
    std::byte* raw;     // gathered elements
    int64_t start;
    Cursor cursor[kOperands];               // elements()
    std::byte* address[kOperands][kLanes];  // rows(): the lanes' rows
    int64_t number[kLanes];                 // index of the lanes
    int64_t lanes = 0, column = 0;

    Run(const RegisterProgram& p, Frame& f) : program(p), frame(f) {
      for (int o = 0; o < p.count_; ++o) at[o] = p.base_[o].address(f.registers);
      auto& words = f.scratch->registers;
      if (words.empty()) words.resize(isa::kKernelRegisters * kRegisterWords + 8);
      auto base = reinterpret_cast<uintptr_t>(words.data());
      registers = reinterpret_cast<std::byte*>((base + 63) & ~uintptr_t{63});
      raw = f.scratch->buffer[0].bytes;
      start = p.index_.start(f);
    }

    std::byte* reg(uint8_t r) const { return registers + static_cast<size_t>(r) * kRegisterWords * 8; }

    void zero() {
      for (int r = 0; r < isa::kKernelRegisters; ++r)
        if (program.zeroed_[static_cast<size_t>(r)]) std::memset(reg(static_cast<uint8_t>(r)), 0, static_cast<size_t>(lanes) * 8);
    }

    template <typename T>
    static void fill(std::byte* to, T value, int64_t n) {
      auto* y = reinterpret_cast<T*>(to);
      for (int64_t i = 0; i < n; ++i) y[i] = value;
    }

    void set(const KernelInstruction& k, double real, int64_t integer) {
      std::byte* to = reg(k.dst);
      switch (k.type) {
        case KernelType::f32: fill(to, static_cast<float>(real), lanes); break;
        case KernelType::f64: fill(to, real, lanes); break;
        case KernelType::i32:
        case KernelType::u32: fill(to, static_cast<uint32_t>(integer), lanes); break;
        default: fill(to, static_cast<uint64_t>(integer), lanes);
      }
    }

    void set_numbers(const KernelInstruction& k, const int64_t* numbers) {
      std::byte* to = reg(k.dst);
      switch (k.type) {
        case KernelType::f32: for (int64_t i = 0; i < lanes; ++i) reinterpret_cast<float*>(to)[i] = static_cast<float>(numbers[i]); break;
        case KernelType::f64: for (int64_t i = 0; i < lanes; ++i) reinterpret_cast<double*>(to)[i] = static_cast<double>(numbers[i]); break;
        case KernelType::i32:
        case KernelType::u32: for (int64_t i = 0; i < lanes; ++i) reinterpret_cast<uint32_t*>(to)[i] = static_cast<uint32_t>(numbers[i]); break;
        default: std::memcpy(to, numbers, static_cast<size_t>(lanes) * 8);
      }
    }

    // Everything but load, store, index and column.
    void compute(const Decoded& d) {
      const KernelInstruction& k = d.instruction;
      switch (k.op) {
        case KernelOp::constant: set(k, k.imm, k.imm_int); break;
        case KernelOp::argument: {
          const Value& value = frame.scalars[k.imm_int];
          set(k, value.real, value.integer);
          break;
        }
        case KernelOp::convert:
          if (d.convert) d.convert(reg(k.a), convert_target(k), static_cast<size_t>(lanes));
          else std::memmove(reg(k.dst), reg(k.a), static_cast<size_t>(lanes * size_of(k.type)));
          if (d.convert && k.dst == k.a) std::memcpy(reg(k.dst), convert_target(k), static_cast<size_t>(lanes * size_of(k.type)));
          break;
        case KernelOp::bitcast:
          if (size_of(k.from) == size_of(k.type)) {
            std::memmove(reg(k.dst), reg(k.a), static_cast<size_t>(lanes * size_of(k.type)));
          } else if (size_of(k.type) == 8) {
            for (int64_t i = lanes - 1; i >= 0; --i) reinterpret_cast<uint64_t*>(reg(k.dst))[i] = reinterpret_cast<const uint32_t*>(reg(k.a))[i];
          } else {
            for (int64_t i = 0; i < lanes; ++i) reinterpret_cast<uint32_t*>(reg(k.dst))[i] = static_cast<uint32_t>(reinterpret_cast<const uint64_t*>(reg(k.a))[i]);
          }
          break;
        default: d.fn(reg(k.dst), reg(k.a), reg(k.b), reg(k.c), static_cast<size_t>(lanes));
      }
    }
    // Conversions between widths cannot run in place.
    std::byte* convert_target(const KernelInstruction& k) const { return k.dst == k.a ? frame.scratch->buffer[1].bytes : reg(k.dst); }

    // ---- lanes are consecutive elements of the flattened iteration
    void elements() {
      // Operands that alias at other elements are carried out one element after the other.
      const int64_t block = program.aliased(*this) ? 1 : kLanes;
      for (int o = 0; o < program.count_; ++o) cursor[o] = Cursor(program.element_[o], at[o]);
      IndexCursor index(program.index_, start);
      const int64_t total = program.rows_ * program.length_;
      int64_t position = 0;  // within the row
      lanes = std::min(block, total);
      for (const Decoded& d : program.hoisted_) compute(d);
      // An operand that is loaded or stored several times in the body keeps its place until the block is done.
      for (int64_t done = 0; done < total; done += lanes) {
        lanes = std::min(block, total - done);
        bool have_index = false;
        zero();
        for (const Decoded& d : program.body_) {
          const KernelInstruction& k = d.instruction;
          switch (k.op) {
            case KernelOp::load: {
              Cursor place = cursor[k.a];
              const Operand& operand = *place.operand;
              std::byte* to = reg(k.dst);
              if (operand.contiguous && place.run() >= lanes && d.convert && aligned(place.at(), std::min(operand.size, 8))) {
                d.convert(place.at(), to, static_cast<size_t>(lanes));
              } else {
                gather(place, d.convert ? raw : to, lanes);
                if (d.convert) d.convert(raw, to, static_cast<size_t>(lanes));
              }
              break;
            }
            case KernelOp::store: {
              Cursor place = cursor[k.a];
              const std::byte* from = reg(k.b);
              if (d.convert) {
                d.convert(from, raw, static_cast<size_t>(lanes));
                from = raw;
              }
              scatter(place, from, lanes);
              break;
            }
            case KernelOp::index:
              if (!have_index) index.next(number, lanes);
              have_index = true;
              set_numbers(k, number);
              break;
            case KernelOp::column: {
              int64_t columns[kLanes];
              int64_t c = position;
              for (int64_t i = 0; i < lanes; ++i) {
                columns[i] = c;
                if (++c == program.length_) c = 0;
              }
              set_numbers(k, columns);
              break;
            }
            default: compute(d);
          }
        }
        position = (position + lanes) % program.length_;
        for (int o = 0; o < program.count_; ++o) advance(cursor[o], lanes);
      }
    }

    static void advance(Cursor& c, int64_t n) {
      while (n > 0) {
        const int64_t m = std::min(n, c.run());
        c.skip(m);
        n -= m;
      }
    }

    // ---- lanes are rows
    void rows(int64_t block) {
      Cursor row[kOperands];
      for (int o = 0; o < program.count_; ++o) row[o] = Cursor(program.row_[o], at[o]);
      IndexCursor index(program.index_, start);
      std::vector<int64_t> first(static_cast<size_t>(block)), skipped(static_cast<size_t>(program.length_));
      for (int64_t r = 0; r < program.rows_; r += lanes) {
        lanes = std::min(block, program.rows_ - r);
        for (int o = 0; o < program.count_; ++o) {
          for (int64_t lane = 0; lane < lanes; ++lane) {
            address[o][lane] = row[o].at();
            row[o].skip(1);
          }
        }
        for (int64_t lane = 0; program.uses_index_ && lane < lanes; ++lane) {
          index.next(skipped.data(), program.length_);
          first[static_cast<size_t>(lane)] = skipped[0];
        }
        zero();
        column = 0;
        segment(program.prologue_, first.data());
        for (column = 0; column < program.length_; ++column) segment(program.body_, first.data());
        column = program.length_ - 1;
        segment(program.epilogue_, first.data());
      }
    }

    int64_t offset(int o) const { return program.inner_[o] == program.length_ ? column * program.inner_stride_[o] : 0; }

    void segment(const std::vector<Decoded>& code, const int64_t* first) {
      for (const Decoded& d : code) {
        const KernelInstruction& k = d.instruction;
        switch (k.op) {
          case KernelOp::load: {
            std::byte* to = d.convert ? raw : reg(k.dst);
            move_lanes(k.a, [&](std::byte* from, int64_t lane, auto size) {
              std::memcpy(to + lane * decltype(size)::value, from, decltype(size)::value);
            });
            if (d.convert) d.convert(raw, reg(k.dst), static_cast<size_t>(lanes));
            break;
          }
          case KernelOp::store: {
            const std::byte* from = reg(k.b);
            if (d.convert) {
              d.convert(from, raw, static_cast<size_t>(lanes));
              from = raw;
            }
            move_lanes(k.a, [&](std::byte* to, int64_t lane, auto size) {
              std::memcpy(to, from + lane * decltype(size)::value, decltype(size)::value);
            });
            break;
          }
          case KernelOp::index: {
            const int64_t step = column * program.index_.stride[program.index_.ndim - 1];
            for (int64_t lane = 0; lane < lanes; ++lane) number[lane] = first[lane] + step;
            set_numbers(k, number);
            break;
          }
          case KernelOp::column: set(k, static_cast<double>(column), column); break;
          default: compute(d);
        }
      }
    }

    template <typename Move>
    void move_lanes(int o, Move&& move) {
      const int64_t by = offset(o);
      const auto all = [&](auto size) {
        for (int64_t lane = 0; lane < lanes; ++lane) move(address[o][lane] + by, lane, size);
      };
      switch (program.base_[o].size) {
        case 1: all(std::integral_constant<size_t, 1>{}); break;
        case 2: all(std::integral_constant<size_t, 2>{}); break;
        case 4: all(std::integral_constant<size_t, 4>{}); break;
        default: all(std::integral_constant<size_t, 8>{});
      }
    }
  };

  // A stored operand shares bytes with another one at different elements, or several elements are stored to one place:
  // the elements must be carried out strictly in order.
  bool aliased(const Run& run) const {
    if (sequential_) return true;
    for (const auto& [a, b] : check_alias_)
      if (overlaps_unequally(element_[a], run.at[a], element_[b], run.at[b])) return true;
    return false;
  }

  std::vector<Decoded> prologue_, body_, epilogue_;
  std::vector<Decoded> hoisted_;  // before the first element, when lanes are elements
  int count_ = 0;
  Operand base_[kOperands], row_[kOperands], element_[kOperands];
  int64_t inner_[kOperands] = {}, inner_stride_[kOperands] = {};
  int64_t length_ = 1, rows_ = 0;
  IndexPattern index_;
  Registers64 zeroed_;
  unsigned stored_ = 0;  // a bit per operand
  std::vector<std::pair<int, int>> check_alias_;
  bool flat_ = false, empty_ = false, expandable_ = true, sequential_ = false, uses_index_ = false;
};

}  // namespace

std::unique_ptr<Operation> make_register_program(const Instruction& i, const Context& context) {
  return std::make_unique<RegisterProgram>(i, context);
}

}  // namespace opentrn::exec
