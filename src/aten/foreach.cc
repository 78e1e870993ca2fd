#include "aten/families.h"
#include "aten/pointwise.h"
#include "aten/reduction.h"
#include "base/error.h"

namespace opentrn::aten {
namespace {

// The i-th tensor of a list in the arithmetic of the i-th result.
Value item(Call& c, const char* list, size_t i, Scalar scalar = Scalar::rounded) {
  return {c.b, widened(c.b, c.tensors(list).at(i), c.results.at(i).dtype, scalar)};
}

// The second operand of the i-th result: a list's tensor, one tensor for all, a number's list or one number.
Value second(Call& c, size_t i, Scalar scalar) {
  const DType dtype = c.results.at(i).dtype;
  for (const char* name : {"other", "exponent", "weights", "weight", "scalar", "scalars", "value", "tensors1"}) {
    if (!c.has(name)) continue;
    const Argument& a = c.arg(name);
    if (a.kind == Argument::Kind::tensors) return item(c, name, i, scalar);
    if (a.kind == Argument::Kind::tensor) return {c.b, widened(c.b, a.value, dtype, scalar)};
    const DType first = scalar == Scalar::exact ? opmath(dtype) : dtype;
    const ValueId number = a.kind == Argument::Kind::numbers ? c.numbers(name, i, first) : c.number(name, first);
    return {c.b, c.b.convert(number, opmath(dtype))};
  }
  throw InternalError(c.op + " has no second operand");
}

template <typename Body>
Values each(Call& c, Body&& body) {
  Values results;
  for (size_t i = 0; i < c.results.size(); ++i) results.push_back(c.to_result(body(i).id, i));
  return results;
}

template <Op op>
Values function(Call& c) {
  return each(c, [&](size_t i) {
    return Value(c.b, float_function(c.b, op, c.tensors("self").at(i), c.results[i].dtype));
  });
}

template <Op op>
Values exact(Call& c) {
  return each(c, [&](size_t i) { return Value(c.b, exact_function(c.b, op, c.tensors("self").at(i))); });
}

Values frac(Call& c) {
  return each(c, [&](size_t i) {
    const Value x = item(c, "self", i);
    return x - x.unary(Op::trunc);
  });
}

template <Op op>
Values scaled_sum(Call& c) {  // add, sub
  const bool scaled = c.has("alpha") && !number_is(c, "alpha", 1);
  return each(c, [&](size_t i) {
    const Value x = item(c, "self", i, Scalar::exact);
    Value y = second(c, i, Scalar::exact);
    if (scaled) y = {c.b, arithmetic(c.b, Op::multiply, y.id, c.number("alpha", y.dtype()))};
    return Value(c.b, arithmetic(c.b, op, x.id, y.id));
  });
}

template <Op op, Scalar scalar = Scalar::rounded>
Values binary(Call& c) {
  return each(c, [&](size_t i) {
    return Value(c.b, arithmetic(c.b, op, item(c, "self", i, scalar).id, second(c, i, scalar).id));
  });
}

Values pow_scalar(Call& c) {
  return each(c, [&](size_t i) {
    return Value(c.b, power(c, c.tensors("self").at(i), "exponent", c.results[i].dtype));
  });
}

Values pow_of_scalar(Call& c) {
  return each(c, [&](size_t i) {
    const DType dtype = c.results[i].dtype;
    return Value(c.b, operand(c, "self", dtype)).binary(Op::power, item(c, "exponent", i));
  });
}

template <Op op>
Values add_product(Call& c) {  // addcmul, addcdiv
  const bool one = c.has("value") && number_is(c, "value", 1);
  return each(c, [&](size_t i) {
    const DType dtype = c.results[i].dtype, wide = opmath(dtype);
    const Value x = item(c, "self", i), p = item(c, "tensor1", i), q = item(c, "tensor2", i);
    if (one) return x + p.binary(op, q);
    Value factor = p;
    if (c.has("value")) {
      factor = {c.b, c.number("value", wide)};
    } else if (c.arg("scalars").kind == Argument::Kind::numbers) {
      factor = {c.b, c.numbers("scalars", i, wide)};
    } else {  // a tensor with one factor for each item
      const int64_t at = static_cast<int64_t>(i);
      const ValueId element = c.b.slice(c.tensor("scalars"), {at}, {at + 1}, {1});
      factor = {c.b, c.b.convert(c.b.reshape(element, {}), wide)};
    }
    return x + (factor * p).binary(op, q);
  });
}

Values lerp_list(Call& c) {
  return each(c, [&](size_t i) { return lerp(item(c, "self", i), item(c, "tensors1", i), item(c, "weights", i)); });
}

Values lerp_scalar(Call& c) {
  const double weight = c.specialise("weight");
  return each(c, [&](size_t i) { return lerp(item(c, "self", i), item(c, "tensors1", i), weight); });
}

Values lerp_scalars(Call& c) {
  return each(c, [&](size_t i) {
    const Value weight(c.b, c.numbers("weight", i, opmath(c.results[i].dtype)));
    return lerp(item(c, "self", i), item(c, "tensors1", i), weight);
  });
}

Values norm(Call& c) {
  const double p = c.specialise("ord");
  return each(c, [&](size_t i) {
    const Value x = item(c, "self", i);
    std::vector<int64_t> dims;
    for (size_t d = 0; d < x.shape().size(); ++d) dims.push_back(static_cast<int64_t>(d));
    return norm_over(x, p, dims, false);
  });
}

Values max(Call& c) {
  return each(c, [&](size_t i) {
    const Value x(c.b, c.tensors("self").at(i));
    std::vector<int64_t> dims;
    for (size_t d = 0; d < x.shape().size(); ++d) dims.push_back(static_cast<int64_t>(d));
    return x.reduce(x.dtype() == DType::boolean ? Op::reduce_or : Op::reduce_max, dims);
  });
}

Values zero(Call& c) {
  return each(c, [&](size_t i) { return Value(c.b, constant(c.b, c.results[i].dtype, 0)); });
}

Values copy(Call& c) {
  return each(c, [&](size_t i) { return Value(c.b, c.tensors("src").at(i)); });
}

Values clone(Call& c) {
  return each(c, [&](size_t i) { return Value(c.b, c.tensors("self").at(i)); });
}

}  // namespace

std::vector<Entry> foreach() {
  return {
      {"aten::_foreach_abs", exact<Op::abs>}, {"aten::_foreach_neg", exact<Op::neg>},
      {"aten::_foreach_sign", exact<Op::sign>}, {"aten::_foreach_floor", exact<Op::floor>},
      {"aten::_foreach_ceil", exact<Op::ceil>}, {"aten::_foreach_trunc", exact<Op::trunc>},
      {"aten::_foreach_round", exact<Op::round_nearest_even>}, {"aten::_foreach_frac", frac},
      {"aten::_foreach_exp", function<Op::exp>}, {"aten::_foreach_expm1", function<Op::expm1>},
      {"aten::_foreach_log", function<Op::log>}, {"aten::_foreach_log2", function<Op::log2>},
      {"aten::_foreach_log10", function<Op::log10>}, {"aten::_foreach_log1p", function<Op::log1p>},
      {"aten::_foreach_sqrt", function<Op::sqrt>}, {"aten::_foreach_rsqrt", function<Op::rsqrt>},
      {"aten::_foreach_reciprocal", function<Op::reciprocal>}, {"aten::_foreach_sigmoid", function<Op::logistic>},
      {"aten::_foreach_sin", function<Op::sin>}, {"aten::_foreach_cos", function<Op::cos>},
      {"aten::_foreach_tan", function<Op::tan>}, {"aten::_foreach_asin", function<Op::asin>},
      {"aten::_foreach_acos", function<Op::acos>}, {"aten::_foreach_atan", function<Op::atan>},
      {"aten::_foreach_sinh", function<Op::sinh>}, {"aten::_foreach_cosh", function<Op::cosh>},
      {"aten::_foreach_tanh", function<Op::tanh>}, {"aten::_foreach_erf", function<Op::erf>},
      {"aten::_foreach_erfc", function<Op::erfc>}, {"aten::_foreach_lgamma", function<Op::lgamma>},

      {"aten::_foreach_add.Scalar", scaled_sum<Op::add>}, {"aten::_foreach_add.List", scaled_sum<Op::add>},
      {"aten::_foreach_add.ScalarList", scaled_sum<Op::add>}, {"aten::_foreach_add.Tensor", scaled_sum<Op::add>},
      {"aten::_foreach_sub.Scalar", scaled_sum<Op::subtract>}, {"aten::_foreach_sub.List", scaled_sum<Op::subtract>},
      {"aten::_foreach_sub.ScalarList", scaled_sum<Op::subtract>},
      {"aten::_foreach_mul.Scalar", binary<Op::multiply, Scalar::exact>},
      {"aten::_foreach_mul.List", binary<Op::multiply, Scalar::exact>},
      {"aten::_foreach_mul.ScalarList", binary<Op::multiply, Scalar::exact>},
      {"aten::_foreach_mul.Tensor", binary<Op::multiply, Scalar::exact>},
      {"aten::_foreach_div.Scalar", binary<Op::divide, Scalar::exact>},
      {"aten::_foreach_div.List", binary<Op::divide, Scalar::exact>},
      {"aten::_foreach_div.ScalarList", binary<Op::divide, Scalar::exact>},
      {"aten::_foreach_div.Tensor", binary<Op::divide, Scalar::exact>},
      {"aten::_foreach_maximum.Scalar", binary<Op::maximum>}, {"aten::_foreach_maximum.List", binary<Op::maximum>},
      {"aten::_foreach_maximum.ScalarList", binary<Op::maximum>},
      {"aten::_foreach_minimum.Scalar", binary<Op::minimum>}, {"aten::_foreach_minimum.List", binary<Op::minimum>},
      {"aten::_foreach_minimum.ScalarList", binary<Op::minimum>},
      {"aten::_foreach_clamp_min.Scalar", binary<Op::maximum>}, {"aten::_foreach_clamp_min.List", binary<Op::maximum>},
      {"aten::_foreach_clamp_min.ScalarList", binary<Op::maximum>},
      {"aten::_foreach_clamp_max.Scalar", binary<Op::minimum>}, {"aten::_foreach_clamp_max.List", binary<Op::minimum>},
      {"aten::_foreach_clamp_max.ScalarList", binary<Op::minimum>},
      {"aten::_foreach_pow.List", binary<Op::power>}, {"aten::_foreach_pow.Scalar", pow_scalar},
      {"aten::_foreach_pow.ScalarList", binary<Op::power>}, {"aten::_foreach_pow.ScalarAndTensor", pow_of_scalar},

      {"aten::_foreach_addcmul.Scalar", add_product<Op::multiply>},
      {"aten::_foreach_addcmul.ScalarList", add_product<Op::multiply>},
      {"aten::_foreach_addcmul.Tensor", add_product<Op::multiply>},
      {"aten::_foreach_addcdiv.Scalar", add_product<Op::divide>},
      {"aten::_foreach_addcdiv.ScalarList", add_product<Op::divide>},
      {"aten::_foreach_addcdiv.Tensor", add_product<Op::divide>},
      {"aten::_foreach_lerp.List", lerp_list}, {"aten::_foreach_lerp.Scalar", lerp_scalar},
      {"aten::_foreach_lerp.ScalarList", lerp_scalars},
      {"aten::_foreach_norm.Scalar", norm}, {"aten::_foreach_max", max}, {"aten::_foreach_zero", zero},
      {"aten::_foreach_copy", copy}, {"aten::_foreach_clone", clone},
  };
}

}  // namespace opentrn::aten
