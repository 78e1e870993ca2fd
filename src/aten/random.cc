#include <cmath>
#include <limits>

#include "aten/families.h"
#include "aten/support.h"
#include "base/error.h"

namespace opentrn::aten {
namespace {

constexpr double kTwoPi = 6.28318530717958647693;

ValueId bits(Call& c, const Shape& shape) {
  auto [seed, offset] = c.philox(graph::elements(shape));
  return c.b.random_bits(shape, seed, offset);
}

// The upper `digits` bits of a random word as an integer-valued number of `dtype`.
Value upper_bits(Call& c, const Shape& shape, int digits, DType dtype) {
  const Value word(c.b, bits(c, shape));
  return word.binary(Op::shift_right_logical, 32 - digits).convert(dtype);
}

// Uniform on [0, 1) with as many random digits as the dtype has, so that 1 is never reached by rounding.
Value uniform01(Call& c, const Shape& shape, DType dtype) {
  if (dtype == DType::f64) {
    const Value high = upper_bits(c, shape, 32, DType::f64), low = upper_bits(c, shape, 21, DType::f64);
    return (high * 0x1p21 + low) * 0x1p-53;
  }
  const int digits = dtype == DType::f16 ? 11 : dtype == DType::bf16 ? 8 : 24;
  return upper_bits(c, shape, digits, DType::f32) * std::ldexp(1.0, -digits);
}

// Uniform on (0, 1), whose logarithm is finite and not zero.
Value uniform_open(Call& c, const Shape& shape, DType dtype) {
  if (dtype == DType::f64) return uniform01(c, shape, dtype) + 0x1p-54;
  return (upper_bits(c, shape, 23, DType::f32) + 0.5) * 0x1p-23;
}

// Standard normal numbers by Box and Muller: a pair of uniform numbers gives two of them.
Value standard_normal(Call& c, const Shape& shape, DType dtype) {
  const int64_t count = graph::elements(shape), half = (count + 1) / 2;
  const DType wide = opmath(dtype);
  const Value radius = sqrt(-2.0 * log(uniform_open(c, {half}, wide)));
  const Value angle = uniform01(c, {half}, wide) * kTwoPi;
  ValueId both = c.b.concatenate({(radius * angle.unary(Op::cos)).id, (radius * angle.unary(Op::sin)).id}, 0);
  both = c.b.slice(both, {0}, {count}, {1});
  return {c.b, c.b.reshape(both, shape)};
}

Value number(Call& c, const char* name) { return {c.b, c.number(name, opmath(c.results[0].dtype))}; }

Values uniform(Call& c) {
  const Type& type = c.results[0];
  const Value u = uniform01(c, type.shape, type.dtype);
  if (!c.has("from")) return {c.to_result(u.id)};  // rand
  const Value from = number(c, "from");
  return {c.to_result((u * (number(c, "to") - from) + from).id)};
}

Values normal(Call& c) {
  const Type& type = c.results[0];
  const Value z = standard_normal(c, type.shape, type.dtype);
  if (!c.has("mean")) return {c.to_result(z.id)};  // randn
  auto parameter = [&](const char* name) {
    return c.arg(name).kind == Argument::Kind::tensor ? input(c, name, type.dtype) : number(c, name);
  };
  const Value std = parameter("std");
  return {c.to_result((z * std + parameter("mean")).id)};
}

// True with probability p: a number, or a tensor of the result's shape.
Value bernoulli_draw(Call& c, const Shape& shape, Value p) {
  const DType dtype = is_float(p.dtype()) ? p.dtype() : DType::f32;
  return uniform01(c, shape, dtype) < p.convert(dtype);
}

Values bernoulli(Call& c) {
  const Type& type = c.results[0];
  const char* name = c.has("p") ? "p" : "self";  // without p, self holds the probabilities
  const Argument& p = c.arg(name);
  const Value probability = p.kind == Argument::Kind::tensor
                                ? Value(c.b, widened(c.b, p.value, c.b.dtype(p.value)))
                                : Value(c.b, c.number(name, DType::f32));
  return {c.to_result(bernoulli_draw(c, type.shape, probability).id)};
}

Values native_dropout(Call& c) {
  const ValueId x = c.tensor("input");
  if (c.has("train") && !c.boolean("train")) return {c.to_result(x), filled(c, 1, 1)};
  const double kept = 1 - c.specialise("p");  // 1 / (1 - p) is computed in f64, as PyTorch does
  const Value v = input(c, "input", c.results[0].dtype);
  const Value mask = bernoulli_draw(c, v.shape(), Value(c.b, constant(c.b, DType::f32, kept)));
  // A dropped NaN or infinity stays NaN, as in PyTorch, where the mask is a factor.
  const Value y = v * mask.convert(v.dtype()) * (kept == 0 ? 0 : 1 / kept);
  return {c.to_result(y.id), c.to_result(mask.id, 1)};
}

Values native_dropout_backward(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value mask(c.b, c.tensor_as("mask", opmath(dtype)));
  return {c.to_result((input(c, "grad_output", dtype) * mask * number(c, "scale")).id)};
}

// Integers from low on, `range` of them (up to 2^32 and beyond); range 0 stands for 2^64.
Value integers_below(Call& c, const Shape& shape, uint64_t range, int64_t low) {
  const Value word(c.b, bits(c, shape));
  Value x = word;
  if (range != 0 && range < (uint64_t{1} << 32)) {
    x = (range & (range - 1)) == 0 ? word.binary(Op::bitwise_and, static_cast<double>(range - 1))
                                   : word.binary(Op::remainder, static_cast<double>(range));
    x = x.convert(DType::i64);
  } else {
    const Value high(c.b, bits(c, shape));
    const Value shift(c.b, c.b.constant_int(DType::u64, 32));
    x = high.convert(DType::u64).binary(Op::shift_left, shift).binary(Op::bitwise_or, word.convert(DType::u64));
    if (range != 0) x = x.binary(Op::remainder, Value(c.b, c.b.constant_int(DType::u64, static_cast<int64_t>(range))));
    x = x.convert(DType::i64);
  }
  return low == 0 ? x : x + Value(c.b, c.b.constant_int(DType::i64, low));
}

// The number of integers that random_() draws from: all that the dtype represents exactly, from 0 on.
uint64_t whole_range(DType dtype) {
  switch (dtype) {
    case DType::boolean: return 2;
    case DType::f64: return (uint64_t{1} << 53) + 1;
    case DType::f32: return (uint64_t{1} << 24) + 1;
    case DType::f16: return (uint64_t{1} << 11) + 1;
    case DType::bf16: return (uint64_t{1} << 8) + 1;
    case DType::i64: return uint64_t{1} << 63;
    case DType::u64: return 0;
    default: return uint64_t{1} << (size_of(dtype) * 8 - is_signed(dtype));
  }
}

// random_, random_.to, random_.from and randint: from `low` (or 0) up to and without `high` (or the dtype's end).
Values random_integers(Call& c) {
  const Type& type = c.results[0];
  const bool randint = c.op.find("randint") != std::string::npos;
  const char* from = randint ? "low" : "from";
  const char* to = randint ? "high" : "to";
  const int64_t low = c.has(from) ? c.integer(from) : 0;
  const uint64_t end = c.has(to) ? static_cast<uint64_t>(c.integer(to)) : whole_range(type.dtype);
  return {c.to_result(integers_below(c, type.shape, end - static_cast<uint64_t>(low), low).id)};
}

Values exponential(Call& c) {
  const Type& type = c.results[0];
  const Value u = uniform_open(c, type.shape, opmath(type.dtype));
  return {c.to_result((-log(u) / number(c, "lambd")).id)};
}

Values geometric(Call& c) {
  const Type& type = c.results[0];
  const DType wide = is_float(type.dtype) ? opmath(type.dtype) : DType::f32;
  const Value u = uniform_open(c, type.shape, wide), p(c.b, c.number("p", wide));
  return {c.to_result((log(u) / log1p(-p)).unary(Op::ceil).id)};
}

Values log_normal(Call& c) {
  const Type& type = c.results[0];
  return {c.to_result(exp(standard_normal(c, type.shape, type.dtype) * number(c, "std") + number(c, "mean")).id)};
}

Values cauchy(Call& c) {
  const Type& type = c.results[0];
  const Value u = uniform_open(c, type.shape, opmath(type.dtype));
  const Value t = ((u - 0.5) * (kTwoPi / 2)).unary(Op::tan);
  return {c.to_result((number(c, "median") + number(c, "sigma") * t).id)};
}

Values randperm(Call& c) {
  return {c.to_result(c.b.sort(bits(c, c.results[0].shape), 0, false).second)};
}

// An exponential race: category i wins with probability p_i when each runs for an exponential time divided by p_i.
Values multinomial(Call& c) {
  const Value p(c.b, operand(c, "self", c.b.dtype(c.tensor("self"))));
  Shape shape = p.shape();
  const int64_t samples = c.integer("num_samples"), last = static_cast<int64_t>(shape.size()) - 1;
  if (samples == 1 || !c.boolean("replacement")) {
    const Value speed = p / -log(uniform_open(c, shape, p.dtype()));
    if (samples == 1) return {c.shaped(c.b.arg_reduce(Op::argmax, speed.id, last))};
    return {c.shaped(c.b.top_k(speed.id, samples).second)};
  }
  Shape one = shape;  // a race for each sample
  one.insert(one.end() - 1, 1);
  shape.insert(shape.end() - 1, samples);
  const Value speed = Value(c.b, c.b.reshape(p.id, one)) / -log(uniform_open(c, shape, p.dtype()));
  return {c.shaped(c.b.arg_reduce(Op::argmax, speed.id, last + 1))};
}

}  // namespace

std::vector<Entry> random() {
  return {
      {"aten::uniform", uniform}, {"aten::rand", uniform}, {"aten::rand_like", uniform},
      {"aten::normal_functional", normal}, {"aten::normal.Tensor_float", normal},
      {"aten::normal.float_Tensor", normal}, {"aten::normal.Tensor_Tensor", normal}, {"aten::normal.float_float", normal},
      {"aten::randn", normal}, {"aten::randn_like", normal},
      {"aten::bernoulli", bernoulli}, {"aten::bernoulli.p", bernoulli},
      {"aten::bernoulli.Tensor", bernoulli}, {"aten::native_dropout", native_dropout},
      {"aten::native_dropout_backward", native_dropout_backward},
      {"aten::random", random_integers}, {"aten::random.to", random_integers}, {"aten::random.from", random_integers},
      {"aten::randint", random_integers}, {"aten::randint.low", random_integers},
      {"aten::randint_like", random_integers}, {"aten::randint_like.low_dtype", random_integers},
      {"aten::exponential", exponential}, {"aten::geometric", geometric}, {"aten::log_normal", log_normal},
      {"aten::cauchy", cauchy}, {"aten::randperm", randperm}, {"aten::multinomial", multinomial},
  };
}

}  // namespace opentrn::aten
