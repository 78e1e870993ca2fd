#include <limits>

#include "aten/families.h"
#include "aten/reduction.h"
#include "base/error.h"

namespace opentrn::aten {
namespace {

// ---- softmax

Value along(Call& c, const char* name) {
  return {c.b, at_least_1d(c.b, operand(c, name, c.b.dtype(c.tensor(name))))};
}

Values softmax(Call& c) {
  const Value x = along(c, "self");
  if (empty(c, x.id)) return {filled(c, 0)};
  const std::vector<int64_t> dims = {c.wrap(c.integer("dim"), x.shape().size())};
  const Value e = exp(x - x.reduce(Op::reduce_max, dims, true));
  return {c.shaped((e / e.reduce(Op::reduce_sum, dims, true)).id)};
}

Values log_softmax(Call& c) {
  const Value x = along(c, "self");
  if (empty(c, x.id)) return {filled(c, 0)};
  const std::vector<int64_t> dims = {c.wrap(c.integer("dim"), x.shape().size())};
  const Value shifted = x - x.reduce(Op::reduce_max, dims, true);
  return {c.shaped((shifted - log(exp(shifted).reduce(Op::reduce_sum, dims, true))).id)};
}

// Softmax whose rows of -inf only give 0 instead of NaN.
Values safe_softmax(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value x(c.b, at_least_1d(c.b, operand(c, "self", dtype)));
  if (empty(c, x.id)) return {filled(c, 0)};
  const std::vector<int64_t> dims = {c.wrap(c.integer("dim"), x.shape().size())};
  const Value largest = x.reduce(Op::reduce_max, dims, true);
  const Value masked = equal(largest, -std::numeric_limits<double>::infinity());
  const Value e = exp(x - largest);
  return {c.shaped(select(masked, 0.0, e / e.reduce(Op::reduce_sum, dims, true)).id)};
}

Values softmax_backward(Call& c) {
  const Value grad = along(c, "grad_output"), y = along(c, "output");
  const std::vector<int64_t> dims = {c.wrap(c.integer("dim"), y.shape().size())};
  return {c.shaped(((grad - (grad * y).reduce(Op::reduce_sum, dims, true)) * y).id)};
}

Values log_softmax_backward(Call& c) {
  const Value grad = along(c, "grad_output"), y = along(c, "output");
  const std::vector<int64_t> dims = {c.wrap(c.integer("dim"), y.shape().size())};
  return {c.shaped((grad - exp(y) * grad.reduce(Op::reduce_sum, dims, true)).id)};
}

// ---- layer norm and RMS norm, over the last dimensions

struct Normalized {
  std::vector<int64_t> inner, outer;
};

Normalized split(Call& c, size_t rank) {
  const size_t count = c.integers("normalized_shape").size();
  Normalized dims;
  for (size_t d = 0; d < rank; ++d) (d < rank - count ? dims.outer : dims.inner).push_back(static_cast<int64_t>(d));
  return dims;
}

// An optional per-element parameter in the arithmetic of the call.
std::optional<Value> parameter(Call& c, const char* name) {
  if (!c.has(name)) return std::nullopt;
  return input(c, name, c.b.dtype(c.tensor(name)));
}

Values layer_norm(Call& c) {
  const Value x = input(c, "input", c.b.dtype(c.tensor("input")));
  const Normalized dims = split(c, x.shape().size());
  auto [mean, squares] = moments(x, dims.inner);
  const Value variance = squares / static_cast<double>(count_over(x.shape(), dims.inner));
  const Value rstd = 1.0 / sqrt(variance + Value(c.b, c.number("eps", x.dtype())));
  Value y = (x - mean) * rstd;
  if (auto weight = parameter(c, "weight")) y = y * *weight;
  if (auto bias = parameter(c, "bias")) y = y + *bias;
  return {c.to_result(y.id), c.shaped(mean.id, 1), c.shaped(rstd.id, 2)};
}

// Gradient of x̂ = (x - mean) * rstd over dims, where grad is that of x̂.
Value normalized_gradient(Value grad, Value normal, Value rstd, const std::vector<int64_t>& dims) {
  return rstd * (grad - mean_over(grad, dims, true) - normal * mean_over(grad * normal, dims, true));
}

Values layer_norm_backward(Call& c) {
  const Value x = input(c, "input", c.b.dtype(c.tensor("input")));
  const Value grad = input(c, "grad_out", c.b.dtype(c.tensor("grad_out")));
  const Normalized dims = split(c, x.shape().size());
  Shape kept = x.shape();
  for (int64_t d : dims.inner) kept[d] = 1;
  auto statistic = [&](const char* name) {
    return Value(c.b, c.b.reshape(operand(c, name, c.b.dtype(c.tensor(name))), kept));
  };
  const Value rstd = statistic("rstd"), normal = (x - statistic("mean")) * rstd;
  Values results(3, -1);
  if (c.wants(0)) {
    const auto weight = parameter(c, "weight");
    results[0] = c.to_result(normalized_gradient(weight ? grad * *weight : grad, normal, rstd, dims.inner).id, 0);
  }
  if (c.wants(1)) results[1] = c.shaped((grad * normal).reduce(Op::reduce_sum, dims.outer).id, 1);
  if (c.wants(2)) results[2] = c.shaped(grad.reduce(Op::reduce_sum, dims.outer).id, 2);
  return results;
}

Values rms_norm(Call& c) {
  const Value x = input(c, "input", c.b.dtype(c.tensor("input")));
  const Normalized dims = split(c, x.shape().size());
  const double epsilon_default = c.b.dtype(c.tensor("input")) == DType::f64 ? 0x1p-52 : 0x1p-23;
  const Value eps = c.has("eps") ? Value(c.b, c.number("eps", x.dtype())) : x.constant(epsilon_default);
  const Value rstd = rsqrt(mean_over(x * x, dims.inner, true) + eps);
  Value y = x * rstd;
  if (auto weight = parameter(c, "weight")) y = y * *weight;
  return {c.to_result(y.id), c.shaped(rstd.id, 1)};
}

Values rms_norm_backward(Call& c) {
  const Value x = input(c, "input", c.b.dtype(c.tensor("input")));
  const Value grad = input(c, "grad_out", c.b.dtype(c.tensor("grad_out")));
  const Normalized dims = split(c, x.shape().size());
  Shape kept = x.shape();
  for (int64_t d : dims.inner) kept[d] = 1;
  const Value rstd(c.b, c.b.reshape(operand(c, "rstd", c.b.dtype(c.tensor("rstd"))), kept)), normal = x * rstd;
  Values results(2, -1);
  if (c.wants(0)) {
    const auto weight = parameter(c, "weight");
    const Value g = weight ? grad * *weight : grad;
    results[0] = c.to_result((rstd * (g - normal * mean_over(g * normal, dims.inner, true))).id, 0);
  }
  if (c.wants(1)) results[1] = c.shaped((grad * normal).reduce(Op::reduce_sum, dims.outer).id, 1);
  return results;
}

// ---- batch norm, over all dimensions but the second

// A per-channel vector, shaped so that it broadcasts against x.
Value channels(Call& c, const char* name, const Shape& shape) {
  Shape wide(shape.size(), 1);
  wide[1] = shape[1];
  return {c.b, c.b.reshape(operand(c, name, c.b.dtype(c.tensor(name))), wide)};
}

std::vector<int64_t> all_but_channels(size_t rank) {
  std::vector<int64_t> dims;
  for (size_t d = 0; d < rank; ++d)
    if (d != 1) dims.push_back(static_cast<int64_t>(d));
  return dims;
}

Values batch_norm(Call& c) {
  const Value x = input(c, "input", c.b.dtype(c.tensor("input")));
  const Shape shape = x.shape();
  const std::vector<int64_t> dims = all_but_channels(shape.size());
  const bool training = !c.has("training") || c.boolean("training");
  const bool running = c.has("running_mean") && c.has("running_var");
  const Value eps(c.b, c.number("eps", x.dtype()));
  Values updates;
  auto normalized = [&](Value mean, Value rstd) {
    Value y = (x - mean) * rstd;
    if (c.has("weight")) y = y * channels(c, "weight", shape);
    if (c.has("bias")) y = y + channels(c, "bias", shape);
    return c.to_result(y.id);
  };
  if (!training) {
    if (!running) throw UserError(c.op + ": evaluation needs running_mean and running_var");
    const Value rstd = 1.0 / sqrt(channels(c, "running_var", shape) + eps);
    return {normalized(channels(c, "running_mean", shape), rstd), filled(c, 0, 1), filled(c, 0, 2)};
  }
  auto [mean, squares] = moments(x, dims);
  const double count = static_cast<double>(count_over(shape, dims));
  const Value rstd = 1.0 / sqrt(squares / count + eps);
  Values results = {normalized(mean, rstd), c.shaped(mean.id, 1), c.shaped(rstd.id, 2)};
  if (!running) return results;
  if (c.results.size() < 5)
    throw Unsupported(c.op + " in training with running statistics, unless they are results of the call");
  const Value momentum(c.b, c.number("momentum", x.dtype()));
  auto blended = [&](const char* name, Value now, size_t i) {
    return c.shaped((channels(c, name, shape) * (1.0 - momentum) + now * momentum).id, i);
  };
  results.push_back(blended("running_mean", mean, 3));
  results.push_back(blended("running_var", squares / (count - 1), 4));
  return results;
}

Values batch_norm_backward(Call& c) {
  const Value x = input(c, "input", c.b.dtype(c.tensor("input")));
  const Value grad = input(c, "grad_out", c.b.dtype(c.tensor("grad_out")));
  const Shape shape = x.shape();
  const std::vector<int64_t> dims = all_but_channels(shape.size());
  const bool training = c.boolean("train");
  const Value mean = channels(c, training ? "save_mean" : "running_mean", shape);
  const Value rstd = training ? channels(c, "save_invstd", shape)
                              : 1.0 / sqrt(channels(c, "running_var", shape) + Value(c.b, c.number("eps", x.dtype())));
  const Value normal = (x - mean) * rstd;
  Values results(3, -1);
  if (c.wants(0)) {
    const Value g = c.has("weight") ? grad * channels(c, "weight", shape) : grad;
    results[0] = c.to_result((training ? normalized_gradient(g, normal, rstd, dims) : g * rstd).id, 0);
  }
  if (c.wants(1)) results[1] = c.shaped((grad * normal).reduce(Op::reduce_sum, dims).id, 1);
  if (c.wants(2)) results[2] = c.shaped(grad.reduce(Op::reduce_sum, dims).id, 2);
  return results;
}

// ---- group norm: input [N, C, ...] as [N, groups, C / groups, HxW]

struct Groups {
  Shape split, parameter;  // of the input, and of weight and bias
};

Groups groups_of(Call& c) {
  const int64_t n = c.integer("N"), channels = c.integer("C"), size = c.integer("HxW"), groups = c.integer("group");
  return {{n, groups, channels / groups, size}, {1, groups, channels / groups, 1}};
}

Values group_norm(Call& c) {
  const Groups g = groups_of(c);
  const Value x(c.b, c.b.reshape(operand(c, "input", c.b.dtype(c.tensor("input"))), g.split));
  auto [mean, squares] = moments(x, {2, 3});
  const Value variance = squares / static_cast<double>(g.split[2] * g.split[3]);
  const Value rstd = 1.0 / sqrt(variance + Value(c.b, c.number("eps", x.dtype())));
  Value y = (x - mean) * rstd;
  auto affine = [&](Value v) { return Value(c.b, c.b.reshape(v.id, g.parameter)); };
  if (auto weight = parameter(c, "weight")) y = y * affine(*weight);
  if (auto bias = parameter(c, "bias")) y = y + affine(*bias);
  return {c.shaped(y.id), c.shaped(mean.id, 1), c.shaped(rstd.id, 2)};
}

Values group_norm_backward(Call& c) {
  const Groups g = groups_of(c);
  auto split_input = [&](const char* name) {
    return Value(c.b, c.b.reshape(operand(c, name, c.b.dtype(c.tensor(name))), g.split));
  };
  auto statistic = [&](const char* name) {
    return Value(c.b, c.b.reshape(operand(c, name, c.b.dtype(c.tensor(name))), {g.split[0], g.split[1], 1, 1}));
  };
  const Value x = split_input("input"), grad = split_input("grad_out"), rstd = statistic("rstd");
  const Value normal = (x - statistic("mean")) * rstd;
  Values results(3, -1);
  if (c.wants(0)) {
    Value scaled = grad;
    if (auto weight = parameter(c, "weight")) scaled = grad * Value(c.b, c.b.reshape(weight->id, g.parameter));
    results[0] = c.shaped(normalized_gradient(scaled, normal, rstd, {2, 3}).id, 0);
  }
  if (c.wants(1)) results[1] = c.shaped((grad * normal).reduce(Op::reduce_sum, {0, 3}).id, 1);
  if (c.wants(2)) results[2] = c.shaped(grad.reduce(Op::reduce_sum, {0, 3}).id, 2);
  return results;
}

}  // namespace

std::vector<Entry> normalization() {
  return {
      {"aten::_softmax", softmax}, {"aten::_log_softmax", log_softmax}, {"aten::_safe_softmax", safe_softmax},
      {"aten::_softmax_backward_data", softmax_backward}, {"aten::_log_softmax_backward_data", log_softmax_backward},
      {"aten::native_layer_norm", layer_norm}, {"aten::native_layer_norm_backward", layer_norm_backward},
      {"aten::_fused_rms_norm", rms_norm}, {"aten::_fused_rms_norm_backward", rms_norm_backward},
      {"aten::native_batch_norm", batch_norm}, {"aten::native_batch_norm_backward", batch_norm_backward},
      {"aten::_native_batch_norm_legit", batch_norm}, {"aten::_native_batch_norm_legit.no_stats", batch_norm},
      {"aten::_native_batch_norm_legit_functional", batch_norm},
      {"aten::native_group_norm", group_norm}, {"aten::native_group_norm_backward", group_norm_backward},
  };
}

}  // namespace opentrn::aten
