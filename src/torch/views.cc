// The operators that concern a tensor's memory rather than its values: creation, views, storage, copies, scalars.
// None has a lowering; all are registered natively, since a view must alias its base.
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "torch/copy.h"
#include "torch/device.h"
#include "torch/dtype.h"
#include "torch/operands.h"
#include "torch/origin.h"
#include "torch/storage.h"

namespace opentrn::bridge {
namespace {

using at::Tensor;
using c10::IntArrayRef;

c10::ScalarType checked(std::optional<c10::ScalarType> dtype) {
  c10::ScalarType type = c10::dtype_or_default(dtype);
  dtype_of(type);
  return type;
}

int device_index(std::optional<c10::Device> device) { return device ? index_of(*device) : current_device(); }

void check_layout(std::optional<c10::Layout> layout) {
  TORCH_CHECK(!layout || *layout == c10::kStrided, "neuron tensors are strided; got layout ", *layout);
}

// ---- creation
Tensor empty(IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
             std::optional<c10::Device> device, std::optional<bool> pin_memory,
             std::optional<c10::MemoryFormat> memory_format) {
  check_layout(layout);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  at::detail::check_size_nonnegative(sizes);
  Tensor result = make_contiguous(device_index(device), sizes, checked(dtype), capture_origin());
  auto format = memory_format.value_or(c10::MemoryFormat::Contiguous);
  if (format != c10::MemoryFormat::Contiguous && format != c10::MemoryFormat::Preserve)
    result.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return result;
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, std::optional<c10::ScalarType> dtype,
                     std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                     std::optional<bool> pin_memory) {
  check_layout(layout);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  at::detail::check_size_nonnegative(sizes);
  TORCH_CHECK(sizes.size() == strides.size(), "dimensionality of sizes (", sizes.size(),
              ") must match dimensionality of strides (", strides.size(), ")");
  return make_tensor(device_index(device), sizes, strides, checked(dtype), capture_origin());
}

// ---- views
Tensor as_strided(const Tensor& self, IntArrayRef sizes, IntArrayRef strides, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}
Tensor view(const Tensor& self, IntArrayRef sizes) { return at::native::view(self, sizes); }
Tensor reshape_alias(const Tensor& self, IntArrayRef sizes, IntArrayRef strides) {
  return at::native::_reshape_alias(self, sizes, strides);
}
Tensor unfold(const Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}
Tensor view_as_real(const Tensor& self) { return at::native::view_as_real(self); }
Tensor view_as_complex(const Tensor& self) { return at::native::view_as_complex(self); }

// ---- storage
Tensor& set_storage(Tensor& self, at::Storage source, int64_t offset, IntArrayRef sizes, IntArrayRef strides) {
  TORCH_CHECK(source.device().type() == kNeuron || source.nbytes() == 0,
              "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(), "\".");
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  resize_tensor(*impl, sizes, strides.data() ? std::optional<IntArrayRef>(strides) : std::nullopt);
  return self;
}
Tensor& set_source_storage(Tensor& self, at::Storage source) {
  int64_t elements = static_cast<int64_t>(source.nbytes() / self.itemsize());
  int64_t stride = 1;
  return set_storage(self, std::move(source), 0, IntArrayRef(&elements, 1), IntArrayRef(&stride, 1));
}
Tensor& set_source_tensor(Tensor& self, const Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}
Tensor& set_nothing(Tensor& self) {
  Tensor none = make_contiguous(self.device().index(), {0}, self.scalar_type(), -1);
  return set_source_tensor(self, none);
}
bool is_set_to(const Tensor& self, const Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}
const Tensor& resize_(const Tensor& self, IntArrayRef sizes, std::optional<c10::MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(sizes);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  resize_tensor(*impl, sizes, std::nullopt);
  if (memory_format) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  return self;
}
// Module.to and Tensor.set_data keep a parameter's identity across devices: both sides are plain strided tensors.
bool has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  auto plain = [](const Tensor& t) {
    return t.layout() == c10::kStrided && (t.device().type() == kNeuron || t.device().is_cpu()) &&
           !t.unsafeGetTensorImpl()->key_set().has_any(c10::python_ks);
  };
  return plain(self) && plain(from);
}
void record_stream(Tensor&, at::Stream) {}   // memory is reused in submission order, on every stream

// ---- copies
Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  copy_tensor(self, source, non_blocking);
  return self;
}
Tensor copy_from(const Tensor& self, const Tensor& target, bool non_blocking) {
  copy_tensor(target, self, non_blocking);
  return target;
}
Tensor copy_from_and_resize(const Tensor& self, const Tensor& target) {
  if (self.sizes() != target.sizes()) target.resize_(self.sizes());
  copy_tensor(target, self, false);
  return target;
}
at::Scalar local_scalar_dense(const Tensor& self) {
  Tensor host = to_cpu(self);
  return host.item();
}
bool equal(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and ", other.device(), "!");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "Expected object of data type ", self.scalar_type(),
              " but got data type ", other.scalar_type(), " for argument #2 'other' in call to equal");
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() == 0) return true;
  return at::eq(self, other).all().item<bool>();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("unfold", unfold);
  m.impl("view_as_real", view_as_real);
  m.impl("view_as_complex", view_as_complex);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_source_storage);
  m.impl("set_.source_Tensor", set_source_tensor);
  m.impl("set_", set_nothing);
  m.impl("is_set_to", is_set_to);
  m.impl("resize_", resize_);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  m.impl("record_stream", record_stream);
  m.impl("copy_", copy_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("equal", equal);
}

// `copy` looks at the lazy conjugate and negative bits itself; resolving them first would need a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace opentrn::bridge
