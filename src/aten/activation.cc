#include <cmath>

#include "aten/families.h"
#include "aten/support.h"
#include "base/error.h"

namespace opentrn::aten {
namespace {

constexpr double kSqrtHalf = 0.70710678118654752440;    // 1/sqrt(2)
constexpr double kTwoOverSqrtPi = 1.12837916709551257390;
constexpr double kTanhScale = 0.79788456080286535588;   // sqrt(2/pi)
constexpr double kTanhCubic = 0.044715;

bool tanh_approximation(const Call& c) {
  const std::string& text = c.arg("approximate").text;
  if (text != "tanh" && text != "none") throw UserError("gelu: approximate is 'none' or 'tanh', not '" + text + "'");
  return text == "tanh";
}

Value x_of(Call& c) { return input(c, "self", c.results[0].dtype); }
Value grad_of(Call& c) { return input(c, "grad_output", c.results[0].dtype); }
// A number in the arithmetic of the call.
Value number(Call& c, const char* name) { return {c.b, c.number(name, opmath(c.results[0].dtype))}; }
Values done(Call& c, Value y) { return {c.to_result(y.id)}; }

Values gelu(Call& c) {
  const bool approximate = tanh_approximation(c);
  const Value x = x_of(c);
  if (!approximate) return done(c, x * 0.5 * (1.0 + erf(x * kSqrtHalf)));
  const Value inner = kTanhScale * (x + kTanhCubic * (x * x * x));
  return done(c, 0.5 * x * (1.0 + tanh(inner)));
}

Values gelu_backward(Call& c) {
  const bool approximate = tanh_approximation(c);
  const Value x = x_of(c), grad = grad_of(c);
  if (!approximate) {
    const Value cdf = 0.5 * (1.0 + erf(x * kSqrtHalf));
    const Value pdf = exp(x * x * -0.5) * (kTwoOverSqrtPi * kSqrtHalf * 0.5);
    return done(c, grad * (cdf + x * pdf));
  }
  const Value square = x * x;
  const Value inner = tanh(kTanhScale * (x + kTanhCubic * (square * x)));
  const Value left = 0.5 * x, right = 1.0 + inner;
  const Value slope = left * (1.0 - inner * inner) * (kTanhScale * (1.0 + (3 * kTanhCubic) * square));
  return done(c, grad * (0.5 * right + slope));
}

Values silu(Call& c) {
  const Value x = x_of(c);
  return done(c, x * logistic(x));
}

Values silu_backward(Call& c) {
  const Value x = x_of(c), s = logistic(x);
  return done(c, grad_of(c) * s * (1.0 + x * (1.0 - s)));
}

Values mish(Call& c) {
  const Value x = x_of(c);
  return done(c, x * tanh(log1p(exp(x))));
}

Values mish_backward(Call& c) {
  const Value x = x_of(c), s = logistic(x), t = tanh(log1p(exp(x)));
  return done(c, grad_of(c) * (t + x * s * (1.0 - t * t)));
}

Values sigmoid_backward(Call& c) {
  const Value y = input(c, "output", c.results[0].dtype);
  return done(c, grad_of(c) * (1.0 - y) * y);
}

Values tanh_backward(Call& c) {
  const Value y = input(c, "output", c.results[0].dtype);
  return done(c, grad_of(c) * (1.0 - y * y));
}

Values relu(Call& c) { return done(c, maximum(x_of(c), 0.0)); }

Values relu6(Call& c) { return done(c, minimum(maximum(x_of(c), 0.0), 6.0)); }

Values threshold(Call& c) {
  const Value x = x_of(c);
  return done(c, select(x <= number(c, "threshold"), number(c, "value"), x));
}

Values threshold_backward(Call& c) { return done(c, select(x_of(c) <= number(c, "threshold"), 0.0, grad_of(c))); }

Values hardtanh(Call& c) {
  const Value lo = number(c, "min_val");
  return done(c, minimum(maximum(x_of(c), lo), number(c, "max_val")));
}

Values hardtanh_backward(Call& c) {
  const Value x = x_of(c), lo = number(c, "min_val");
  return done(c, select(x <= lo || x >= number(c, "max_val"), 0.0, grad_of(c)));
}

Values hardsigmoid(Call& c) { return done(c, minimum(maximum(x_of(c) + 3.0, 0.0), 6.0) / 6.0); }

Values hardsigmoid_backward(Call& c) {
  const Value x = x_of(c);
  return done(c, select(x > -3.0 && x < 3.0, grad_of(c) * (1.0 / 6.0), 0.0));
}

Values hardswish(Call& c) {
  const Value x = x_of(c);
  return done(c, x * minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0);
}

Values hardswish_backward(Call& c) {
  const Value x = x_of(c), grad = grad_of(c);
  return done(c, select(x <= -3.0, 0.0, select(x < 3.0, grad * (x / 3.0 + 0.5), grad)));
}

Values leaky_relu(Call& c) {
  const Value x = x_of(c);
  return done(c, select(x > 0.0, x, x * number(c, "negative_slope")));
}

Values leaky_relu_backward(Call& c) {
  const Value x = x_of(c), grad = grad_of(c);
  return done(c, select(x > 0.0, grad, grad * number(c, "negative_slope")));
}

Values elu(Call& c) {
  const Value x = x_of(c), scale = number(c, "scale");
  const Value negative = expm1(x * number(c, "input_scale")) * (number(c, "alpha") * scale);
  return done(c, select(x < 0.0, negative, x * scale));
}

Values elu_backward(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value x = input(c, "self_or_result", dtype), grad = grad_of(c), scale = number(c, "scale");
  const Value input_scale = number(c, "input_scale"), coefficient = number(c, "alpha") * scale;
  const Value negative = c.boolean("is_result") ? grad * input_scale * (x + coefficient)
                                                : grad * input_scale * coefficient * exp(x * input_scale);
  return done(c, select(x <= 0.0, negative, grad * scale));
}

Values softplus(Call& c) {
  const Value x = x_of(c), beta = number(c, "beta"), scaled = x * beta;
  return done(c, select(scaled > number(c, "threshold"), x, log1p(exp(scaled)) / beta));
}

Values softplus_backward(Call& c) {
  const Value x = x_of(c), grad = grad_of(c), scaled = x * number(c, "beta"), z = exp(scaled);
  return done(c, select(scaled > number(c, "threshold"), grad, grad * z / (z + 1.0)));
}

Values log_sigmoid_forward(Call& c) {
  const Value x = x_of(c), z = exp(-abs(x));
  const Value y = minimum(x, 0.0) - log1p(z);
  // The buffer exists on the CPU only; other devices have an empty one and recompute it.
  const bool buffer = graph::elements(c.results[1].shape) == graph::elements(x.shape());
  return {c.to_result(y.id), buffer ? c.to_result(z.id, 1) : filled(c, 0, 1)};
}

Values log_sigmoid_backward(Call& c) {
  const Value x = x_of(c), z = exp(-abs(x)), ratio = z / (1.0 + z);
  return done(c, grad_of(c) * select(x < 0.0, 1.0 - ratio, ratio));
}

Values softshrink(Call& c) {
  const Value x = x_of(c), lambda = number(c, "lambd");
  return done(c, select(x > lambda, x - lambda, select(x < -lambda, x + lambda, x * 0.0)));
}

Values hardshrink(Call& c) {
  const Value x = x_of(c), lambda = number(c, "lambd");
  return done(c, select(x >= -lambda && x <= lambda, 0.0, x));
}

Values shrink_backward(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value x = x_of(c), lambda = number(c, "lambd");
  const Value grad = input(c, c.op == "aten::hardshrink_backward" ? "grad_out" : "grad_output", dtype);
  return done(c, select(x >= -lambda && x <= lambda, 0.0, grad));
}

Values prelu(Call& c) {
  const Value x = x_of(c);
  return done(c, select(x > 0.0, x, x * input(c, "weight", c.results[0].dtype)));
}

Values prelu_backward(Call& c) {
  const Value x = x_of(c), grad = grad_of(c);
  const Value weight = input(c, "weight", c.results[0].dtype);
  return {c.to_result(select(x > 0.0, grad, weight * grad).id), c.to_result(select(x > 0.0, 0.0, x * grad).id, 1)};
}

// The two halves of `self` along dim.
std::pair<Value, Value> halves(Call& c) {
  const Value x = x_of(c);
  const size_t dim = static_cast<size_t>(c.wrap(c.integer("dim"), x.shape().size()));
  std::vector<int64_t> starts(x.shape().size(), 0), limits = x.shape(), ones(x.shape().size(), 1);
  limits[dim] /= 2;
  const ValueId first = c.b.slice(x.id, starts, limits, ones);
  starts[dim] = limits[dim];
  limits[dim] *= 2;
  return {{c.b, first}, {c.b, c.b.slice(x.id, starts, limits, ones)}};
}

Values glu(Call& c) {
  auto [a, gate] = halves(c);
  return done(c, a * logistic(gate));
}

Values glu_backward(Call& c) {
  auto [a, gate] = halves(c);
  const Value grad = grad_of(c), s = logistic(gate);
  const int64_t dim = c.wrap(c.integer("dim"), a.shape().size());
  return {c.to_result(c.b.concatenate({(s * grad).id, ((1.0 - s) * s * grad * a).id}, dim))};
}

}  // namespace

std::vector<Entry> activation() {
  return {
      {"aten::gelu", gelu}, {"aten::gelu_backward", gelu_backward}, {"aten::silu", silu},
      {"aten::silu_backward", silu_backward}, {"aten::mish", mish}, {"aten::mish_backward", mish_backward},
      {"aten::sigmoid_backward", sigmoid_backward}, {"aten::tanh_backward", tanh_backward}, {"aten::relu", relu},
      {"aten::relu6", relu6}, {"aten::threshold", threshold}, {"aten::threshold_backward", threshold_backward},
      {"aten::hardtanh", hardtanh}, {"aten::hardtanh_backward", hardtanh_backward}, {"aten::hardsigmoid", hardsigmoid},
      {"aten::hardsigmoid_backward", hardsigmoid_backward}, {"aten::hardswish", hardswish},
      {"aten::hardswish_backward", hardswish_backward}, {"aten::leaky_relu", leaky_relu},
      {"aten::leaky_relu_backward", leaky_relu_backward}, {"aten::elu", elu}, {"aten::elu_backward", elu_backward},
      {"aten::softplus", softplus}, {"aten::softplus_backward", softplus_backward},
      {"aten::log_sigmoid_forward", log_sigmoid_forward}, {"aten::log_sigmoid_backward", log_sigmoid_backward},
      {"aten::softshrink", softshrink}, {"aten::hardshrink", hardshrink},
      {"aten::softshrink_backward", shrink_backward}, {"aten::hardshrink_backward", shrink_backward},
      {"aten::_prelu_kernel", prelu}, {"aten::_prelu_kernel_backward", prelu_backward},
      {"aten::glu", glu}, {"aten::glu_backward", glu_backward},
  };
}

}  // namespace opentrn::aten
