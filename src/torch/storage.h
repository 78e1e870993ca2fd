// Making device tensors without a trip through the dispatcher, and resizing their storage.
#pragma once

#include <ATen/core/Tensor.h>

namespace opentrn::bridge {

// A tensor with its own memory. The strides must describe non-overlapping memory or be zero.
at::Tensor make_tensor(int device, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                       int32_t origin);
// A row-major tensor.
at::Tensor make_contiguous(int device, c10::IntArrayRef sizes, c10::ScalarType dtype, int32_t origin);

// Gives the storage `bytes` bytes, keeping its contents as far as they fit.
void resize_storage(c10::StorageImpl& storage, size_t bytes);
// torch.Tensor.resize_: sizes and strides are set, the storage grows if it must.
void resize_tensor(c10::TensorImpl& tensor, c10::IntArrayRef sizes, std::optional<c10::IntArrayRef> strides);

}  // namespace opentrn::bridge
