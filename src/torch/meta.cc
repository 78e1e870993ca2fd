#include "torch/meta.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "base/error.h"
#include "torch/device.h"

namespace opentrn::bridge {
namespace {

// Replaces device tensors by tensors of the same geometry elsewhere.
struct Translator {
  c10::DeviceType target = c10::kMeta;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> known;   // an operand passed twice stays one tensor

  at::Tensor tensor(const at::Tensor& t) {
    if (!t.defined() || t.device().type() != kNeuron) return t;
    at::Tensor& meta = known[t.unsafeGetTensorImpl()];
    if (!meta.defined()) {
      if (target == c10::kMeta) {
        meta = at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
      } else {
        // Zeroed pages are not touched until somebody writes, so this costs address space only.
        meta = at::zeros({static_cast<int64_t>(extent(t))}, at::TensorOptions().dtype(t.scalar_type()))
                   .as_strided(t.sizes(), t.strides(), 0);
      }
      if (t.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return meta;
  }

  static int64_t extent(const at::Tensor& t) {
    if (t.numel() == 0) return 0;
    int64_t last = 0;
    for (int64_t i = 0; i < t.dim(); ++i) last += (t.size(i) - 1) * t.stride(i);
    return last + 1;
  }

  c10::IValue value(const c10::IValue& v) {
    if (v.isTensor()) return tensor(v.toTensor());
    if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(tensor(t));
      return list;
    }
    if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector())
        list.push_back(t ? std::optional<at::Tensor>(tensor(*t)) : std::nullopt);
      return list;
    }
    if (v.isDevice() && v.toDevice().type() == kNeuron) return c10::Device(target);
    if (v.isGenerator()) return c10::IValue();
    return v;
  }
};

bool has_meta_kernel(const c10::OperatorHandle& handle) {
  return handle.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta);
}

int64_t device_bytes(const Operands& operands) {
  int64_t bytes = 0;
  for (const c10::TensorImpl* t : operands.tensors) bytes += t->numel() * static_cast<int64_t>(t->itemsize());
  return bytes;
}

// Meta kernels written in Python word their errors in their own way: let the CPU say what is wrong.
// Returns when the CPU finds nothing wrong, or when the operands are too large to try.
void raise_as_on_cpu(const c10::OperatorHandle& handle, const torch::jit::Stack& stack, const Operands& operands) {
  constexpr int64_t kMostBytes = 1 << 26;
  if (device_bytes(operands) > kMostBytes) return;
  Translator translator;
  translator.target = c10::kCPU;
  torch::jit::Stack arguments;
  size_t count = handle.schema().arguments().size(), base = stack.size() - count;
  for (size_t i = 0; i < count; ++i) arguments.push_back(translator.value(stack[base + i]));
  handle.callBoxed(arguments);
}

}  // namespace

MetaCall call_on_meta(const c10::OperatorHandle& handle, const torch::jit::Stack& stack, const Operands& operands) {
  if (!has_meta_kernel(handle)) throw Unsupported(c10::str(handle.operator_name(), " has no Meta kernel"));
  MetaCall call;
  Translator translator;
  size_t count = handle.schema().arguments().size(), base = stack.size() - count;
  for (size_t i = 0; i < count; ++i) call.arguments.push_back(translator.value(stack[base + i]));
  call.results = call.arguments;
  // Below autograd, autocast and everything else that has had its turn already.
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                           c10::autocast_dispatch_keyset);
  c10::impl::ExcludeDispatchKeyGuard no_python(c10::python_ks);
  try {
    handle.callBoxed(call.results);
  } catch (const std::exception&) {
    raise_as_on_cpu(handle, stack, operands);
    throw;
  }
  return call;
}

}  // namespace opentrn::bridge
