#include <cmath>

#include "aten/families.h"
#include "aten/pointwise.h"
#include "base/error.h"

namespace opentrn::aten {
namespace {

// What the fused optimizers share: gradient scaling, the flag that skips a step, and the results' order.
class Step {
 public:
  explicit Step(Call& call) : c(call), count(call.tensors("self").size()) {
    if (c.has("found_inf")) {
      const Value flag(c.b, c.b.reshape(c.tensor("found_inf"), {}));
      skip = equal(flag, 1.0);
    }
  }

  DType wide(size_t i) const { return opmath(c.b.dtype(c.tensors("self").at(i))); }
  Value item(const char* list, size_t i) const {
    const ValueId x = c.tensors(list).at(i);
    return Value(c.b, x).convert(wide(i));
  }
  // A hyperparameter that may be a tensor (lr) or changes from step to step.
  Value number(const char* name, DType dtype) const {
    if (c.arg(name).kind == Argument::Kind::tensor) return Value(c.b, c.b.reshape(c.tensor(name), {})).convert(dtype);
    return {c.b, c.number(name, dtype)};
  }
  // The gradient as the kernel uses it: unscaled, and stored back so; then negated when maximizing.
  Value gradient(size_t i) {
    Value grad = item("grads", i);
    if (c.has("grad_scale")) {
      grad = grad / Value(c.b, c.b.reshape(c.tensor("grad_scale"), {})).convert(grad.dtype());
      stored_grads.push_back(kept("grads", i, grad));
    }
    return c.boolean("maximize") ? -grad : grad;
  }
  // The new value of a list's tensor: unchanged when the step is skipped.
  ValueId kept(const char* list, size_t i, Value now) const {
    const ValueId old = c.tensors(list).at(i);
    const ValueId rounded = c.b.convert(now.id, c.b.dtype(old));
    return skip ? c.b.select(skip->id, old, rounded) : rounded;
  }
  Values grads() const { return c.has("grad_scale") ? stored_grads : Values(count, -1); }

  Call& c;
  size_t count;
  std::optional<Value> skip;
  Values stored_grads;
};

Values joined(const std::vector<Values>& lists) {
  Values all;
  for (const Values& list : lists)
    for (ValueId value : list) all.push_back(value);
  return all;
}

// The results of a list that the schema marks as mutated but that stays as it is.
Values unchanged(const Call& c, const char* list) { return Values(c.tensors(list).size(), -1); }

// 1 - beta^step without the cancellation that f32 suffers when beta is close to 1.
Value bias_correction(Value step, double beta) {
  if (beta == 0) return step.constant(1);
  return -expm1(step * std::log(beta));
}

// Adam and AdamW as PyTorch's fused CPU kernel writes them.
template <bool decoupled>
Values adam(Call& c) {
  Step s(c);
  const double beta1 = c.specialise("beta1"), beta2 = c.specialise("beta2");
  const bool decays = !number_is(c, "weight_decay", 0), amsgrad = c.boolean("amsgrad");
  Values params, exp_avgs, exp_avg_sqs, maxima;
  for (size_t i = 0; i < s.count; ++i) {
    const DType wide = s.wide(i);
    Value param = s.item("self", i), grad = s.gradient(i);
    Value exp_avg = s.item("exp_avgs", i), exp_avg_sq = s.item("exp_avg_sqs", i);
    const Value step = Value(c.b, c.b.reshape(c.tensors("state_steps").at(i), {})).convert(wide);
    const Value lr = s.number("lr", wide);
    if (decays && decoupled) param = param * (1.0 - lr * s.number("weight_decay", wide));
    if (decays && !decoupled) grad = grad + param * s.number("weight_decay", wide);
    exp_avg = lerp(exp_avg, grad, 1 - beta1);
    exp_avg_sq = exp_avg_sq * beta2 + (1 - beta2) * grad * grad;
    Value second_moment = exp_avg_sq;
    if (amsgrad) {
      second_moment = maximum(s.item("max_exp_avg_sqs", i), exp_avg_sq);
      maxima.push_back(s.kept("max_exp_avg_sqs", i, second_moment));
    }
    const Value denominator = sqrt(second_moment) / sqrt(bias_correction(step, beta2)) + s.number("eps", wide);
    const Value step_size = lr / bias_correction(step, beta1);
    params.push_back(s.kept("self", i, param - step_size * exp_avg / denominator));
    exp_avgs.push_back(s.kept("exp_avgs", i, exp_avg));
    exp_avg_sqs.push_back(s.kept("exp_avg_sqs", i, exp_avg_sq));
  }
  if (!amsgrad) maxima = unchanged(c, "max_exp_avg_sqs");
  return joined({params, s.grads(), exp_avgs, exp_avg_sqs, maxima});
}

Values sgd(Call& c) {
  Step s(c);
  const bool decays = !number_is(c, "weight_decay", 0), moves = !number_is(c, "momentum", 0);
  Values params, buffers;
  for (size_t i = 0; i < s.count; ++i) {
    const DType wide = s.wide(i);
    const Value param = s.item("self", i);
    Value grad = s.gradient(i);
    if (decays) grad = grad + param * s.number("weight_decay", wide);
    if (moves) {
      const Value momentum = s.number("momentum", wide);
      Value buffer = grad;
      if (!c.boolean("is_first_step"))
        buffer = s.item("momentum_buffer_list", i) * momentum + grad * (1.0 - s.number("dampening", wide));
      buffers.push_back(s.kept("momentum_buffer_list", i, buffer));
      grad = c.boolean("nesterov") ? grad + buffer * momentum : buffer;
    }
    params.push_back(s.kept("self", i, param - grad * s.number("lr", wide)));
  }
  if (!moves) buffers = unchanged(c, "momentum_buffer_list");
  return joined({params, s.grads(), buffers});
}

Values adagrad(Call& c) {
  Step s(c);
  const bool decays = !number_is(c, "weight_decay", 0);
  Values params, sums;
  for (size_t i = 0; i < s.count; ++i) {
    const DType wide = s.wide(i);
    const Value param = s.item("self", i);
    Value grad = s.gradient(i);
    if (decays) grad = grad + param * s.number("weight_decay", wide);
    const Value step = Value(c.b, c.b.reshape(c.tensors("state_steps").at(i), {})).convert(wide);
    const Value rate = s.number("lr", wide) / (1.0 + (step - 1.0) * s.number("lr_decay", wide));
    const Value sum = s.item("state_sums", i) + grad * grad;
    params.push_back(s.kept("self", i, param - rate * grad / (sqrt(sum) + s.number("eps", wide))));
    sums.push_back(s.kept("state_sums", i, sum));
  }
  // The schema without tensor_lr marks state_steps, too.
  const Values steps = c.op == "aten::_fused_adagrad_" ? unchanged(c, "state_steps") : Values();
  return joined({params, s.grads(), sums, steps});
}

// Unscales gradients and raises found_inf when one of them was not finite.
Values unscale(Call& c) {
  const Value inverse(c.b, c.b.reshape(c.tensor("inv_scale"), {}));
  Value found = Value(c.b, c.tensor("found_inf"));
  Values results;
  for (ValueId x : c.tensors("self")) {
    const Value grad(c.b, widened(c.b, x, c.b.dtype(x)));
    std::vector<int64_t> dims(grad.shape().size());
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(d);
    const Value infinite = (!grad.unary(Op::is_finite)).reduce(Op::reduce_or, dims);
    found = select(infinite, 1.0, found);
    results.push_back(c.b.convert((grad * inverse.convert(grad.dtype())).id, c.b.dtype(x)));
  }
  results.push_back(c.b.reshape(found.id, c.b.shape(c.tensor("found_inf"))));
  return results;
}

Values update_scale(Call& c) {
  const Value scale(c.b, c.tensor("self")), tracker(c.b, c.tensor("growth_tracker"));
  const Value overflowed = !equal(Value(c.b, c.b.reshape(c.tensor("found_inf"), scale.shape())), 0.0);
  const Value successes = tracker + 1.0;
  const Value grows = equal(successes, static_cast<double>(c.integer("growth_interval")));
  const Value grown = scale * Value(c.b, c.number("scale_growth_factor", scale.dtype()));
  // A scale does not grow into infinity.
  const Value increased = select(grows && grown.unary(Op::is_finite), grown, scale);
  const Value lowered = scale * Value(c.b, c.number("scale_backoff_factor", scale.dtype()));
  return {select(overflowed, lowered, increased).id, select(overflowed || grows, 0.0, successes).id};
}

}  // namespace

std::vector<Entry> optimizer() {
  return {
      {"aten::_fused_adamw_", adam<true>}, {"aten::_fused_adamw_.tensor_lr", adam<true>},
      {"aten::_fused_adam_", adam<false>}, {"aten::_fused_adam_.tensor_lr", adam<false>},
      {"aten::_fused_sgd_", sgd}, {"aten::_fused_sgd_.tensor_lr", sgd},
      {"aten::_fused_adagrad_", adagrad}, {"aten::_fused_adagrad_.tensor_lr", adagrad},
      {"aten::_amp_foreach_non_finite_check_and_unscale_", unscale}, {"aten::_amp_update_scale_", update_scale},
  };
}

}  // namespace opentrn::aten
