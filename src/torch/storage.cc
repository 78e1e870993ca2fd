#include "torch/storage.h"

#include <ATen/EmptyTensor.h>

#include "torch/allocator.h"
#include "torch/copy.h"
#include "torch/device.h"
#include "torch/origin.h"

namespace opentrn::bridge {
namespace {

at::Tensor wrap(int device, size_t bytes, c10::ScalarType dtype, int32_t origin) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       allocate(device, bytes, origin), &allocator(), true);
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                  c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                  c10::scalarTypeToTypeMeta(dtype));
}

}  // namespace

at::Tensor make_tensor(int device, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                       int32_t origin) {
  int64_t last = 0;
  bool empty = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    empty |= sizes[i] == 0;
    last += (sizes[i] - 1) * strides[i];
  }
  size_t bytes = empty ? 0 : static_cast<size_t>(last + 1) * c10::elementSize(dtype);
  at::Tensor result = wrap(device, bytes, dtype, origin);
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return result;
}

at::Tensor make_contiguous(int device, c10::IntArrayRef sizes, c10::ScalarType dtype, int32_t origin) {
  int64_t elements = 1;
  for (int64_t size : sizes) elements *= size;
  at::Tensor result = wrap(device, static_cast<size_t>(elements) * c10::elementSize(dtype), dtype, origin);
  if (sizes.size() != 1 || sizes[0] != 0) result.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return result;
}

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  size_t old_bytes = storage.nbytes();
  if (bytes == old_bytes) return;
  int index = storage.device().index();
  c10::DataPtr memory = allocate(index, bytes, capture_origin());
  size_t kept = std::min(bytes, old_bytes);
  if (kept && storage.data()) copy_bytes(index, memory.get(), storage.data(), static_cast<int64_t>(kept));
  storage.set_data_ptr_noswap(std::move(memory));
  storage.set_nbytes(bytes);
}

void resize_tensor(c10::TensorImpl& tensor, c10::IntArrayRef sizes, std::optional<c10::IntArrayRef> strides) {
  if (tensor.sizes() == sizes && (!strides || tensor.strides() == *strides)) return;
  if (strides) {
    tensor.set_sizes_and_strides(sizes, *strides);
  } else {
    tensor.set_sizes_contiguous(sizes);
  }
  if (tensor.numel() == 0) return;
  int64_t last = tensor.storage_offset();
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  size_t bytes = static_cast<size_t>(last + 1) * tensor.itemsize();
  c10::StorageImpl& storage = *tensor.unsafe_storage().unsafeGetStorageImpl();
  if (bytes > storage.nbytes()) resize_storage(storage, bytes);
}

}  // namespace opentrn::bridge
