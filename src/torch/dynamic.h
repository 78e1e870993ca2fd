// Operators whose result size depends on values: two programs with a host read of the size between them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

namespace opentrn::bridge {

// Replaces boolean masks in an index list (index.Tensor and its like) by their positions, and moves CPU indices to the
// device. `indices` is the list's place on the stack; the tensor that is indexed comes first.
// Does nothing, cheaply, for a list of integer tensors on the device.
void expand_indices(torch::jit::Stack& stack, size_t self, size_t indices);

// x[mask] = value with one element: no size is needed. Returns whether that is what the stack asks for; then `result`
// is x with the value filled in (in place when `in_place`).
bool fill_by_mask(torch::jit::Stack& stack, size_t self, size_t indices, size_t values, bool accumulate, bool in_place,
                  at::Tensor& result);

}  // namespace opentrn::bridge
