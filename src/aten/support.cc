#include "aten/support.h"

#include <algorithm>

#include "base/error.h"

namespace opentrn::aten {

DType opmath(DType dtype) {
  if (is_complex(dtype)) throw Unsupported("arithmetic on complex tensors");
  return is_float(dtype) && dtype != DType::f64 ? DType::f32 : dtype;
}

DType math_type(const Call& c) {
  const DType result = c.results.at(0).dtype;
  return !is_float(c.compute) && is_float(result) ? result : c.compute;
}

ValueId widened(Builder& b, ValueId x, DType dtype, Scalar scalar) {
  if (scalar == Scalar::rounded || !b.shape(x).empty()) x = b.convert(x, dtype);
  return b.convert(x, opmath(dtype));
}

ValueId operand(Call& c, std::string_view name, DType dtype, Scalar scalar) {
  if (c.arg(name).kind == Argument::Kind::tensor) return widened(c.b, c.tensor(name), dtype, scalar);
  const DType first = scalar == Scalar::exact ? opmath(dtype) : dtype;
  return c.b.convert(c.number(name, first), opmath(dtype));
}

ValueId constant(Builder& b, DType dtype, double value) { return b.constant(dtype, value); }

ValueId filled(Call& c, double value, size_t i) { return c.to_result(constant(c.b, c.results.at(i).dtype, value), i); }

bool empty(const Call& c, ValueId x) { return graph::elements(c.b.shape(x)) == 0; }

ValueId as_bool(Builder& b, ValueId x) { return b.convert(x, DType::boolean); }

bool number_is(Call& c, std::string_view name, double value) {
  const Argument& a = c.arg(name);
  if (a.kind == Argument::Kind::tensor) return false;
  const double actual = a.kind == Argument::Kind::integer ? static_cast<double>(a.integer) : a.real;
  return actual == value && c.specialise(name) == value;
}

std::vector<int64_t> dimensions(const Call& c, std::string_view name, size_t rank) {
  std::vector<int64_t> dims;
  if (c.has(name))
    for (int64_t d : c.integers(name)) dims.push_back(c.wrap(d, rank));
  if (rank == 0) return {};
  if (dims.empty())
    for (size_t d = 0; d < rank; ++d) dims.push_back(static_cast<int64_t>(d));
  std::sort(dims.begin(), dims.end());
  return dims;
}

ValueId at_least_1d(Builder& b, ValueId x) { return b.shape(x).empty() ? b.reshape(x, {1}) : x; }

}  // namespace opentrn::aten
