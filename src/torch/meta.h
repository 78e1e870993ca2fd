// Running an operator on meta tensors: its results' shapes, strides and dtypes, and PyTorch's own errors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "torch/operands.h"

namespace opentrn::bridge {

struct MetaCall {
  torch::jit::Stack arguments;   // as given, device tensors replaced by meta tensors; out= tensors resized
  torch::jit::Stack results;
};

// Throws what the operator throws; Unsupported when it has no Meta kernel.
MetaCall call_on_meta(const c10::OperatorHandle& handle, const torch::jit::Stack& stack, const Operands& operands);

}  // namespace opentrn::bridge
