#include "aten/pointwise.h"

#include <cmath>
#include <limits>

#include "aten/families.h"
#include "base/error.h"

namespace opentrn::aten {

ValueId arithmetic(Builder& b, Op op, ValueId x, ValueId y) {
  if (b.dtype(x) == DType::boolean) {
    if (op == Op::add || op == Op::maximum) op = Op::logical_or;
    if (op == Op::multiply || op == Op::minimum) op = Op::logical_and;
  }
  return b.binary(op, x, y);
}

ValueId float_function(Builder& b, Op op, ValueId x, DType dtype) {
  return b.convert(b.unary(op, b.convert(b.convert(x, dtype), opmath(dtype))), dtype);
}

ValueId exact_function(Builder& b, Op op, ValueId x) {
  const DType dtype = b.dtype(x);
  const bool rounds = op == Op::floor || op == Op::ceil || op == Op::trunc || op == Op::round_nearest_even;
  if (!is_float(dtype) && (rounds || (dtype == DType::boolean && op != Op::neg))) return x;
  return b.convert(b.unary(op, b.convert(x, opmath(dtype))), dtype);
}

Value lerp(Value x, Value y, Value weight) {
  const Value difference = y - x;
  return select(abs(weight) < 0.5, x + weight * difference, y - difference * (1.0 - weight));
}

ValueId power(Call& c, ValueId x, std::string_view name, DType dtype) {
  // The exponents that PyTorch's CPU computes without pow.
  for (double exponent : {0.0, 0.5, 1.0, 2.0, 3.0, -0.5, -1.0, -2.0}) {
    if (!number_is(c, name, exponent)) continue;
    const Value v(c.b, widened(c.b, x, dtype));
    if (!is_float(dtype) && (exponent < 0 || exponent == 0.5)) break;
    const Value result = exponent == 0   ? v.constant(1)
                         : exponent == 1 ? v
                         : exponent == 2 ? v * v
                         : exponent == 3 ? v * v * v
                         : exponent == 0.5  ? sqrt(v)
                         : exponent == -0.5 ? rsqrt(v)
                         : exponent == -1   ? v.unary(Op::reciprocal)
                                            : (v * v).unary(Op::reciprocal);
    return c.b.broadcast(result.id, c.b.shape(x));
  }
  return c.b.binary(Op::power, widened(c.b, x, dtype), operand(c, name, dtype));
}

Value lerp(Value x, Value y, double weight) {
  return std::fabs(weight) < 0.5 ? x + weight * (y - x) : y - (y - x) * (1 - weight);
}

namespace {

template <Op op>
Values function(Call& c) {
  return {c.to_result(float_function(c.b, op, c.tensor("self"), c.results[0].dtype))};
}

template <Op op>
Values exact(Call& c) {
  return {c.to_result(exact_function(c.b, op, c.tensor("self")))};
}

template <Op op>
Values classify(Call& c) {
  return {c.to_result(c.b.unary(op, c.tensor("self")))};
}

template <bool negative>
Values signed_infinity(Call& c) {
  const ValueId self = c.tensor("self");
  if (!is_float(c.b.dtype(self))) return {filled(c, 0)};
  const double infinity = std::numeric_limits<double>::infinity();
  return {c.to_result(equal(Value(c.b, self), negative ? -infinity : infinity).id)};
}

Values signbit(Call& c) {
  const Value x(c.b, operand(c, "self", c.b.dtype(c.tensor("self"))));
  if (!is_float(x.dtype())) return {is_signed(x.dtype()) ? c.to_result((x < 0.0).id) : filled(c, 0)};
  return {c.to_result((x.constant(1).binary(Op::copysign, x) < 0.0).id)};
}

Values sinc(Call& c) {
  constexpr double kPi = 3.14159265358979323846;
  const Value x = input(c, "self", c.results[0].dtype), y = x * kPi;
  return {c.to_result(select(equal(x, 0.0), 1.0, y.unary(Op::sin) / y).id)};
}

Values entropy(Call& c) {  // -x log(x), 0 at 0 and -inf below
  const Value x = input(c, "self", c.results[0].dtype);
  const Value inside = select(equal(x, 0.0), 0.0, select(x < 0.0, -std::numeric_limits<double>::infinity(), -x * log(x)));
  return {c.to_result(select(x.unary(Op::is_nan), x, inside).id)};
}

Values logit(Call& c) {
  Value x = input(c, "self", c.results[0].dtype);
  if (c.has("eps")) {
    const Value eps(c.b, c.number("eps", x.dtype()));
    x = maximum(minimum(x, 1.0 - eps), eps);
  }
  return {c.to_result(log(x / (1.0 - x)).id)};
}

Values logit_backward(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value x = input(c, "self", dtype), grad = input(c, "grad_output", dtype), slope = grad / (x * (1.0 - x));
  if (!c.has("eps")) return {c.to_result(select(x < 0.0 || x > 1.0, std::nan(""), slope).id)};
  const Value eps(c.b, c.number("eps", x.dtype()));
  return {c.to_result(select(x < eps || x > 1.0 - eps, 0.0, slope).id)};
}

Values frac(Call& c) {
  const Value x = input(c, "self", c.results[0].dtype);
  return {c.to_result((x - x.unary(Op::trunc)).id)};
}

Values round_decimals(Call& c) {
  const int64_t decimals = c.integer("decimals");
  const Value x = input(c, "self", c.results[0].dtype);
  if (!is_float(x.dtype())) return {c.to_result(x.id)};
  const double scale = std::pow(10.0, static_cast<double>(std::llabs(decimals)));
  const Value scaled = (decimals < 0 ? x / scale : x * scale).unary(Op::round_nearest_even);
  return {c.to_result((decimals < 0 ? scaled * scale : scaled / scale).id)};
}

// ---- two operands

// The operands in opmath, as both arguments of the arithmetic kernels.
std::pair<ValueId, ValueId> pair(Call& c, DType dtype, Scalar scalar, const char* x = "self", const char* y = "other") {
  return {operand(c, x, dtype, scalar), operand(c, y, dtype, scalar)};
}

template <Op op>
Values scaled_sum(Call& c) {  // add, sub
  auto [x, y] = pair(c, c.compute, Scalar::exact);
  if (c.has("alpha") && !number_is(c, "alpha", 1))
    y = arithmetic(c.b, Op::multiply, y, c.number("alpha", opmath(c.compute)));
  return {c.to_result(arithmetic(c.b, op, x, y))};
}

Values rsub(Call& c) {
  auto [x, y] = pair(c, c.compute, Scalar::exact);
  if (!number_is(c, "alpha", 1)) x = arithmetic(c.b, Op::multiply, x, c.number("alpha", opmath(c.compute)));
  return {c.to_result(c.b.binary(Op::subtract, y, x))};
}

template <Op op, Scalar scalar = Scalar::rounded>
Values binary(Call& c) {
  auto [x, y] = pair(c, math_type(c), scalar);
  return {c.to_result(arithmetic(c.b, op, x, y))};
}

ValueId divided(Call& c, std::string_view mode) {
  const DType dtype = mode.empty() ? math_type(c) : c.compute;
  auto [x, y] = pair(c, dtype, Scalar::exact);
  if (mode.empty()) return c.b.binary(Op::divide, x, y);
  if (mode == "floor") return c.b.binary(Op::floor_divide, x, y);
  const ValueId quotient = c.b.binary(Op::divide, x, y);
  if (!is_float(dtype)) return quotient;
  return c.b.unary(Op::trunc, widened(c.b, quotient, dtype));  // the CPU rounds the quotient before it truncates
}

Values div(Call& c) { return {c.to_result(divided(c, c.has("rounding_mode") ? c.arg("rounding_mode").text : ""))}; }
Values floor_divide(Call& c) { return {c.to_result(divided(c, "floor"))}; }

Values pow_tensor(Call& c) {
  auto [x, y] = pair(c, math_type(c), Scalar::rounded, "self", "exponent");
  return {c.to_result(c.b.binary(Op::power, x, y))};
}

Values pow_tensor_scalar(Call& c) { return {c.to_result(power(c, c.tensor("self"), "exponent", math_type(c)))}; }

template <Op op>
Values compare(Call& c) {
  auto [x, y] = pair(c, c.compute, Scalar::rounded);
  return {c.to_result(c.b.binary(op, x, y))};
}

template <Op op>
Values logical(Call& c) {
  return {c.to_result(c.b.binary(op, as_bool(c.b, c.tensor("self")), as_bool(c.b, c.tensor("other"))))};
}

Values logical_not(Call& c) { return {c.to_result(c.b.unary(Op::logical_not, as_bool(c.b, c.tensor("self"))))}; }

Values logaddexp(Call& c) {
  const DType dtype = math_type(c);
  const Value x = input(c, "self", dtype), y = input(c, "other", dtype);
  const Value largest = maximum(x, y);
  const Value sum = largest + log1p(exp(-abs(x - y)));
  return {c.to_result(select(abs(x).unary(Op::is_inf) && equal(x, y), x, sum).id)};
}

// x * f(y), where x = 0 gives 0 unless y is NaN.
Values times_logarithm(Call& c, Op logarithm) {
  const DType dtype = math_type(c);
  const Value x = input(c, "self", dtype), y = input(c, "other", dtype);
  const Value product = select(equal(x, 0.0), 0.0, x * y.unary(logarithm));
  return {c.to_result(select(y.unary(Op::is_nan), y, product).id)};
}

Values xlogy(Call& c) { return times_logarithm(c, Op::log); }
Values xlog1py(Call& c) { return times_logarithm(c, Op::log1p); }

// On the format of the operands themselves, which are not widened.
Values nextafter(Call& c) {
  return {c.to_result(c.b.binary(Op::nextafter, c.tensor_as("self", c.compute), c.tensor_as("other", c.compute)))};
}

Values logaddexp2(Call& c) {
  constexpr double kLog2e = 1.44269504088896340736;
  const DType dtype = math_type(c);
  const Value x = input(c, "self", dtype), y = input(c, "other", dtype);
  const Value sum = maximum(x, y) + log1p((-abs(x - y)).unary(Op::exp2)) * kLog2e;
  return {c.to_result(select(abs(x).unary(Op::is_inf) && equal(x, y), x, sum).id)};
}

Values heaviside(Call& c) {
  const DType dtype = math_type(c);
  const Value x = input(c, "self", dtype), at_zero = input(c, "values", dtype);
  if (x.dtype() == DType::boolean) return {c.to_result((x || at_zero).id)};
  return {c.to_result(select(equal(x, 0.0), at_zero, (x > 0.0).convert(x.dtype())).id)};
}

// ---- three operands

Values where(Call& c) {
  const DType dtype = c.results[0].dtype;
  auto value = [&](const char* name) {
    return c.arg(name).kind == Argument::Kind::tensor ? c.tensor_as(name, dtype) : c.number(name, dtype);
  };
  const ValueId a = value("self");
  return {c.to_result(c.b.select(as_bool(c.b, c.tensor("condition")), a, value("other")))};
}

Values masked_fill(Call& c) {
  const DType dtype = c.results[0].dtype;
  const ValueId value = c.b.convert(c.number("value", dtype), dtype);
  return {c.to_result(c.b.select(as_bool(c.b, c.tensor("mask")), value, c.tensor_as("self", dtype)))};
}

// clamp, clamp_min, clamp_max: bounds are tensors or numbers and may be missing.
Values clamp(Call& c) {
  ValueId x = operand(c, "self", c.compute);
  if (c.has("min")) x = arithmetic(c.b, Op::maximum, x, operand(c, "min", c.compute));
  if (c.has("max")) x = arithmetic(c.b, Op::minimum, x, operand(c, "max", c.compute));
  return {c.to_result(x)};
}

Values lerp_(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value x = input(c, "self", dtype), y = input(c, "end", dtype);
  if (c.arg("weight").kind == Argument::Kind::tensor)
    return {c.to_result(lerp(x, y, input(c, "weight", dtype, Scalar::exact)).id)};
  return {c.to_result(lerp(x, y, c.specialise("weight")).id)};
}

template <Op op>
Values add_product(Call& c) {  // addcmul, addcdiv: self + value * tensor1 (* or /) tensor2
  const DType dtype = math_type(c);
  const Value x = input(c, "self", dtype, Scalar::exact), p = input(c, "tensor1", dtype, Scalar::exact),
              q = input(c, "tensor2", dtype, Scalar::exact);
  const Value scaled = number_is(c, "value", 1) ? p : Value(c.b, c.number("value", opmath(dtype))) * p;
  return {c.to_result((x + scaled.binary(op, q)).id)};
}

Values nan_to_num(Call& c) {
  const DType dtype = c.results[0].dtype;
  const ValueId self = c.tensor("self");
  if (!is_float(dtype)) return {c.to_result(self)};
  const double largest = dtype == DType::f64   ? std::numeric_limits<double>::max()
                         : dtype == DType::f32 ? static_cast<double>(std::numeric_limits<float>::max())
                         : dtype == DType::f16 ? 65504.0
                         : dtype == DType::bf16 ? 0x1.fep127
                                                : throw Unsupported("nan_to_num of 8-bit floats");
  auto bound = [&](const char* name, double fallback) {
    return Value(c.b, c.has(name) ? c.number(name, dtype) : constant(c.b, dtype, fallback));
  };
  const Value x(c.b, self), infinity = x.constant(std::numeric_limits<double>::infinity());
  Value y = select(x.unary(Op::is_nan), bound("nan", 0), x);
  y = select(equal(x, infinity), bound("posinf", largest), y);
  return {c.to_result(select(equal(x, -std::numeric_limits<double>::infinity()), bound("neginf", -largest), y).id)};
}

Values isin(Call& c) {
  const Value x = input(c, c.has("element") ? "element" : "elements", c.compute);
  const bool single = c.has("test_element");
  const Value test = input(c, single ? "test_element" : "test_elements", c.compute);
  auto search = [&] {
    if (single) return equal(x, test);
    Shape column = x.shape();
    column.push_back(1);
    const Value row(c.b, c.b.reshape(test.id, {graph::elements(test.shape())}));
    const int64_t last = static_cast<int64_t>(column.size()) - 1;
    return equal(Value(c.b, c.b.reshape(x.id, column)), row).reduce(Op::reduce_or, {last});
  };
  const Value found = search();
  return {c.to_result(c.boolean("invert") ? (!found).id : found.id)};
}

template <bool to_degrees>
Values angle_unit(Call& c) {
  constexpr double kDegrees = 57.29577951308232087680;
  const Value x = input(c, "self", c.results[0].dtype);
  return {c.to_result((x * (to_degrees ? kDegrees : 1 / kDegrees)).id)};
}

}  // namespace

std::vector<Entry> pointwise() {
  return {
      {"aten::abs", exact<Op::abs>}, {"aten::neg", exact<Op::neg>}, {"aten::sign", exact<Op::sign>},
      {"aten::sgn", exact<Op::sign>}, {"aten::floor", exact<Op::floor>}, {"aten::ceil", exact<Op::ceil>},
      {"aten::trunc", exact<Op::trunc>}, {"aten::round", exact<Op::round_nearest_even>},
      {"aten::round.decimals", round_decimals}, {"aten::frac", frac}, {"aten::rad2deg", angle_unit<true>},
      {"aten::deg2rad", angle_unit<false>}, {"aten::sinc", sinc}, {"aten::special_entr", entropy}, {"aten::logit", logit},
      {"aten::logit_backward", logit_backward}, {"aten::positive", exact<Op::rounded>},
      {"aten::exp", function<Op::exp>}, {"aten::exp2", function<Op::exp2>}, {"aten::expm1", function<Op::expm1>},
      {"aten::log", function<Op::log>}, {"aten::log2", function<Op::log2>}, {"aten::log10", function<Op::log10>},
      {"aten::log1p", function<Op::log1p>}, {"aten::sqrt", function<Op::sqrt>}, {"aten::rsqrt", function<Op::rsqrt>},
      {"aten::reciprocal", function<Op::reciprocal>}, {"aten::sin", function<Op::sin>}, {"aten::cos", function<Op::cos>},
      {"aten::tan", function<Op::tan>}, {"aten::asin", function<Op::asin>}, {"aten::acos", function<Op::acos>},
      {"aten::atan", function<Op::atan>}, {"aten::sinh", function<Op::sinh>}, {"aten::cosh", function<Op::cosh>},
      {"aten::tanh", function<Op::tanh>}, {"aten::asinh", function<Op::asinh>}, {"aten::acosh", function<Op::acosh>},
      {"aten::atanh", function<Op::atanh>}, {"aten::erf", function<Op::erf>}, {"aten::erfc", function<Op::erfc>},
      {"aten::erfinv", function<Op::erfinv>}, {"aten::lgamma", function<Op::lgamma>},
      {"aten::digamma", function<Op::digamma>}, {"aten::sigmoid", function<Op::logistic>},
      {"aten::isnan", classify<Op::is_nan>}, {"aten::isinf", classify<Op::is_inf>},
      {"aten::isfinite", classify<Op::is_finite>}, {"aten::isneginf", signed_infinity<true>},
      {"aten::isposinf", signed_infinity<false>}, {"aten::signbit", signbit}, {"aten::nan_to_num", nan_to_num},
      {"aten::logical_not", logical_not}, {"aten::bitwise_not", classify<Op::bitwise_not>},

      {"aten::add.Tensor", scaled_sum<Op::add>}, {"aten::add.Scalar", scaled_sum<Op::add>},
      {"aten::sub.Tensor", scaled_sum<Op::subtract>}, {"aten::sub.Scalar", scaled_sum<Op::subtract>},
      {"aten::rsub.Tensor", rsub}, {"aten::rsub.Scalar", rsub},
      {"aten::mul.Tensor", binary<Op::multiply, Scalar::exact>}, {"aten::mul.Scalar", binary<Op::multiply, Scalar::exact>},
      {"aten::div.Tensor", div}, {"aten::div.Scalar", div}, {"aten::div.Tensor_mode", div}, {"aten::div.Scalar_mode", div},
      {"aten::floor_divide", floor_divide}, {"aten::floor_divide.Scalar", floor_divide},
      {"aten::remainder.Tensor", binary<Op::remainder>}, {"aten::remainder.Scalar", binary<Op::remainder>},
      {"aten::remainder.Scalar_Tensor", binary<Op::remainder>},
      {"aten::fmod.Tensor", binary<Op::fmod>}, {"aten::fmod.Scalar", binary<Op::fmod>},
      {"aten::pow.Tensor_Tensor", pow_tensor}, {"aten::pow.Scalar", pow_tensor},
      {"aten::pow.Tensor_Scalar", pow_tensor_scalar},
      {"aten::maximum", binary<Op::maximum>}, {"aten::minimum", binary<Op::minimum>},
      {"aten::max.other", binary<Op::maximum>}, {"aten::min.other", binary<Op::minimum>},
      {"aten::fmax", binary<Op::fmax>}, {"aten::fmin", binary<Op::fmin>}, {"aten::atan2", binary<Op::atan2>},
      {"aten::hypot", binary<Op::hypot>}, {"aten::copysign.Tensor", binary<Op::copysign>},
      {"aten::copysign.Scalar", binary<Op::copysign>}, {"aten::logaddexp", logaddexp}, {"aten::xlogy.Tensor", xlogy},
      {"aten::xlogy.Scalar_Other", xlogy}, {"aten::xlogy.Scalar_Self", xlogy}, {"aten::special_xlog1py", xlog1py},
      {"aten::special_xlog1py.other_scalar", xlog1py}, {"aten::special_xlog1py.self_scalar", xlog1py},
      {"aten::logaddexp2", logaddexp2}, {"aten::heaviside", heaviside}, {"aten::nextafter", nextafter},

      {"aten::eq.Tensor", compare<Op::compare_eq>}, {"aten::eq.Scalar", compare<Op::compare_eq>},
      {"aten::ne.Tensor", compare<Op::compare_ne>}, {"aten::ne.Scalar", compare<Op::compare_ne>},
      {"aten::lt.Tensor", compare<Op::compare_lt>}, {"aten::lt.Scalar", compare<Op::compare_lt>},
      {"aten::le.Tensor", compare<Op::compare_le>}, {"aten::le.Scalar", compare<Op::compare_le>},
      {"aten::gt.Tensor", compare<Op::compare_gt>}, {"aten::gt.Scalar", compare<Op::compare_gt>},
      {"aten::ge.Tensor", compare<Op::compare_ge>}, {"aten::ge.Scalar", compare<Op::compare_ge>},
      {"aten::logical_and", logical<Op::logical_and>}, {"aten::logical_or", logical<Op::logical_or>},
      {"aten::logical_xor", logical<Op::logical_xor>},
      {"aten::bitwise_and.Tensor", binary<Op::bitwise_and>}, {"aten::bitwise_and.Scalar", binary<Op::bitwise_and>},
      {"aten::bitwise_and.Scalar_Tensor", binary<Op::bitwise_and>},
      {"aten::bitwise_or.Tensor", binary<Op::bitwise_or>}, {"aten::bitwise_or.Scalar", binary<Op::bitwise_or>},
      {"aten::bitwise_or.Scalar_Tensor", binary<Op::bitwise_or>},
      {"aten::bitwise_xor.Tensor", binary<Op::bitwise_xor>}, {"aten::bitwise_xor.Scalar", binary<Op::bitwise_xor>},
      {"aten::bitwise_xor.Scalar_Tensor", binary<Op::bitwise_xor>},
      {"aten::__and__.Tensor", binary<Op::bitwise_and>}, {"aten::__and__.Scalar", binary<Op::bitwise_and>},
      {"aten::__or__.Tensor", binary<Op::bitwise_or>}, {"aten::__or__.Scalar", binary<Op::bitwise_or>},
      {"aten::__xor__.Tensor", binary<Op::bitwise_xor>}, {"aten::__xor__.Scalar", binary<Op::bitwise_xor>},
      {"aten::bitwise_left_shift.Tensor", binary<Op::shift_left>},
      {"aten::bitwise_left_shift.Tensor_Scalar", binary<Op::shift_left>},
      {"aten::bitwise_left_shift.Scalar_Tensor", binary<Op::shift_left>},
      {"aten::bitwise_right_shift.Tensor", binary<Op::shift_right_arithmetic>},
      {"aten::bitwise_right_shift.Tensor_Scalar", binary<Op::shift_right_arithmetic>},
      {"aten::bitwise_right_shift.Scalar_Tensor", binary<Op::shift_right_arithmetic>},
      {"aten::__lshift__.Tensor", binary<Op::shift_left>}, {"aten::__lshift__.Scalar", binary<Op::shift_left>},
      {"aten::__rshift__.Tensor", binary<Op::shift_right_arithmetic>},
      {"aten::__rshift__.Scalar", binary<Op::shift_right_arithmetic>},

      {"aten::where.self", where}, {"aten::where.ScalarOther", where}, {"aten::where.ScalarSelf", where},
      {"aten::where.Scalar", where}, {"aten::masked_fill.Scalar", masked_fill}, {"aten::masked_fill.Tensor", masked_fill},
      {"aten::clamp", clamp}, {"aten::clamp.Tensor", clamp}, {"aten::clamp_min", clamp}, {"aten::clamp_min.Tensor", clamp},
      {"aten::clamp_max", clamp}, {"aten::clamp_max.Tensor", clamp},
      {"aten::lerp.Scalar", lerp_}, {"aten::lerp.Tensor", lerp_},
      {"aten::addcmul", add_product<Op::multiply>}, {"aten::addcdiv", add_product<Op::divide>},
      {"aten::isin.Tensor_Tensor", isin}, {"aten::isin.Tensor_Scalar", isin}, {"aten::isin.Scalar_Tensor", isin},
  };
}

}  // namespace opentrn::aten
