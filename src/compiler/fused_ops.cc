#include "compiler/fused_ops.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::compiler {

using graph::Op;
using isa::ActFn;
using isa::AluOp;
using isa::KernelInstruction;
using isa::KernelOp;
using isa::KernelType;

bool is_engine_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::boolean ||
         dtype == DType::f8e4m3fn || dtype == DType::f8e5m2 || dtype == DType::f8e4m3;
}

std::optional<ActFn> activation_of(Op op) {
  switch (op) {
    case Op::exp: return ActFn::exp;
    case Op::log: return ActFn::log;
    case Op::sqrt: return ActFn::sqrt;
    case Op::rsqrt: return ActFn::rsqrt;
    case Op::abs: return ActFn::abs;
    case Op::sign: return ActFn::sign;
    case Op::tanh: return ActFn::tanh;
    case Op::erf: return ActFn::erf;
    case Op::erfc: return ActFn::erfc;
    case Op::sin: return ActFn::sin;
    case Op::cos: return ActFn::cos;
    case Op::atan: return ActFn::arctan;
    case Op::log1p: return ActFn::log1p;
    case Op::expm1: return ActFn::expm1;
    case Op::floor: return ActFn::floor;
    case Op::ceil: return ActFn::ceil;
    case Op::logistic: return ActFn::sigmoid;
    default: return std::nullopt;
  }
}

std::optional<AluOp> alu_of(Op op) {
  switch (op) {
    case Op::add: return AluOp::add;
    case Op::subtract: return AluOp::subtract;
    case Op::multiply: return AluOp::mult;
    case Op::divide: return AluOp::divide;
    case Op::maximum: return AluOp::max;
    case Op::minimum: return AluOp::min;
    case Op::power: return AluOp::pow;
    case Op::compare_eq: return AluOp::is_equal;
    case Op::compare_ne: return AluOp::not_equal;
    case Op::compare_lt: return AluOp::is_lt;
    case Op::compare_le: return AluOp::is_le;
    case Op::compare_gt: return AluOp::is_gt;
    case Op::compare_ge: return AluOp::is_ge;
    case Op::logical_and: return AluOp::logical_and;
    case Op::logical_or: return AluOp::logical_or;
    case Op::logical_xor: return AluOp::logical_xor;
    default: return std::nullopt;
  }
}

AluOp reduction_alu(Op op) {
  switch (op) {
    case Op::reduce_sum: return AluOp::add;
    case Op::reduce_prod: return AluOp::mult;
    case Op::reduce_max:
    case Op::reduce_or: return AluOp::max;
    case Op::reduce_min:
    case Op::reduce_and: return AluOp::min;
    default: throw InternalError("reduction_alu: not a reduction");
  }
}

double reduction_identity(Op op, DType dtype) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool real = is_float(dtype);
  switch (op) {
    case Op::reduce_sum:
    case Op::reduce_or: return 0;
    case Op::reduce_prod:
    case Op::reduce_and: return 1;
    case Op::reduce_max:
    case Op::argmax:
      if (real) return -infinity;
      if (dtype == DType::boolean || !is_signed(dtype)) return 0;
      return -std::ldexp(1.0, static_cast<int>(size_of(dtype)) * 8 - 1);
    case Op::reduce_min:
    case Op::argmin:
      if (real) return infinity;
      if (dtype == DType::boolean) return 1;
      return std::ldexp(1.0, static_cast<int>(size_of(dtype)) * 8 - (is_signed(dtype) ? 1 : 0)) -
             (size_of(dtype) < 8 ? 1 : 0);
    default: throw InternalError("reduction_identity: not a reduction");
  }
}

KernelType kernel_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return KernelType::f64;
    case DType::i64: return KernelType::i64;
    case DType::u64: return KernelType::u64;
    case DType::u32: return KernelType::u32;
    case DType::boolean:
    case DType::u8:
    case DType::i8:
    case DType::u16:
    case DType::i16:
    case DType::i32: return KernelType::i32;
    default:
      if (is_complex(dtype)) throw Unsupported("complex arithmetic on the device");
      return KernelType::f32;
  }
}

namespace {

std::optional<KernelOp> kernel_op(Op op) {
  switch (op) {
    case Op::neg: return KernelOp::neg;
    case Op::abs: return KernelOp::abs;
    case Op::sign: return KernelOp::sign;
    case Op::exp: return KernelOp::exp;
    case Op::exp2: return KernelOp::exp2;
    case Op::expm1: return KernelOp::expm1;
    case Op::log: return KernelOp::log;
    case Op::log2: return KernelOp::log2;
    case Op::log10: return KernelOp::log10;
    case Op::log1p: return KernelOp::log1p;
    case Op::sqrt: return KernelOp::sqrt;
    case Op::rsqrt: return KernelOp::rsqrt;
    case Op::sin: return KernelOp::sin;
    case Op::cos: return KernelOp::cos;
    case Op::tan: return KernelOp::tan;
    case Op::asin: return KernelOp::asin;
    case Op::acos: return KernelOp::acos;
    case Op::atan: return KernelOp::atan;
    case Op::sinh: return KernelOp::sinh;
    case Op::cosh: return KernelOp::cosh;
    case Op::tanh: return KernelOp::tanh;
    case Op::asinh: return KernelOp::asinh;
    case Op::acosh: return KernelOp::acosh;
    case Op::atanh: return KernelOp::atanh;
    case Op::erf: return KernelOp::erf;
    case Op::erfc: return KernelOp::erfc;
    case Op::erfinv: return KernelOp::erfinv;
    case Op::lgamma: return KernelOp::lgamma;
    case Op::digamma: return KernelOp::digamma;
    case Op::floor: return KernelOp::floor;
    case Op::ceil: return KernelOp::ceil;
    case Op::round_nearest_even: return KernelOp::round;
    case Op::trunc: return KernelOp::trunc;
    case Op::bitwise_not: return KernelOp::bit_not;
    case Op::is_nan: return KernelOp::is_nan;
    case Op::is_inf: return KernelOp::is_inf;
    case Op::add: return KernelOp::add;
    case Op::subtract: return KernelOp::sub;
    case Op::multiply: return KernelOp::mul;
    case Op::divide: return KernelOp::div;
    case Op::floor_divide: return KernelOp::floor_div;
    case Op::remainder: return KernelOp::mod;
    case Op::fmod: return KernelOp::rem;
    case Op::power: return KernelOp::pow;
    case Op::maximum: return KernelOp::max;
    case Op::minimum: return KernelOp::min;
    case Op::atan2: return KernelOp::atan2;
    case Op::hypot: return KernelOp::hypot;
    case Op::copysign: return KernelOp::copysign;
    case Op::nextafter: return KernelOp::nextafter;
    case Op::bitwise_and: return KernelOp::bit_and;
    case Op::bitwise_or: return KernelOp::bit_or;
    case Op::bitwise_xor: return KernelOp::bit_xor;
    case Op::shift_left: return KernelOp::shl;
    case Op::shift_right_arithmetic: return KernelOp::sar;
    case Op::shift_right_logical: return KernelOp::shr;
    case Op::compare_eq: return KernelOp::eq;
    case Op::compare_ne: return KernelOp::ne;
    case Op::compare_lt: return KernelOp::lt;
    case Op::compare_le: return KernelOp::le;
    case Op::compare_gt: return KernelOp::gt;
    case Op::compare_ge: return KernelOp::ge;
    default: return std::nullopt;
  }
}

// Appends instructions; registers are handed out in order.
class Assembler {
 public:
  explicit Assembler(std::vector<KernelInstruction>& code, int first = 0) : code_(code), next_(first) {}

  uint8_t emit(KernelOp op, KernelType type, int a = 0, int b = 0, int c = 0, KernelType from = KernelType::f32) {
    KernelInstruction i;
    i.op = op;
    i.type = type;
    i.from = from;
    i.dst = fresh();
    i.a = static_cast<uint8_t>(a);
    i.b = static_cast<uint8_t>(b);
    i.c = static_cast<uint8_t>(c);
    code_.push_back(i);
    return i.dst;
  }
  void into(int dst, KernelOp op, KernelType type, int a = 0, int b = 0, int c = 0) {
    emit(op, type, a, b, c);
    --next_;
    code_.back().dst = static_cast<uint8_t>(dst);
  }
  uint8_t load(KernelType type, int operand) { return emit(KernelOp::load, type, operand); }
  void store(KernelType type, int operand, int reg) {
    emit(KernelOp::store, type, operand, reg);
    --next_;
    code_.back().dst = 0;
  }
  uint8_t constant(KernelType type, double real, int64_t integer) {
    const uint8_t dst = emit(KernelOp::constant, type);
    code_.back().imm = real;
    code_.back().imm_int = integer;
    return dst;
  }
  uint8_t argument(KernelType type, int index) {
    const uint8_t dst = emit(KernelOp::argument, type);
    code_.back().imm_int = index;
    return dst;
  }

 private:
  uint8_t fresh() {
    if (next_ >= isa::kKernelRegisters) throw InternalError("row program: out of registers");
    return static_cast<uint8_t>(next_++);
  }
  std::vector<KernelInstruction>& code_;
  int next_;
};

bool is_compare(Op op) { return op >= Op::compare_eq && op <= Op::compare_ge; }
bool is_logical(Op op) { return op == Op::logical_and || op == Op::logical_or || op == Op::logical_xor; }

}  // namespace

isa::GpsimdKernel elementwise_kernel(Op op, DType result, const std::vector<KernelOperand>& operands, int destination) {
  isa::GpsimdKernel kernel;
  kernel.name = fmt::format("{}_{}", graph::name_of(op), name_of(operands.empty() ? result : operands.back().dtype));
  Assembler body(kernel.body);
  auto value = [&](const KernelOperand& operand, KernelType type) -> uint8_t {
    switch (operand.kind) {
      case KernelOperand::Kind::operand: return body.load(type, operand.index);
      case KernelOperand::Kind::constant: return body.constant(type, operand.real, operand.integer);
      default: return body.argument(type, operand.index);
    }
  };
  const KernelType out = kernel_type(result);
  uint8_t r = 0;
  if (op == Op::convert) {
    const DType from = operands[0].dtype;
    const KernelType source = kernel_type(from);
    const uint8_t x = value(operands[0], source);
    if (result == DType::boolean) {
      const uint8_t zero = body.constant(source, 0, 0);
      const uint8_t set = body.emit(KernelOp::ne, source, x, zero);
      body.store(source, destination, set);
      return kernel;
    }
    r = source == out ? x : body.emit(KernelOp::convert, out, x, 0, 0, source);
  } else if (op == Op::bitcast) {
    const KernelType source = kernel_type(operands[0].dtype);
    const uint8_t x = value(operands[0], source);
    r = source == out ? x : body.emit(KernelOp::bitcast, out, x, 0, 0, source);
  } else if (op == Op::select) {
    const uint8_t p = value(operands[0], KernelType::i32);
    const uint8_t a = value(operands[1], out), b = value(operands[2], out);
    const KernelType wide = out;
    // The predicate register is an i32; select looks at its bits only, so widen it for 64-bit types.
    const uint8_t predicate =
        wide == KernelType::i32 ? p : body.emit(KernelOp::convert, wide, p, 0, 0, KernelType::i32);
    r = body.emit(KernelOp::select, wide, predicate, a, b);
  } else if (op == Op::clamp) {
    const uint8_t x = value(operands[0], out), lo = value(operands[1], out), hi = value(operands[2], out);
    r = body.emit(KernelOp::min, out, body.emit(KernelOp::max, out, x, lo), hi);
  } else if (op == Op::logical_not) {
    const KernelType source = kernel_type(operands[0].dtype);
    r = body.emit(KernelOp::eq, source, value(operands[0], source), body.constant(source, 0, 0));
    body.store(source, destination, r);
    return kernel;
  } else if (is_logical(op)) {
    const KernelType source = kernel_type(operands[0].dtype);
    const uint8_t zero = body.constant(source, 0, 0);
    const uint8_t a = body.emit(KernelOp::ne, source, value(operands[0], source), zero);
    const uint8_t b = body.emit(KernelOp::ne, source, value(operands[1], source), zero);
    if (op == Op::logical_xor)
      r = body.emit(KernelOp::ne, source, a, b);
    else if (op == Op::logical_and)
      r = body.emit(KernelOp::min, source, a, b);
    else
      r = body.emit(KernelOp::max, source, a, b);
    body.store(source, destination, r);
    return kernel;
  } else if (is_compare(op) || op == Op::is_nan || op == Op::is_inf) {
    const KernelType source = kernel_type(operands[0].dtype);
    const uint8_t a = value(operands[0], source);
    r = operands.size() == 1 ? body.emit(*kernel_op(op), source, a)
                             : body.emit(*kernel_op(op), source, a, value(operands[1], source));
    body.store(source, destination, r);
    return kernel;
  } else if (op == Op::is_finite) {
    const KernelType source = kernel_type(operands[0].dtype);
    const uint8_t a = value(operands[0], source);
    const uint8_t bad = body.emit(KernelOp::max, source, body.emit(KernelOp::is_nan, source, a),
                                  body.emit(KernelOp::is_inf, source, a));
    r = body.emit(KernelOp::eq, source, bad, body.constant(source, 0, 0));
    body.store(source, destination, r);
    return kernel;
  } else if (op == Op::reciprocal || op == Op::logistic) {
    const uint8_t one = body.constant(out, 1, 1);
    const uint8_t x = value(operands[0], out);
    r = op == Op::reciprocal ? body.emit(KernelOp::div, out, one, x)
                             : body.emit(KernelOp::div, out, one,
                                         body.emit(KernelOp::add, out, one,
                                                   body.emit(KernelOp::exp, out, body.emit(KernelOp::neg, out, x))));
  } else if (op == Op::cbrt) {
    const uint8_t x = value(operands[0], out);
    const uint8_t root =
        body.emit(KernelOp::pow, out, body.emit(KernelOp::abs, out, x), body.constant(out, 1.0 / 3, 0));
    r = body.emit(KernelOp::copysign, out, root, x);
  } else if (op == Op::fmax || op == Op::fmin) {
    const uint8_t a = value(operands[0], out), b = value(operands[1], out);
    const uint8_t m = body.emit(op == Op::fmax ? KernelOp::max : KernelOp::min, out, a, b);
    const uint8_t keep_a = body.emit(KernelOp::select, out, body.emit(KernelOp::is_nan, out, b), a, m);
    r = body.emit(KernelOp::select, out, body.emit(KernelOp::is_nan, out, a), b, keep_a);
  } else if (op == Op::bitwise_not && result == DType::boolean) {
    r = body.emit(KernelOp::eq, out, value(operands[0], out), body.constant(out, 0, 0));
  } else if (op == Op::rounded) {
    r = value(operands[0], out);
  } else if (auto direct = kernel_op(op)) {
    const uint8_t a = value(operands[0], out);
    r = operands.size() == 1 ? body.emit(*direct, out, a) : body.emit(*direct, out, a, value(operands[1], out));
  } else {
    throw Unsupported(fmt::format("operation {} on {}", graph::name_of(op), name_of(result)));
  }
  body.store(out, destination, r);
  return kernel;
}

isa::GpsimdKernel reduction_kernel(Op op, DType dtype) {
  const KernelType type = kernel_type(dtype);
  isa::GpsimdKernel kernel;
  kernel.name = fmt::format("{}_{}", graph::name_of(op), name_of(dtype));
  Assembler(kernel.prologue).load(type, 1);  // register 0
  Assembler body(kernel.body, 1);
  const uint8_t x = body.load(type, 0);
  KernelOp combine = KernelOp::add;
  if (op == Op::reduce_prod) combine = KernelOp::mul;
  if (op == Op::reduce_max || op == Op::reduce_or) combine = KernelOp::max;
  if (op == Op::reduce_min || op == Op::reduce_and) combine = KernelOp::min;
  body.into(0, combine, type, 0, x);
  Assembler(kernel.epilogue, 2).store(type, 1, 0);
  return kernel;
}

isa::GpsimdKernel arg_reduction_kernel(Op op, DType dtype) {
  const KernelType type = kernel_type(dtype);
  const KernelType position = KernelType::i64;
  isa::GpsimdKernel kernel;
  kernel.name = fmt::format("{}_{}", graph::name_of(op), name_of(dtype));
  Assembler prologue(kernel.prologue);
  prologue.load(type, 1);      // register 0: the best value so far
  prologue.load(position, 2);  // register 1: its position, -1 for none
  Assembler body(kernel.body, 2);
  const uint8_t x = body.load(type, 0);
  const uint8_t at = body.emit(KernelOp::index, position);
  uint8_t better = body.emit(op == Op::argmax ? KernelOp::gt : KernelOp::lt, type, x, 0);
  if (is_float(dtype)) {
    // NaN wins over every number; the first NaN stays.
    const uint8_t nan = body.emit(KernelOp::is_nan, type, x);
    const uint8_t best_nan = body.emit(KernelOp::is_nan, type, 0);
    const uint8_t first = body.emit(KernelOp::gt, type, nan, best_nan);
    better = body.emit(KernelOp::max, type, better, first);
  }
  const uint8_t none = body.emit(KernelOp::lt, position, 1, body.constant(position, 0, 0));
  const uint8_t none_typed = type == position ? none : body.emit(KernelOp::convert, type, none, 0, 0, position);
  better = body.emit(KernelOp::max, type, better, none_typed);
  const uint8_t better_position =
      type == position ? better : body.emit(KernelOp::convert, position, better, 0, 0, type);
  body.into(0, KernelOp::select, type, better, x, 0);
  body.into(1, KernelOp::select, position, better_position, at, 1);
  Assembler epilogue(kernel.epilogue, 32);
  epilogue.store(type, 1, 0);
  epilogue.store(position, 2, 1);
  return kernel;
}

isa::GpsimdKernel iota_kernel(DType dtype) {
  isa::GpsimdKernel kernel;
  kernel.name = fmt::format("iota_{}", name_of(dtype));
  Assembler body(kernel.body);
  const KernelType type = kernel_type(dtype);
  uint8_t r = body.emit(KernelOp::index, KernelType::i64);
  if (type != KernelType::i64) r = body.emit(KernelOp::convert, type, r, 0, 0, KernelType::i64);
  body.store(type, 0, r);
  return kernel;
}

isa::GpsimdKernel philox_kernel(int seed_argument, int offset_argument) {
  const KernelType u32 = KernelType::u32, u64 = KernelType::u64;
  isa::GpsimdKernel kernel;
  kernel.name = "philox4x32_10";
  // Per row: the round keys (Salmon et al. 2011: key words advance by the Weyl constants).
  constexpr int kKeys = 40;  // registers 40 .. 59
  {
    Assembler prologue(kernel.prologue);
    const uint8_t seed = prologue.argument(u64, seed_argument);
    const uint8_t shift = prologue.constant(u64, 32, 32);
    const uint8_t high = prologue.emit(KernelOp::shr, u64, seed, shift);
    const uint8_t k0 = prologue.emit(KernelOp::convert, u32, seed, 0, 0, u64);
    const uint8_t k1 = prologue.emit(KernelOp::convert, u32, high, 0, 0, u64);
    const uint8_t w0 = prologue.constant(u32, 0x9E3779B9u, 0x9E3779B9u);
    const uint8_t w1 = prologue.constant(u32, 0xBB67AE85u, 0xBB67AE85u);
    prologue.into(kKeys, KernelOp::move, u32, k0);
    prologue.into(kKeys + 1, KernelOp::move, u32, k1);
    for (int round = 1; round < 10; ++round) {
      prologue.into(kKeys + 2 * round, KernelOp::add, u32, kKeys + 2 * round - 2, w0);
      prologue.into(kKeys + 2 * round + 1, KernelOp::add, u32, kKeys + 2 * round - 1, w1);
    }
  }
  // Registers 0..3 the block, 4..7 products, 8.. constants and temporaries.
  Assembler body(kernel.body, 8);
  const uint8_t position = body.emit(KernelOp::index, u64);
  const uint8_t offset = body.argument(u64, offset_argument);
  const uint8_t number = body.emit(KernelOp::add, u64, position, offset);
  const uint8_t counter = body.emit(KernelOp::shr, u64, number, body.constant(u64, 2, 2));
  const uint8_t word =
      body.emit(KernelOp::bit_and, u32, body.emit(KernelOp::convert, u32, number, 0, 0, u64), body.constant(u32, 3, 3));
  const uint8_t shift = body.constant(u64, 32, 32);
  const uint8_t upper = body.emit(KernelOp::shr, u64, counter, shift);
  const uint8_t m0 = body.constant(u32, 0xD2511F53u, 0xD2511F53u);
  const uint8_t m1 = body.constant(u32, 0xCD9E8D57u, 0xCD9E8D57u);
  const uint8_t zero = body.constant(u32, 0, 0);
  const uint8_t low32 = body.emit(KernelOp::convert, u32, counter, 0, 0, u64);
  const uint8_t high32 = body.emit(KernelOp::convert, u32, upper, 0, 0, u64);
  body.into(0, KernelOp::move, u32, low32);
  body.into(1, KernelOp::move, u32, high32);
  body.into(2, KernelOp::move, u32, zero);
  body.into(3, KernelOp::move, u32, zero);
  for (int round = 0; round < 10; ++round) {
    body.into(4, KernelOp::mul_hi, u32, 0, m0);
    body.into(5, KernelOp::mul, u32, 0, m0);
    body.into(6, KernelOp::mul_hi, u32, 2, m1);
    body.into(7, KernelOp::mul, u32, 2, m1);
    body.into(6, KernelOp::bit_xor, u32, 6, 1);
    body.into(0, KernelOp::bit_xor, u32, 6, kKeys + 2 * round);
    body.into(1, KernelOp::move, u32, 7);
    body.into(4, KernelOp::bit_xor, u32, 4, 3);
    body.into(2, KernelOp::bit_xor, u32, 4, kKeys + 2 * round + 1);
    body.into(3, KernelOp::move, u32, 5);
  }
  for (int k = 1; k < 4; ++k)
    body.into(0, KernelOp::select, u32, body.emit(KernelOp::eq, u32, word, body.constant(u32, k, k)), k, 0);
  body.store(u32, 0, 0);
  return kernel;
}

}  // namespace opentrn::compiler
