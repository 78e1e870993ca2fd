// Arithmetic on values that several families share (an operator and its _foreach_ form).
#pragma once

#include "aten/support.h"

namespace opentrn::aten {

// A binary operation on operands of one dtype; on bool, add and maximum are "or", multiply and minimum are "and".
ValueId arithmetic(Builder& b, Op op, ValueId x, ValueId y);
// A function of one floating-point operand whose result is `dtype`; integers are converted to it first.
ValueId float_function(Builder& b, Op op, ValueId x, DType dtype);
// neg, abs, sign, floor and the like, which keep integers as they are.
ValueId exact_function(Builder& b, Op op, ValueId x);
// x + (y - x) * weight, from the nearer end; operands in one opmath dtype.
Value lerp(Value x, Value y, Value weight);
Value lerp(Value x, Value y, double weight);  // the weight's size decides the formula
// x to the power of a number that the graph may depend on (argument `name` of c).
ValueId power(Call& c, ValueId x, std::string_view name, DType dtype);

}  // namespace opentrn::aten
