#include "torch/operands.h"

#include <c10/core/DefaultDtype.h>
#include <c10/core/UndefinedTensorImpl.h>

#include <algorithm>
#include <bit>

#include "torch/device.h"

namespace opentrn::bridge {
namespace {

enum Tag : uint64_t { kNone = 1, kUndefined, kDevice, kCpuScalar, kList, kInteger, kReal, kBoolean, kText, kOther };

struct Range {
  const char* begin;
  const char* end;
  int index;
};

Range range_of(const c10::TensorImpl& tensor, int index) {
  const char* begin = static_cast<const char*>(address_of(tensor));
  int64_t last = 0;
  if (tensor.numel() == 0) return {begin, begin, index};
  c10::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  for (size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
  return {begin, begin + (last + 1) * static_cast<int64_t>(tensor.itemsize()), index};
}

bool same_view(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  return address_of(a) == address_of(b) && a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

[[noreturn]] void two_devices(const OperandRules& rules, c10::Device a, c10::Device b, const std::string& argument) {
  C10_THROW_ERROR(Error, c10::str("Expected all tensors to be on the same device, but found at least two devices, ", a,
                                  " and ", b, "! (when checking argument for argument ", argument, " in method ",
                                  rules.name, ")"));
}

struct Reader {
  const Signature& signature;
  const OperandRules& rules;
  Operands& operands;
  c10::TensorImpl* foreign = nullptr;       // a CPU tensor that may not mix with device tensors
  const Parameter* foreign_parameter = nullptr;

  void push(uint64_t word) { operands.key.push_back(word); }

  void tensor(c10::TensorImpl* impl, const Parameter& parameter) {
    if (impl == c10::UndefinedTensorImpl::singleton()) return push(kUndefined);
    c10::Device device = impl->device();
    if (device.type() == kNeuron) {
      if (operands.device < 0) {
        operands.device = device.index();
      } else if (operands.device != device.index()) {
        two_devices(rules, torch_device(operands.device), device, parameter.name);
      }
      operands.tensors.push_back(impl);
      append_tensor(operands.key, *impl);
      return;
    }
    if (device.type() == c10::kCPU && impl->dim() == 0 && rules.cpu_scalars && !parameter.written) {
      push(kCpuScalar | static_cast<uint64_t>(c10::typeMetaToScalarType(impl->dtype())) << 8 |
           static_cast<uint64_t>(impl->is_wrapped_number()) << 16);
      exec::ScalarValue value;
      if (!read_cpu_scalar(*impl, value)) operands.complex_number = true;
      operands.numbers.push_back(value);
      return;
    }
    if (!foreign) {
      foreign = impl;
      foreign_parameter = &parameter;
    }
  }

  void number(const c10::IValue& value, size_t i) {
    exec::ScalarValue scalar;
    if (value.isDouble()) {
      scalar.real = value.toDouble();
      push(kReal);
      operands.number_values.push_back({i, std::bit_cast<uint64_t>(scalar.real)});
    } else if (value.isInt()) {
      scalar = {exec::ScalarValue::Kind::integer, static_cast<double>(value.toInt()), value.toInt()};
      push(kInteger);
      operands.number_values.push_back({i, static_cast<uint64_t>(scalar.integer)});
    } else if (value.isBool()) {
      scalar = {exec::ScalarValue::Kind::integer, static_cast<double>(value.toBool()), value.toBool()};
      push(kBoolean);
      operands.number_values.push_back({i, static_cast<uint64_t>(scalar.integer)});
    } else if (value.isNone()) {
      push(kNone);
      return;
    } else {
      c10::Scalar other = value.toScalar();   // complex, symbolic
      if (other.isComplex()) {
        operands.complex_number = true;
        push(kOther);
      } else if (other.isIntegral(true)) {
        return number(c10::IValue(other.toLong()), i);
      } else {
        return number(c10::IValue(other.toDouble()), i);
      }
    }
    operands.numbers.push_back(scalar);
  }

  void argument(size_t i, const c10::IValue& value) {
    const Parameter& parameter = signature.parameters[i];
    if (value.isNone()) return push(kNone);
    switch (parameter.kind) {
      case ArgumentKind::tensor: return tensor(value.unsafeToTensorImpl(), parameter);
      case ArgumentKind::tensors: {
        c10::ArrayRef<c10::IValue> list = value.toListRef();
        push(kList | list.size() << 8);
        for (const c10::IValue& element : list) {
          if (element.isNone()) {
            push(kNone);
          } else {
            tensor(element.unsafeToTensorImpl(), parameter);
          }
        }
        return;
      }
      case ArgumentKind::number:
      case ArgumentKind::real: return number(value, i);
      case ArgumentKind::numbers: {
        c10::ArrayRef<c10::IValue> list = value.toListRef();
        push(kList | list.size() << 8);
        for (const c10::IValue& element : list) number(element, i);
        return;
      }
      case ArgumentKind::integer:
        push(kInteger);
        return push(static_cast<uint64_t>(value.toInt()));
      case ArgumentKind::boolean: return push(kBoolean | static_cast<uint64_t>(value.toBool()) << 8);
      case ArgumentKind::integers: {
        c10::ArrayRef<c10::IValue> list = value.toListRef();
        push(kList | list.size() << 8);
        for (const c10::IValue& element : list)
          push(element.isBool() ? element.toBool() : static_cast<uint64_t>(element.toInt()));
        return;
      }
      case ArgumentKind::reals: {
        c10::ArrayRef<c10::IValue> list = value.toListRef();
        push(kList | list.size() << 8);
        for (const c10::IValue& element : list) push(std::bit_cast<uint64_t>(element.toDouble()));
        return;
      }
      case ArgumentKind::text: {
        const std::string& text = value.toStringRef();
        push(kText | text.size() << 8);
        for (size_t at = 0; at < text.size(); at += 8) {
          uint64_t word = 0;
          std::memcpy(&word, text.data() + at, std::min<size_t>(8, text.size() - at));
          push(word);
        }
        return;
      }
      case ArgumentKind::dtype:
        push(kInteger);
        return push(static_cast<uint64_t>(value.toInt()));
      case ArgumentKind::device:
        if (operands.device < 0 && value.toDevice().type() == kNeuron) operands.device = index_of(value.toDevice());
        return;
      case ArgumentKind::generator: operands.generator = &value; return;
      case ArgumentKind::ignored: return;
    }
  }

  void relations() {
    const auto& tensors = operands.tensors;
    size_t count = tensors.size();
    if (count < 2) return;
    if (!signature.writes) {
      if (count > 4) return;
      uint64_t bits = 0;
      for (size_t i = 0; i < count; ++i)
        for (size_t j = i + 1; j < count; ++j)
          if (tensors[i] == tensors[j] || same_view(*tensors[i], *tensors[j])) bits |= 1ull << (i * 4 + j);
      return push(bits);
    }
    if (count <= 6) {
      uint64_t bits = 0;
      for (size_t i = 0; i < count; ++i)
        for (size_t j = i + 1; j < count; ++j)
          bits = bits << 2 | static_cast<uint64_t>(relation(*tensors[i], *tensors[j]));
      return push(bits);
    }
    // Many tensors (foreach, fused optimizers): usually all disjoint, which sorting by address shows at once.
    c10::SmallVector<Range, 64> ranges;
    for (size_t i = 0; i < count; ++i) {
      Range range = range_of(*tensors[i], static_cast<int>(i));
      if (range.begin != range.end) ranges.push_back(range);
    }
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    bool disjoint = true;
    for (size_t i = 1; i < ranges.size(); ++i) disjoint &= ranges[i - 1].end <= ranges[i].begin;
    push(disjoint);
    if (disjoint) return;
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = i + 1; j < count; ++j) {
        Relation r = relation(*tensors[i], *tensors[j]);
        if (r != Relation::disjoint) push(i << 32 | j << 8 | static_cast<uint64_t>(r));
      }
    }
  }
};

}  // namespace

void append_tensor(c10::SmallVectorImpl<uint64_t>& key, const c10::TensorImpl& tensor) {
  c10::IntArrayRef sizes = tensor.sizes();
  bool contiguous = tensor.is_contiguous();
  key.push_back(kDevice | static_cast<uint64_t>(c10::typeMetaToScalarType(tensor.dtype())) << 8 |
                static_cast<uint64_t>(tensor.is_wrapped_number()) << 16 | static_cast<uint64_t>(contiguous) << 17 |
                sizes.size() << 24);
  for (int64_t size : sizes) key.push_back(static_cast<uint64_t>(size));
  if (!contiguous) {
    for (int64_t stride : tensor.strides()) key.push_back(static_cast<uint64_t>(stride));
  }
}

uint64_t hash_key(const c10::SmallVectorImpl<uint64_t>& key) {
  uint64_t hash = key.size();
  for (uint64_t word : key) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

Relation relation(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  if (&a == &b) return Relation::identical;
  Range ra = range_of(a, 0), rb = range_of(b, 0);
  if (ra.begin == ra.end || rb.begin == rb.end || ra.end <= rb.begin || rb.end <= ra.begin) return Relation::disjoint;
  return same_view(a, b) ? Relation::identical : Relation::overlapping;
}

bool read_cpu_scalar(const c10::TensorImpl& tensor, exec::ScalarValue& value) {
  const void* data = address_of(tensor);
  auto integer = [&](int64_t v) { value = {exec::ScalarValue::Kind::integer, static_cast<double>(v), v}; };
  auto real = [&](double v) { value = {exec::ScalarValue::Kind::real, v, 0}; };
  using c10::ScalarType;
  switch (c10::typeMetaToScalarType(tensor.dtype())) {
    case ScalarType::Double: real(*static_cast<const double*>(data)); return true;
    case ScalarType::Float: real(*static_cast<const float*>(data)); return true;
    case ScalarType::Half: real(*static_cast<const c10::Half*>(data)); return true;
    case ScalarType::BFloat16: real(*static_cast<const c10::BFloat16*>(data)); return true;
    case ScalarType::Long: integer(*static_cast<const int64_t*>(data)); return true;
    case ScalarType::Int: integer(*static_cast<const int32_t*>(data)); return true;
    case ScalarType::Short: integer(*static_cast<const int16_t*>(data)); return true;
    case ScalarType::Char: integer(*static_cast<const int8_t*>(data)); return true;
    case ScalarType::Byte: integer(*static_cast<const uint8_t*>(data)); return true;
    case ScalarType::Bool: integer(*static_cast<const bool*>(data)); return true;
    case ScalarType::UInt16: integer(*static_cast<const uint16_t*>(data)); return true;
    case ScalarType::UInt32: integer(*static_cast<const uint32_t*>(data)); return true;
    case ScalarType::UInt64: integer(static_cast<int64_t>(*static_cast<const uint64_t*>(data))); return true;
    default: return false;
  }
}

void read_operands(const Signature& signature, const OperandRules& rules, const torch::jit::Stack& stack,
                   Operands& operands) {
  Reader reader{signature, rules, operands};
  // Type promotion depends on the default dtype.
  reader.push(static_cast<uint64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())));
  size_t count = signature.parameters.size(), base = stack.size() - count;
  for (size_t i = 0; i < count; ++i) reader.argument(i, stack[base + i]);
  if (reader.foreign) {
    two_devices(rules, torch_device(operands.device < 0 ? current_device() : operands.device),
                reader.foreign->device(), reader.foreign_parameter->name);
  }
  if (operands.device < 0) operands.device = current_device();
  reader.relations();
}

}  // namespace opentrn::bridge
