// Copies: between host and device, and on the device between any two layouts and dtypes.
#pragma once

#include <ATen/core/Tensor.h>

namespace opentrn::bridge {

// dst = src, broadcast and converted; one or both on a neuron device. The body of aten::copy_.
void copy_tensor(const at::Tensor& dst, const at::Tensor& src, bool non_blocking);
// Both on the same device, same sizes after broadcasting; any strides and dtypes.
void copy_on_device(c10::TensorImpl& dst, c10::TensorImpl& src, int32_t origin);
// `bytes` bytes from one place of a device's memory to another; the ranges do not overlap.
void copy_bytes(int device, void* dst, const void* src, int64_t bytes);
// A row-major copy on the CPU; waits.
at::Tensor to_cpu(const at::Tensor& tensor);
// A copy on the device.
at::Tensor to_device(const at::Tensor& tensor, int device);

// Forgets the prepared copies (settings have changed).
void clear_prepared_copies();

}  // namespace opentrn::bridge
