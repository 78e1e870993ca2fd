#include <algorithm>

#include "aten/families.h"
#include "aten/support.h"

namespace opentrn::aten {
namespace {

// full, fill and their like: one number or 0-d tensor everywhere.
ValueId spread(Call& c, const char* name) {
  const DType dtype = c.results[0].dtype;
  return c.to_result(c.arg(name).kind == Argument::Kind::tensor ? c.tensor_as(name, dtype) : c.number(name, dtype));
}

Values full(Call& c) { return {spread(c, "fill_value")}; }
Values fill(Call& c) { return {spread(c, "value")}; }
Values scalar_tensor(Call& c) { return {spread(c, "s")}; }

template <int value>
Values constant_everywhere(Call& c) {
  return {filled(c, value)};
}

// start + position * step; the end only decides the size, which the result has.
Values arange(Call& c) {
  const Type& type = c.results[0];
  const DType dtype = opmath(type.dtype);
  Value x(c.b, c.b.iota({dtype, type.shape}, 0));
  if (c.has("step") && !number_is(c, "step", 1)) x = x * Value(c.b, c.number("step", dtype));
  if (c.has("start") && !number_is(c, "start", 0)) x = x + Value(c.b, c.number("start", dtype));
  return {c.to_result(x.id)};
}

// Each half counts from its own end, as PyTorch does.
Values linspace(Call& c) {
  const Type& type = c.results[0];
  const int64_t steps = type.shape[0];
  const DType dtype = is_float(type.dtype) ? opmath(type.dtype) : DType::f64;
  const Value start(c.b, c.number("start", dtype)), end(c.b, c.number("end", dtype));
  if (steps < 2) return {c.to_result(start.id)};
  const Value exact_step = (end - start) / static_cast<double>(steps - 1);
  const Value step = is_float(type.dtype) ? exact_step.convert(type.dtype).convert(dtype) : exact_step;
  const Value i(c.b, c.b.iota({dtype, type.shape}, 0));
  const Value from_end = static_cast<double>(steps - 1) - i;
  return {c.to_result(select(i < static_cast<double>(steps / 2), start + step * i, end - step * from_end).id)};
}

// Row and column numbers of the last two dimensions.
std::pair<Value, Value> rows_and_columns(Call& c) {
  const Shape& shape = c.results[0].shape;
  const Shape plane(shape.end() - 2, shape.end());
  return {{c.b, c.b.iota({DType::i32, plane}, 0)}, {c.b, c.b.iota({DType::i32, plane}, 1)}};
}

Values eye(Call& c) {
  auto [row, column] = rows_and_columns(c);
  return {c.to_result(equal(row, column).id)};
}

template <bool lower>
Values triangle(Call& c) {
  const Value x(c.b, c.tensor("self"));
  // Beyond the size of the matrix the diagonal changes nothing more; 32 bits hold what remains.
  const Shape& shape = x.shape();
  const int64_t limit = shape[shape.size() - 2] + shape.back() + 1;
  const double diagonal = static_cast<double>(std::clamp(c.integer("diagonal"), -limit, limit));
  auto [row, column] = rows_and_columns(c);
  const Value kept = lower ? column <= row + diagonal : column >= row + diagonal;
  return {c.to_result(select(kept, x, 0.0).id)};
}

}  // namespace

std::vector<Entry> creation() {
  return {
      {"aten::full", full}, {"aten::full_like", full}, {"aten::new_full", full}, {"aten::fill.Scalar", fill},
      {"aten::fill.Tensor", fill}, {"aten::scalar_tensor", scalar_tensor},
      {"aten::zero", constant_everywhere<0>}, {"aten::zeros", constant_everywhere<0>},
      {"aten::zeros_like", constant_everywhere<0>}, {"aten::new_zeros", constant_everywhere<0>},
      {"aten::ones", constant_everywhere<1>}, {"aten::ones_like", constant_everywhere<1>},
      {"aten::new_ones", constant_everywhere<1>},
      {"aten::arange", arange}, {"aten::arange.start", arange}, {"aten::arange.start_step", arange},
      {"aten::linspace", linspace}, {"aten::eye", eye}, {"aten::eye.m", eye},
      {"aten::tril", triangle<true>}, {"aten::triu", triangle<false>},
  };
}

}  // namespace opentrn::aten
