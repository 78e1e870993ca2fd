// Convolutions: PyTorch routes them through two operators of their own for devices like ours. The lowering table has
// none, so they run on the CPU under the rules of the fallback.
#include <ATen/Functions.h>
#include <torch/library.h>

#include "torch/copy.h"
#include "torch/fallback.h"

namespace opentrn::bridge {
namespace {

using at::Tensor;

Tensor host(const Tensor& t) { return t.defined() ? to_cpu(t) : Tensor(); }

Tensor forward(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, at::IntArrayRef stride,
               at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
               int64_t groups) {
  report_fallback("aten::convolution", "");
  std::optional<Tensor> host_bias;
  if (bias && bias->defined()) host_bias = to_cpu(*bias);
  return at::convolution(host(input), host(weight), host_bias, stride, padding, dilation, transposed, output_padding,
                         groups)
      .to(input.device());
}

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad_output, const Tensor& input, const Tensor& weight,
                                            at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                                            bool transposed, at::IntArrayRef output_padding, int64_t groups,
                                            std::array<bool, 3> output_mask) {
  report_fallback("aten::convolution_backward", "");
  int64_t bias_size = grad_output.size(1);
  auto [a, b, c] = at::convolution_backward(host(grad_output), host(input), host(weight),
                                            at::OptionalIntArrayRef(at::IntArrayRef(&bias_size, 1)), stride, padding,
                                            dilation, transposed, output_padding, groups, output_mask);
  auto back = [&](const Tensor& t) { return t.defined() ? t.to(input.device()) : Tensor(); };
  return {back(a), back(b), back(c)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", forward);
  m.impl("convolution_backward_overrideable", backward);
}

}  // namespace
}  // namespace opentrn::bridge
