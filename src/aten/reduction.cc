#include "aten/reduction.h"

#include <cmath>
#include <limits>

#include "aten/families.h"
#include "base/error.h"

namespace opentrn::aten {

int64_t count_over(const Shape& shape, const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (int64_t d : dims) count *= shape[d];
  return count;
}

Value mean_over(Value x, const std::vector<int64_t>& dims, bool keep) {
  return x.reduce(Op::reduce_sum, dims, keep) / static_cast<double>(count_over(x.shape(), dims));
}

std::pair<Value, Value> moments(Value x, const std::vector<int64_t>& dims) {
  const Value mean = mean_over(x, dims, true), deviation = x - mean;
  return {mean, (deviation * deviation).reduce(Op::reduce_sum, dims, true)};
}

Value norm_over(Value x, double p, const std::vector<int64_t>& dims, bool keep) {
  auto sum = [&](Value y) { return y.reduce(Op::reduce_sum, dims, keep); };
  if (p == 2) return sqrt(sum(x * x));
  if (p == 1) return sum(abs(x));
  if (p == 0) return sum((!equal(x, 0.0)).convert(x.dtype()));
  if (std::isinf(p)) {
    if (count_over(x.shape(), dims) == 0) return sum(abs(x));  // no elements: 0
    return abs(x).reduce(p > 0 ? Op::reduce_max : Op::reduce_min, dims, keep);
  }
  return sum(abs(x).binary(Op::power, p)).binary(Op::power, 1 / p);
}

namespace {

// self in the opmath of the result's dtype, which sum and its like convert to before they add.
Value accumulated(Call& c) {
  const DType dtype = c.results[0].dtype;
  return {c.b, c.b.convert(c.tensor_as("self", dtype), opmath(dtype))};
}

std::vector<int64_t> dims_of(const Call& c, const char* name = "dim") {
  const size_t rank = c.b.shape(c.tensor("self")).size();
  return c.has(name) ? dimensions(c, name, rank) : dimensions(c, "", rank);
}

Values sum(Call& c) { return {c.shaped(accumulated(c).reduce(Op::reduce_sum, dims_of(c)).id)}; }
Values prod(Call& c) { return {c.shaped(accumulated(c).reduce(Op::reduce_prod, dims_of(c)).id)}; }
Values mean(Call& c) { return {c.shaped(mean_over(accumulated(c), dims_of(c), false).id)}; }

Values nansum(Call& c) {
  const Value x = accumulated(c);
  return {c.shaped(select(x.unary(Op::is_nan), 0.0, x).reduce(Op::reduce_sum, dims_of(c)).id)};
}

Values count_nonzero(Call& c) {
  const Value nonzero(c.b, as_bool(c.b, c.tensor("self")));
  return {c.shaped(nonzero.convert(DType::i64).reduce(Op::reduce_sum, dims_of(c)).id)};
}

// Extremes keep the dtype; for bool they are "or" and "and".
Value extreme(Call& c, bool largest, const std::vector<int64_t>& dims) {
  const Value x(c.b, c.tensor("self"));
  if (x.dtype() == DType::boolean) return x.reduce(largest ? Op::reduce_or : Op::reduce_and, dims);
  return x.reduce(largest ? Op::reduce_max : Op::reduce_min, dims);
}

template <bool largest>
Values amax(Call& c) {
  return {c.shaped(extreme(c, largest, dims_of(c)).id)};
}

Values aminmax(Call& c) {
  const size_t rank = c.b.shape(c.tensor("self")).size();
  std::vector<int64_t> dims = dimensions(c, "", rank);
  if (c.has("dim") && rank) dims = {c.wrap(c.integer("dim"), rank)};
  return {c.shaped(extreme(c, false, dims).id), c.shaped(extreme(c, true, dims).id, 1)};
}

// Position of the extreme along dim (of the flattened tensor without one), as i64.
ValueId position(Call& c, bool largest, std::optional<int64_t> dim) {
  ValueId x = c.tensor("self");
  if (c.b.dtype(x) == DType::boolean) x = c.b.convert(x, DType::i32);
  if (!dim || c.b.shape(x).empty()) x = c.b.reshape(x, {graph::elements(c.b.shape(x))});
  return c.b.arg_reduce(largest ? Op::argmax : Op::argmin, x, dim && !c.b.shape(c.tensor("self")).empty() ? *dim : 0);
}

template <bool largest>
Values arg_extreme(Call& c) {
  const size_t rank = c.b.shape(c.tensor("self")).size();
  std::optional<int64_t> dim;
  if (c.has("dim")) dim = c.wrap(c.integer("dim"), rank);
  return {c.shaped(position(c, largest, dim))};
}

template <bool largest>
Values max_dim(Call& c) {
  const size_t rank = c.b.shape(c.tensor("self")).size();
  const int64_t dim = c.wrap(c.integer("dim"), rank);
  if (graph::elements(c.results[0].shape) == 0) return {filled(c, 0), filled(c, 0, 1)};
  return {c.shaped(extreme(c, largest, rank ? std::vector<int64_t>{dim} : std::vector<int64_t>{}).id),
          c.shaped(position(c, largest, dim), 1)};
}

template <Op op>
Values any(Call& c) {
  const Value x(c.b, as_bool(c.b, c.tensor("self")));
  // any.dims and all.dims with dim=[] reduce nothing.
  if (c.op.ends_with(".dims") && c.has("dim") && c.integers("dim").empty()) return {c.to_result(x.id)};
  return {c.shaped(x.reduce(op, dims_of(c)).id)};
}

// Variance and mean over dims, each with kept dimensions.
std::pair<Value, Value> variance(Call& c) {
  const Value x(c.b, operand(c, "self", c.b.dtype(c.tensor("self"))));
  const std::vector<int64_t> dims = dims_of(c);
  double correction = 1;
  if (c.has("correction")) correction = c.specialise("correction");
  if (c.has("unbiased")) correction = c.boolean("unbiased") ? 1 : 0;
  auto [mean, squares] = moments(x, dims);
  const double divisor = std::max(0.0, static_cast<double>(count_over(x.shape(), dims)) - correction);
  return {squares / divisor, mean};
}

Values var(Call& c) { return {c.shaped(variance(c).first.id)}; }
Values standard_deviation(Call& c) { return {c.shaped(sqrt(variance(c).first).id)}; }

Values var_mean(Call& c) {
  auto [v, mean] = variance(c);
  return {c.shaped(v.id), c.shaped(mean.id, 1)};
}

Values std_mean(Call& c) {
  auto [v, mean] = variance(c);
  return {c.shaped(sqrt(v).id), c.shaped(mean.id, 1)};
}

Values vector_norm(Call& c) {
  const char* name = c.op.starts_with("aten::norm") ? "p" : "ord";
  const double p = c.has(name) ? c.specialise(name) : 2;
  return {c.shaped(norm_over(accumulated(c), p, dims_of(c), false).id)};
}

Values logsumexp(Call& c) {
  const Value x = accumulated(c);
  const std::vector<int64_t> dims = dims_of(c);
  if (count_over(x.shape(), dims) == 0) return {c.shaped(log(exp(x).reduce(Op::reduce_sum, dims)).id)};
  const Value largest = x.reduce(Op::reduce_max, dims, true);
  const Value shift = select(abs(largest).unary(Op::is_inf), 0.0, largest);
  const Value sum = exp(x - shift).reduce(Op::reduce_sum, dims, true);
  return {c.shaped((log(sum) + shift).id)};
}

template <Op op>
Values cumulative(Call& c) {
  const Value x = accumulated(c);
  if (x.shape().empty() || empty(c, x.id)) return {c.to_result(x.id)};
  return {c.to_result(c.b.cumulative(op, x.id, c.wrap(c.integer("dim"), x.shape().size())))};
}

Values trace(Call& c) {
  const Value x = accumulated(c);
  const Value rows(c.b, c.b.iota({DType::i32, x.shape()}, 0)), columns(c.b, c.b.iota({DType::i32, x.shape()}, 1));
  return {c.shaped(select(equal(rows, columns), x, 0.0).reduce(Op::reduce_sum, {0, 1}).id)};
}

}  // namespace

std::vector<Entry> reduction() {
  return {
      {"aten::sum", sum}, {"aten::sum.dim_IntList", sum}, {"aten::nansum", nansum}, {"aten::mean", mean},
      {"aten::mean.dim", mean}, {"aten::prod", prod}, {"aten::prod.dim_int", prod},
      {"aten::count_nonzero", count_nonzero}, {"aten::count_nonzero.dim_IntList", count_nonzero},
      {"aten::amax", amax<true>}, {"aten::amin", amax<false>}, {"aten::max", amax<true>}, {"aten::min", amax<false>},
      {"aten::aminmax", aminmax}, {"aten::max.dim", max_dim<true>}, {"aten::min.dim", max_dim<false>},
      {"aten::argmax", arg_extreme<true>}, {"aten::argmin", arg_extreme<false>},
      {"aten::any", any<Op::reduce_or>}, {"aten::any.dim", any<Op::reduce_or>}, {"aten::any.dims", any<Op::reduce_or>},
      {"aten::all", any<Op::reduce_and>}, {"aten::all.dim", any<Op::reduce_and>}, {"aten::all.dims", any<Op::reduce_and>},
      {"aten::var", var}, {"aten::var.dim", var}, {"aten::var.correction", var},
      {"aten::std", standard_deviation}, {"aten::std.dim", standard_deviation},
      {"aten::std.correction", standard_deviation}, {"aten::var_mean", var_mean}, {"aten::var_mean.dim", var_mean},
      {"aten::var_mean.correction", var_mean}, {"aten::std_mean", std_mean}, {"aten::std_mean.dim", std_mean},
      {"aten::std_mean.correction", std_mean}, {"aten::linalg_vector_norm", vector_norm},
      {"aten::norm.Scalar", vector_norm}, {"aten::norm.ScalarOpt_dim", vector_norm},
      {"aten::norm.ScalarOpt_dim_dtype", vector_norm}, {"aten::norm.ScalarOpt_dtype", vector_norm},
      {"aten::logsumexp", logsumexp}, {"aten::cumsum", cumulative<Op::cumulative_sum>},
      {"aten::cumprod", cumulative<Op::cumulative_prod>}, {"aten::trace", trace},
  };
}

}  // namespace opentrn::aten
