#include "torch/dynamic.h"

#include <ATen/Functions.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "torch/copy.h"
#include "torch/device.h"

namespace opentrn::bridge {
namespace {

using at::Tensor;

bool is_mask(const Tensor& t) { return t.scalar_type() == c10::kBool || t.scalar_type() == c10::kByte; }

// Positions of the true elements of a flat mask, in order: the running count tells each where to go; the false ones
// go to one place behind the end.
Tensor flat_positions(const Tensor& mask) {
  int64_t n = mask.numel();
  auto options = mask.options().dtype(c10::kLong);
  if (n == 0) return at::empty({0}, options);
  Tensor counts = mask.to(c10::kInt).cumsum(0);
  int64_t count = counts[n - 1].item<int64_t>();
  if (count == 0) return at::empty({0}, options);
  Tensor place = at::where(mask, counts - 1, at::full({}, count, options));
  Tensor positions = at::empty({count + 1}, options);
  positions.scatter_(0, place, at::arange(n, options));
  return positions.narrow(0, 0, count);
}

std::vector<Tensor> coordinates(const Tensor& self) {
  Tensor mask = self.scalar_type() == c10::kBool ? self : at::ne(self, 0);
  Tensor rest = flat_positions(mask.reshape({-1}));
  std::vector<Tensor> columns(static_cast<size_t>(self.dim()));
  for (int64_t d = self.dim() - 1; d > 0; --d) {
    columns[d] = at::remainder(rest, self.size(d));
    rest = at::floor_divide(rest, self.size(d));
  }
  if (self.dim() > 0) columns[0] = rest;
  return columns;
}

Tensor nonzero_positions(const Tensor& self) {
  auto options = self.options().dtype(c10::kLong);
  if (self.dim() == 0) {
    int64_t count = self.ne(0).item<bool>() ? 1 : 0;
    return at::empty({count, 0}, options);
  }
  if (self.numel() == 0) return at::empty({0, self.dim()}, options);
  return at::stack(coordinates(self), 1);
}

Tensor& nonzero_out(const Tensor& self, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == c10::kLong, "nonzero: Expected out tensor to have scalar type Long but got ",
              out.scalar_type());
  Tensor result = nonzero_positions(self);
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
  return out;
}

Tensor select_masked(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == c10::kBool, "masked_select: expected BoolTensor for mask");
  std::vector<Tensor> both = at::broadcast_tensors({self, mask});
  return both[0].reshape({-1}).index_select(0, flat_positions(both[1].reshape({-1})));
}

Tensor& masked_select_out(const Tensor& self, const Tensor& mask, Tensor& out) {
  Tensor result = select_masked(self, mask);
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", nonzero_positions);
  m.impl("nonzero.out", nonzero_out);
  m.impl("masked_select", select_masked);
  m.impl("masked_select.out", masked_select_out);
}

}  // namespace

void expand_indices(torch::jit::Stack& stack, size_t self, size_t indices) {
  c10::ArrayRef<c10::IValue> given = stack[indices].toListRef();
  bool plain = true;
  for (const c10::IValue& v : given) {
    if (v.isNone()) continue;
    const Tensor& t = v.toTensor();
    plain &= !t.defined() || (t.device().type() == kNeuron && !is_mask(t) && t.scalar_type() != c10::kInt);
  }
  if (plain) return;
  const Tensor& indexed = stack[self].toTensor();
  c10::List<std::optional<Tensor>> expanded;
  int64_t dim = 0;
  for (const c10::IValue& v : given) {
    if (v.isNone() || !v.toTensor().defined()) {
      expanded.push_back(std::nullopt);
      ++dim;
      continue;
    }
    Tensor t = v.toTensor();
    if (t.device().type() != kNeuron) t = to_device(t.contiguous(), indexed.device().index());
    if (!is_mask(t)) {
      // Lowerings see 64-bit indices only.
      expanded.push_back(t.scalar_type() == c10::kInt ? t.to(c10::kLong) : t);
      ++dim;
      continue;
    }
    for (int64_t i = 0; i < t.dim(); ++i) {
      TORCH_CHECK_INDEX(dim + i < indexed.dim() && indexed.size(dim + i) == t.size(i), "The shape of the mask ",
                        t.sizes(), " at index ", i, " does not match the shape of the indexed tensor ",
                        indexed.sizes(), " at index ", dim + i);
    }
    if (t.dim() == 0) {
      // A 0-dim mask adds a dimension of size 0 or 1; PyTorch has unsqueezed the tensor already where it allows one.
      TORCH_CHECK_INDEX(false, "a 0-dim mask cannot index a tensor here");
    }
    for (Tensor& column : coordinates(t)) expanded.push_back(std::move(column));
    dim += t.dim();
  }
  stack[indices] = std::move(expanded);
}

bool fill_by_mask(torch::jit::Stack& stack, size_t self, size_t indices, size_t values, bool accumulate, bool in_place,
                  at::Tensor& result) {
  if (accumulate || stack[values].toTensor().numel() != 1) return false;
  c10::ArrayRef<c10::IValue> given = stack[indices].toListRef();
  Tensor mask;
  int64_t before = 0;
  for (const c10::IValue& v : given) {
    bool none = v.isNone() || !v.toTensor().defined();
    if (none) {
      if (!mask.defined()) ++before;
      continue;
    }
    if (mask.defined() || !is_mask(v.toTensor()) || v.toTensor().device().type() != kNeuron) return false;
    mask = v.toTensor();
  }
  Tensor x = stack[self].toTensor();
  if (!mask.defined() || before + mask.dim() > x.dim()) return false;
  for (int64_t i = 0; i < mask.dim(); ++i) {
    if (x.size(before + i) != mask.size(i)) return false;
  }
  std::vector<int64_t> shape(static_cast<size_t>(before), 1);
  for (int64_t size : mask.sizes()) shape.push_back(size);
  shape.resize(static_cast<size_t>(x.dim()), 1);
  Tensor value = stack[values].toTensor().reshape({}).to(x.scalar_type());
  if (mask.scalar_type() != c10::kBool) mask = mask.to(c10::kBool);
  result = in_place ? x.masked_fill_(mask.view(shape), value) : x.masked_fill(mask.view(shape), value);
  return true;
}

}  // namespace opentrn::bridge
