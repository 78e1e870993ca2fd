// What the families share: operands in the dtype in which PyTorch's CPU kernels compute, and graph values with
// operators, so that formulas read as formulas.
#pragma once

#include "aten/lowering.h"

namespace opentrn::aten {

using graph::Combine;
using graph::Op;
using Values = std::vector<ValueId>;

// The dtype in which PyTorch's CPU computes: f32 for f16, bf16 and f8, otherwise the dtype itself.
DType opmath(DType dtype);

// The dtype of a call's arithmetic before `opmath`: `compute`, or the result's when integers give a float.
DType math_type(const Call& c);

// How a 0-dim operand or Python number becomes an operand: `exact` keeps it in opmath, as add, sub, mul, div and the
// scalar factors do; `rounded` rounds it to the compute dtype first, as every other TensorIterator kernel does.
enum class Scalar : uint8_t { exact, rounded };

// A tensor or number argument as a value of opmath(dtype).
ValueId operand(Call& c, std::string_view name, DType dtype, Scalar scalar = Scalar::rounded);
// The same for a value at hand.
ValueId widened(Builder& b, ValueId x, DType dtype, Scalar scalar = Scalar::rounded);

// A 0-d constant of any real dtype.
ValueId constant(Builder& b, DType dtype, double value);
// A constant of the i-th result's type.
ValueId filled(Call& c, double value, size_t i = 0);
bool empty(const Call& c, ValueId x);

// Integer and bool values as bool; x != 0.
ValueId as_bool(Builder& b, ValueId x);

// True for a number equal to `value`, in which case (only) the graph depends on it.
bool number_is(Call& c, std::string_view name, double value);

// Dimensions named by an int[]? argument, wrapped and sorted; all of them for None or [].
std::vector<int64_t> dimensions(const Call& c, std::string_view name, size_t rank);

// A scalar's rank counts as 1 in operations along a dimension.
ValueId at_least_1d(Builder& b, ValueId x);

// A value with operators. Both operands have the same dtype; a double becomes a constant of the other's dtype.
struct Value {
  Builder* b = nullptr;
  ValueId id = -1;
  Value(Builder& builder, ValueId value) : b(&builder), id(value) {}

  DType dtype() const { return b->dtype(id); }
  Shape shape() const { return b->shape(id); }
  Value constant(double value) const { return {*b, aten::constant(*b, dtype(), value)}; }
  Value unary(Op op) const { return {*b, b->unary(op, id)}; }
  Value binary(Op op, Value y) const { return {*b, b->binary(op, id, y.id)}; }
  Value binary(Op op, double y) const { return binary(op, constant(y)); }
  Value convert(DType to) const { return {*b, b->convert(id, to)}; }
  Value reduce(Op op, std::vector<int64_t> dims, bool keep = false) const { return {*b, b->reduce(op, id, std::move(dims), keep)}; }
};

inline Value operator+(Value x, Value y) { return x.binary(Op::add, y); }
inline Value operator-(Value x, Value y) { return x.binary(Op::subtract, y); }
inline Value operator*(Value x, Value y) { return x.binary(Op::multiply, y); }
inline Value operator/(Value x, Value y) { return x.binary(Op::divide, y); }
inline Value operator+(Value x, double y) { return x.binary(Op::add, y); }
inline Value operator-(Value x, double y) { return x.binary(Op::subtract, y); }
inline Value operator*(Value x, double y) { return x.binary(Op::multiply, y); }
inline Value operator/(Value x, double y) { return x.binary(Op::divide, y); }
inline Value operator+(double x, Value y) { return y.constant(x) + y; }
inline Value operator-(double x, Value y) { return y.constant(x) - y; }
inline Value operator*(double x, Value y) { return y.constant(x) * y; }
inline Value operator/(double x, Value y) { return y.constant(x) / y; }
inline Value operator-(Value x) { return x.unary(Op::neg); }
inline Value operator<(Value x, Value y) { return x.binary(Op::compare_lt, y); }
inline Value operator<=(Value x, Value y) { return x.binary(Op::compare_le, y); }
inline Value operator>(Value x, Value y) { return x.binary(Op::compare_gt, y); }
inline Value operator>=(Value x, Value y) { return x.binary(Op::compare_ge, y); }
inline Value operator<(Value x, double y) { return x.binary(Op::compare_lt, y); }
inline Value operator<=(Value x, double y) { return x.binary(Op::compare_le, y); }
inline Value operator>(Value x, double y) { return x.binary(Op::compare_gt, y); }
inline Value operator>=(Value x, double y) { return x.binary(Op::compare_ge, y); }
inline Value equal(Value x, Value y) { return x.binary(Op::compare_eq, y); }
inline Value equal(Value x, double y) { return x.binary(Op::compare_eq, y); }
inline Value operator&&(Value x, Value y) { return x.binary(Op::logical_and, y); }
inline Value operator||(Value x, Value y) { return x.binary(Op::logical_or, y); }
inline Value operator!(Value x) { return x.unary(Op::logical_not); }
inline Value exp(Value x) { return x.unary(Op::exp); }
inline Value expm1(Value x) { return x.unary(Op::expm1); }
inline Value log(Value x) { return x.unary(Op::log); }
inline Value log1p(Value x) { return x.unary(Op::log1p); }
inline Value sqrt(Value x) { return x.unary(Op::sqrt); }
inline Value rsqrt(Value x) { return x.unary(Op::rsqrt); }
inline Value abs(Value x) { return x.unary(Op::abs); }
inline Value tanh(Value x) { return x.unary(Op::tanh); }
inline Value erf(Value x) { return x.unary(Op::erf); }
inline Value logistic(Value x) { return x.unary(Op::logistic); }
inline Value maximum(Value x, Value y) { return x.binary(Op::maximum, y); }
inline Value minimum(Value x, Value y) { return x.binary(Op::minimum, y); }
inline Value maximum(Value x, double y) { return x.binary(Op::maximum, y); }
inline Value minimum(Value x, double y) { return x.binary(Op::minimum, y); }
inline Value select(Value predicate, Value x, Value y) { return {*x.b, x.b->select(predicate.id, x.id, y.id)}; }
inline Value select(Value predicate, Value x, double y) { return select(predicate, x, x.constant(y)); }
inline Value select(Value predicate, double x, Value y) { return select(predicate, y.constant(x), y); }

// operand() as a Value.
inline Value input(Call& c, std::string_view name, DType dtype, Scalar scalar = Scalar::rounded) {
  return {c.b, operand(c, name, dtype, scalar)};
}

}  // namespace opentrn::aten
