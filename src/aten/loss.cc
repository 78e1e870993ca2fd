#include <cmath>

#include "aten/families.h"
#include "aten/reduction.h"
#include "base/error.h"

namespace opentrn::aten {
namespace {

enum Reduction : int64_t { none = 0, mean = 1, sum = 2 };  // as in ATen/core/Reduction.h

std::vector<int64_t> all_dims(const Shape& shape) {
  std::vector<int64_t> dims(shape.size());
  for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(d);
  return dims;
}

Values reduced(Call& c, Value loss) {
  const std::vector<int64_t> dims = all_dims(loss.shape());
  switch (c.integer("reduction")) {
    case Reduction::none: return {c.to_result(loss.id)};
    case Reduction::mean: return {c.to_result(mean_over(loss, dims, false).id)};
    default: return {c.to_result(loss.reduce(Op::reduce_sum, dims).id)};
  }
}

// ---- negative log likelihood: self [N, C] (or [C]) and target [N], or [N, C, H, W] and [N, H, W]

struct Likelihood {
  Value x, target, valid, safe, weight;  // target and what follows have a class dimension of size 1
  int64_t dim;
};

Likelihood likelihood(Call& c) {
  const DType dtype = c.b.dtype(c.tensor("self"));
  const Value x = input(c, "self", dtype);
  const int64_t dim = x.shape().size() == 1 ? 0 : 1;
  Shape shape = x.shape();
  shape[dim] = 1;
  const Value target(c.b, c.b.reshape(c.tensor("target"), shape));
  const Value valid = !equal(target, static_cast<double>(c.integer("ignore_index")));
  const Value safe = select(valid, target, 0.0);
  Value weight(c.b, c.b.broadcast(constant(c.b, x.dtype(), 1), shape));
  if (c.has("weight")) {
    const ValueId flat = c.b.reshape(safe.id, {graph::elements(shape)});
    weight = {c.b, c.b.reshape(c.b.gather(Op::gather, operand(c, "weight", dtype), flat, 0), shape)};
  }
  return {x, target, valid, safe, select(valid, weight, 0.0), dim};
}

Values nll_loss_forward(Call& c) {
  const Likelihood l = likelihood(c);
  const Value picked(c.b, c.b.gather(Op::gather_elements, l.x.id, l.safe.id, l.dim));
  const Value loss = select(l.valid, -picked * l.weight, 0.0);
  const int64_t reduction = c.integer("reduction");
  if (reduction == Reduction::none) return {c.shaped(loss.id), filled(c, 0, 1)};
  const std::vector<int64_t> dims = all_dims(loss.shape());
  const Value total = l.weight.reduce(Op::reduce_sum, dims), losses = loss.reduce(Op::reduce_sum, dims);
  return {c.to_result((reduction == Reduction::mean ? losses / total : losses).id), c.to_result(total.id, 1)};
}

Values nll_loss_backward(Call& c) {
  const Likelihood l = likelihood(c);
  const DType dtype = c.results[0].dtype;
  Value grad(c.b, operand(c, "grad_output", dtype));
  if (!grad.shape().empty() && graph::elements(grad.shape()) == graph::elements(l.target.shape()))
    grad = {c.b, c.b.reshape(grad.id, l.target.shape())};
  grad = -l.weight * grad;
  if (c.integer("reduction") == Reduction::mean) grad = grad / input(c, "total_weight", dtype);
  // One element of each row; classes are counted in 32 bits, which hold every valid target.
  const Value classes(c.b, c.b.iota({DType::i32, l.x.shape()}, l.dim));
  const Value at_target = equal(classes, l.safe.convert(DType::i32));
  return {c.to_result(select(at_target && l.valid, grad, 0.0).id)};
}

// ---- losses of two tensors. The gradient's `mean` divides by the number of elements.

Value scale_of_mean(Call& c, Value grad, const Shape& shape) {
  return c.integer("reduction") == Reduction::mean ? grad / static_cast<double>(graph::elements(shape)) : grad;
}

Values mse_loss(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value d = input(c, "self", dtype) - input(c, "target", dtype);
  return reduced(c, d * d);
}

Values mse_loss_backward(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value d = input(c, "self", dtype) - input(c, "target", dtype);
  const double count = static_cast<double>(graph::elements(d.shape()));
  const double norm = c.integer("reduction") == Reduction::mean ? 2 / count : 2;
  return {c.to_result((norm * d * input(c, "grad_output", dtype)).id)};
}

Values smooth_l1_loss(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value z = abs(input(c, "self", dtype) - input(c, "target", dtype)), beta(c.b, c.number("beta", z.dtype()));
  return reduced(c, select(z < beta, 0.5 * z * z / beta, z - 0.5 * beta));
}

Values smooth_l1_loss_backward(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value x = input(c, "self", dtype) - input(c, "target", dtype), beta(c.b, c.number("beta", x.dtype()));
  const Value grad = scale_of_mean(c, input(c, "grad_output", dtype), x.shape());
  return {c.to_result(select(x <= -beta, -grad, select(x >= beta, grad, grad * x / beta)).id)};
}

Values huber_loss(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value z = abs(input(c, "self", dtype) - input(c, "target", dtype)), delta(c.b, c.number("delta", z.dtype()));
  return reduced(c, select(z < delta, 0.5 * z * z, delta * (z - 0.5 * delta)));
}

Values huber_loss_backward(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value x = input(c, "self", dtype) - input(c, "target", dtype), delta(c.b, c.number("delta", x.dtype()));
  const Value grad = scale_of_mean(c, input(c, "grad_output", dtype), x.shape());
  return {c.to_result(select(x <= -delta, -(grad * delta), select(x >= delta, grad * delta, grad * x)).id)};
}

Values binary_cross_entropy(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value x = input(c, "self", dtype), y = input(c, "target", dtype);
  Value loss = (y - 1.0) * maximum(log1p(-x), -100.0) - y * maximum(log(x), -100.0);
  if (c.has("weight")) loss = loss * input(c, "weight", dtype);
  return reduced(c, loss);
}

Values binary_cross_entropy_backward(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value x = input(c, "self", dtype), y = input(c, "target", dtype);
  Value grad = input(c, "grad_output", dtype) * (x - y) / maximum((1.0 - x) * x, 1e-12);
  if (c.has("weight")) grad = grad * input(c, "weight", dtype);
  return {c.to_result(scale_of_mean(c, grad, x.shape()).id)};
}

Values binary_cross_entropy_with_logits(Call& c) {
  const DType dtype = c.results[0].dtype;
  const Value x = input(c, "self", dtype), y = input(c, "target", dtype);
  const Value log_sigmoid = minimum(x, 0.0) - log1p(exp(-abs(x)));
  Value loss = (1.0 - y) * x;
  if (c.has("pos_weight")) loss = loss - ((input(c, "pos_weight", dtype) - 1.0) * y + 1.0) * log_sigmoid;
  else loss = loss - log_sigmoid;
  if (c.has("weight")) loss = loss * input(c, "weight", dtype);
  return reduced(c, loss);
}

}  // namespace

std::vector<Entry> loss() {
  return {
      {"aten::nll_loss_forward", nll_loss_forward}, {"aten::nll_loss_backward", nll_loss_backward},
      {"aten::nll_loss2d_forward", nll_loss_forward}, {"aten::nll_loss2d_backward", nll_loss_backward},
      {"aten::mse_loss", mse_loss}, {"aten::mse_loss_backward", mse_loss_backward},
      {"aten::smooth_l1_loss", smooth_l1_loss}, {"aten::smooth_l1_loss_backward", smooth_l1_loss_backward},
      {"aten::huber_loss", huber_loss}, {"aten::huber_loss_backward", huber_loss_backward},
      {"aten::binary_cross_entropy", binary_cross_entropy},
      {"aten::binary_cross_entropy_backward", binary_cross_entropy_backward},
      {"aten::binary_cross_entropy_with_logits", binary_cross_entropy_with_logits},
  };
}

}  // namespace opentrn::aten
