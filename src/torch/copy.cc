#include "torch/copy.h"

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>

#include <fmt/ranges.h>

#include "base/error.h"
#include "torch/device.h"
#include "torch/dtype.h"
#include "torch/fallback.h"
#include "torch/host_allocator.h"
#include "torch/origin.h"
#include "torch/prepared.h"
#include "torch/storage.h"

#include "graph/builder.h"

namespace opentrn::bridge {
namespace {

bool on_neuron(const at::Tensor& t) { return t.device().type() == kNeuron; }

// The element type and extra dimension under which the bytes of a same-dtype copy travel: types the compiler has no
// arithmetic for are moved as integers or as pairs of floats.
struct Carrier {
  DType dtype;
  int64_t pairs = 1;
};
Carrier carrier(DType dtype) {
  switch (dtype) {
    case DType::u16: return {DType::i16};
    case DType::u32: return {DType::i32};
    case DType::u64: return {DType::i64};
    case DType::c32: return {DType::f16, 2};
    case DType::c64: return {DType::f32, 2};
    case DType::c128: return {DType::f64, 2};
    default: return is_float(dtype) && size_of(dtype) == 1 ? Carrier{DType::u8} : Carrier{dtype};
  }
}

struct View {
  graph::Type type;
  graph::Layout layout;
};

View view_of(const c10::TensorImpl& tensor, Carrier as) {
  View view{{as.dtype, {tensor.sizes().begin(), tensor.sizes().end()}}, {}};
  for (int64_t stride : tensor.strides()) view.layout.strides.push_back(stride * as.pairs);
  if (as.pairs > 1) {
    view.type.shape.push_back(as.pairs);
    view.layout.strides.push_back(1);
  }
  return view;
}

std::shared_ptr<const Prepared> prepare_copy(const c10::TensorImpl& dst, const c10::TensorImpl& src) {
  auto prepared = std::make_shared<Prepared>();
  try {
    DType to = dtype_of(c10::typeMetaToScalarType(dst.dtype())),
          from = dtype_of(c10::typeMetaToScalarType(src.dtype()));
    bool same = to == from;
    View source = view_of(src, same ? carrier(from) : Carrier{from});
    View target = view_of(dst, same ? carrier(to) : Carrier{to});
    graph::Builder b(fmt::format("aten::copy_ {}[{}]", name_of(to), fmt::join(target.type.shape, ",")));
    graph::ValueId value = b.parameter(source.type, source.layout);
    b.result(b.convert(value, target.type.dtype), target.layout);
    prepared->kernel = runtime::kernel_for(b.take());
    prepared->buffers = {{false, 1}, {false, 0}};
  } catch (const Unsupported& reason) {
    prepared->unsupported = reason.what();
  }
  return prepared;
}

PreparedTable& copies() {
  static auto* table = new PreparedTable;
  return *table;
}

at::Tensor tensor_over(c10::TensorImpl& impl) {
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::unsafe_reclaim_from_nonowning(&impl));
}

bool dense_and_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.is_non_overlapping_and_dense();
}

int64_t bytes_of(const at::Tensor& t) { return t.numel() * static_cast<int64_t>(t.itemsize()); }

// Keeps the host memory of a non-blocking copy alive until it has run.
void hold(int index, const at::Tensor& host) {
  device(index).call_back([](void* held) { delete static_cast<c10::Storage*>(held); },
                          new c10::Storage(host.storage()));
}

void host_to_device(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  int index = dst.device().index();
  runtime::StreamId stream = current_stream(index);
  auto send = [&](const at::Tensor& to, const at::Tensor& from, bool later) {
    awaited_device(index).copy_to_device(stream, address_of(*to.unsafeGetTensorImpl()), from.const_data_ptr(),
                                         bytes_of(to), !later);
    if (later) hold(index, from);
  };
  if (dense_and_alike(dst, src)) return send(dst, src, non_blocking && is_pinned(src.const_data_ptr()));
  // Conversion and layout are the host's work, so that only the result's bytes cross.
  at::Tensor ready = at::empty(dst.sizes(), src.options().dtype(dst.scalar_type()));
  ready.copy_(src);
  if (dst.is_contiguous()) return send(dst, ready, false);
  int32_t origin = capture_origin();
  at::Tensor landed = make_contiguous(index, dst.sizes(), dst.scalar_type(), origin);
  send(landed, ready, false);
  copy_on_device(*dst.unsafeGetTensorImpl(), *landed.unsafeGetTensorImpl(), origin);
}

void device_to_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  int index = src.device().index();
  auto fetch = [&](const at::Tensor& to, const at::Tensor& from, bool later) {
    awaited_device(index).copy_to_host(current_stream(index), to.mutable_data_ptr(),
                                       address_of(*from.unsafeGetTensorImpl()), bytes_of(from), !later);
    if (later) hold(index, to);
  };
  if (dense_and_alike(dst, src)) return fetch(dst, src, non_blocking && is_pinned(dst.const_data_ptr()));
  at::Tensor ready = src;
  if (!src.is_contiguous()) {
    int32_t origin = capture_origin();
    ready = make_contiguous(index, src.sizes(), src.scalar_type(), origin);
    copy_on_device(*ready.unsafeGetTensorImpl(), *src.unsafeGetTensorImpl(), origin);
  }
  if (dst.is_contiguous() && dst.scalar_type() == src.scalar_type())
    return fetch(dst, ready, non_blocking && is_pinned(dst.const_data_ptr()));
  at::Tensor landed = at::empty(src.sizes(), src.options().device(c10::kCPU));
  fetch(landed, ready, false);
  dst.copy_(landed);
}

// Between real and complex types, or complex ones of different precision: by real and imaginary parts.
void copy_complex(const at::Tensor& dst, const at::Tensor& src) {
  if (dst.is_complex() && src.is_complex()) return copy_tensor(at::view_as_real(dst), at::view_as_real(src), false);
  if (dst.is_complex()) {
    at::Tensor parts = at::view_as_real(dst);
    copy_tensor(parts.select(-1, 0), src, false);
    parts.select(-1, 1).zero_();
    return;
  }
  TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
  copy_tensor(dst, at::view_as_real(src).select(-1, 0), false);
}

}  // namespace

void copy_on_device(c10::TensorImpl& dst, c10::TensorImpl& src, int32_t origin) {
  if (dst.numel() == 0) return;
  Relation overlap = relation(dst, src);
  if (overlap == Relation::identical) return;
  if (overlap == Relation::overlapping) {
    at::Tensor between =
        make_contiguous(src.device().index(), src.sizes(), c10::typeMetaToScalarType(src.dtype()), origin);
    copy_on_device(*between.unsafeGetTensorImpl(), src, origin);
    return copy_on_device(dst, *between.unsafeGetTensorImpl(), origin);
  }
  Operands operands;
  operands.device = dst.device().index();
  operands.tensors.push_back(&dst);
  operands.tensors.push_back(&src);
  append_tensor(operands.key, dst);
  append_tensor(operands.key, src);
  auto prepared = copies().find(operands);
  if (!prepared) {
    prepared = prepare_copy(dst, src);
    copies().insert(operands, 0, prepared);
  }
  if (!prepared->unsupported.empty()) {
    report_fallback("aten::copy_", prepared->unsupported);
    at::Tensor to = tensor_over(dst);
    at::Tensor raw =
        at::empty_strided(src.sizes(), src.strides(), at::TensorOptions().dtype(src.dtype()).device(c10::kCPU));
    // The source's whole extent crosses, so that nothing has to be gathered on the device.
    int64_t extent = 1;
    for (int64_t i = 0; i < src.dim(); ++i) extent += (src.size(i) - 1) * src.stride(i);
    device(operands.device)
        .copy_to_host(current_stream(operands.device), raw.mutable_data_ptr(), address_of(src),
                      extent * static_cast<int64_t>(src.itemsize()), true);
    at::Tensor converted = raw.to(to.scalar_type()).contiguous();
    if (!to.is_contiguous()) {
      // The destination's extent is read, changed on the host and written back.
      int64_t reach = 1;
      for (int64_t i = 0; i < to.dim(); ++i) reach += (to.size(i) - 1) * to.stride(i);
      at::Tensor whole = at::empty({reach}, at::TensorOptions().dtype(to.scalar_type()).device(c10::kCPU));
      device(operands.device)
          .copy_to_host(current_stream(operands.device), whole.mutable_data_ptr(), address_of(dst), bytes_of(whole),
                        true);
      whole.as_strided(to.sizes(), to.strides(), 0).copy_(converted);
      converted = whole;
    }
    device(operands.device)
        .copy_to_device(current_stream(operands.device), address_of(dst), converted.const_data_ptr(),
                        bytes_of(converted), true);
    return;
  }
  c10::SmallVector<at::Tensor, 4> none;
  launch(*prepared, operands, origin, none);
}

void clear_prepared_copies() { copies().clear(); }

void copy_bytes(int index, void* dst, const void* src, int64_t bytes) {
  if (!bytes) return;
  auto over = [&](void* address, int64_t offset, int64_t count, c10::ScalarType type) {
    auto* first = static_cast<char*>(address) + offset;
    auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                         static_cast<size_t>(count) * c10::elementSize(type),
                                                         c10::DataPtr(first, torch_device(index)), nullptr, false);
    at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(type));
    t.unsafeGetTensorImpl()->set_sizes_contiguous(c10::IntArrayRef(&count, 1));
    return t;
  };
  auto move = [&](int64_t offset, int64_t count, c10::ScalarType type) {
    if (!count) return;
    at::Tensor to = over(dst, offset, count, type), from = over(const_cast<void*>(src), offset, count, type);
    copy_on_device(*to.unsafeGetTensorImpl(), *from.unsafeGetTensorImpl(), capture_origin());
  };
  move(0, bytes / 4, c10::kInt);
  move(bytes / 4 * 4, bytes % 4, c10::kByte);
}

void copy_tensor(const at::Tensor& dst, const at::Tensor& source, bool non_blocking) {
  if (dst.is_same(source)) return;
  at::Tensor src = source.sizes() == dst.sizes() ? source : source.expand(dst.sizes());
  if (dst.numel() == 0) return;
  at::assert_no_internal_overlap(dst);
  if (dst.is_conj() != src.is_conj() || dst.is_neg() != src.is_neg() || dst.is_conj() || dst.is_neg()) {
    // Copy the stored values, then apply what the lazy bits of the two tensors say about them.
    at::Tensor s = src, d = dst;
    bool conjugate = s.is_conj() != d.is_conj(), negate = s.is_neg() != d.is_neg();
    if (s.is_conj()) s = s.conj();
    if (d.is_conj()) d = d.conj();
    if (s.is_neg()) s = at::_neg_view(s);
    if (d.is_neg()) d = at::_neg_view(d);
    copy_tensor(d, s, non_blocking && !conjugate && !negate);
    if (conjugate) at::view_as_real(d).select(-1, 1).neg_();
    if (negate) d.neg_();
    return;
  }
  if (on_neuron(dst) && on_neuron(src)) {
    if (dst.device() != src.device()) {
      // No direct path between two logical cores' memories in this version: through the host.
      return host_to_device(dst, to_cpu(src), false);
    }
    if (dst.is_complex() != src.is_complex() || (dst.is_complex() && dst.scalar_type() != src.scalar_type()))
      return copy_complex(dst, src);
    return copy_on_device(*dst.unsafeGetTensorImpl(), *src.unsafeGetTensorImpl(), capture_origin_for_autograd());
  }
  const at::Tensor& host = on_neuron(dst) ? src : dst;
  TORCH_CHECK(host.device().is_cpu(), "Copies between neuron and ", host.device().type(),
              " are not supported; copy to the CPU first.");
  TORCH_CHECK(host.layout() == c10::kStrided, "Copies between neuron and a CPU tensor of layout ", host.layout(),
              " are not supported; convert it with to_dense() first.");
  if (on_neuron(dst)) {
    host_to_device(dst, src, non_blocking);
  } else {
    device_to_host(dst, src, non_blocking);
  }
}

at::Tensor to_cpu(const at::Tensor& tensor) {
  at::Tensor host = at::empty(tensor.sizes(), tensor.options().device(c10::kCPU));
  copy_tensor(host, tensor, false);
  return host;
}

at::Tensor to_device(const at::Tensor& tensor, int index) {
  at::Tensor result = make_contiguous(index, tensor.sizes(), tensor.scalar_type(), capture_origin());
  copy_tensor(result, tensor, false);
  return result;
}

}  // namespace opentrn::bridge
