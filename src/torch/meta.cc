#include <Python.h>

#include "torch/meta.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "base/error.h"
#include "torch/device.h"

namespace opentrn::bridge {
namespace {

// Operators whose Meta kernel is written in Python: loading it takes a second, so only when one is needed.
bool load_python_meta_kernels() {
  static const bool loaded = [] {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject* module = PyImport_ImportModule("torch._meta_registrations");
    if (!module) PyErr_Clear();
    Py_XDECREF(module);
    PyGILState_Release(state);
    return module != nullptr;
  }();
  return loaded;
}

struct Translator {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> known;   // an operand passed twice stays one tensor

  at::Tensor tensor(const at::Tensor& t) {
    if (!t.defined() || t.device().type() != kNeuron) return t;
    at::Tensor& meta = known[t.unsafeGetTensorImpl()];
    if (!meta.defined()) {
      meta = at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
      if (t.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return meta;
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
    if (v.isDevice() && v.toDevice().type() == kNeuron) return c10::Device(c10::kMeta);
    if (v.isGenerator()) return c10::IValue();
    return v;
  }
};

bool has_meta_kernel(const c10::OperatorHandle& handle) {
  return handle.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta);
}

}  // namespace

MetaCall call_on_meta(const c10::OperatorHandle& handle, const torch::jit::Stack& stack, const Operands&) {
  if (!has_meta_kernel(handle)) load_python_meta_kernels();
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
  handle.callBoxed(call.results);
  return call;
}

}  // namespace opentrn::bridge
