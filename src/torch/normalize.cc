#include "torch/normalize.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/TypeProperties.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <fmt/ranges.h>

#include "base/error.h"
#include "torch/device.h"
#include "torch/dtype.h"
#include "torch/meta.h"

namespace opentrn::bridge {
namespace {

using graph::Layout;
using graph::ValueId;

graph::Shape shape_of(c10::IntArrayRef sizes) { return {sizes.begin(), sizes.end()}; }

graph::Type type_of(const c10::TensorImpl& tensor) {
  return {dtype_of(c10::typeMetaToScalarType(tensor.dtype())), shape_of(tensor.sizes())};
}

Layout layout_of(c10::IntArrayRef strides) { return {{strides.begin(), strides.end()}, 0}; }

// The dtype in which a 0-dim CPU tensor reaches the program. Its value is converted at launch, so that a Python float
// added to an fp32 tensor needs no 64-bit arithmetic on the device.
DType scalar_dtype(c10::ScalarType type, DType compute) {
  if (is_float(compute)) return compute == DType::f64 ? DType::f64 : DType::f32;
  if (c10::isFloatingType(type)) return type == c10::kDouble && compute == DType::f64 ? DType::f64 : DType::f32;
  if (type == c10::kBool) return DType::i32;
  return compute == DType::i64 || compute == DType::u64 || compute == DType::u32 ? DType::i64 : DType::i32;
}

// Everything about one call while it is being prepared.
struct Preparation {
  const Operator& op;
  const torch::jit::Stack& stack;
  const Operands& operands;
  size_t base;
  aten::Builder builder;
  aten::Call call;
  Prepared prepared;

  std::vector<int> parameter_of;      // device tensor of the call -> graph parameter
  std::vector<int> tensor_of;         // graph parameter -> device tensor
  std::vector<ValueId> value_of;      // device tensor -> graph value
  // Per argument of this overload: its first device tensor and number in `operands`.
  std::vector<int> first_tensor, first_number;
  // Per argument and element: the 0-dim CPU tensor's graph value, by number index.
  std::vector<ValueId> number_value;

  Preparation(const Operator& op, const torch::jit::Stack& stack, const Operands& operands)
      : op(op), stack(stack), operands(operands), base(stack.size() - op.signature.parameters.size()),
        builder(graph_name(op, operands)), call(std::string(op.entry->op), builder) {}

  static std::string graph_name(const Operator& op, const Operands& operands) {
    std::string name(op.entry->op);
    if (!operands.tensors.empty()) {
      const c10::TensorImpl& t = *operands.tensors[0];
      name += fmt::format(" {}[{}]", name_of(dtype_of(c10::typeMetaToScalarType(t.dtype()))),
                          fmt::join(t.sizes(), ","));
    }
    return name;
  }

  const c10::IValue& argument(size_t i) const { return stack[base + i]; }

  // Positions of each argument's tensors and numbers, in the order in which `read_operands` found them.
  void index_operands() {
    int tensors = 0, numbers = 0;
    auto count = [&](const c10::IValue& value) {
      if (value.isNone()) return;
      const c10::TensorImpl* impl = value.unsafeToTensorImpl();
      if (impl == c10::UndefinedTensorImpl::singleton()) return;
      if (impl->device().type() == kNeuron) {
        ++tensors;
      } else {
        ++numbers;
      }
    };
    for (size_t i = 0; i < op.signature.parameters.size(); ++i) {
      first_tensor.push_back(tensors);
      first_number.push_back(numbers);
      const c10::IValue& value = argument(i);
      if (value.isNone()) continue;
      switch (op.signature.parameters[i].kind) {
        case ArgumentKind::tensor: count(value); break;
        case ArgumentKind::tensors:
          for (const c10::IValue& element : value.toListRef()) count(element);
          break;
        case ArgumentKind::number:
        case ArgumentKind::real: ++numbers; break;
        case ArgumentKind::numbers: numbers += static_cast<int>(value.toListRef().size()); break;
        default: break;
      }
    }
    number_value.assign(static_cast<size_t>(numbers), -1);
  }

  // at::result_type over tensors and positional numbers.
  DType compute_dtype() const {
    at::native::ResultTypeState state;
    bool any = false;
    auto add = [&](const c10::IValue& value) {
      if (value.isNone() || value.unsafeToTensorImpl() == c10::UndefinedTensorImpl::singleton()) return;
      state = at::native::update_result_type_state(value.toTensor(), state);
      any = true;
    };
    for (size_t i = 0; i < op.signature.parameters.size(); ++i) {
      const Parameter& parameter = op.signature.parameters[i];
      const c10::IValue& value = argument(i);
      if (value.isNone() || (parameter.written && parameter.keyword_only)) continue;
      if (parameter.kind == ArgumentKind::tensor) add(value);
      if (parameter.kind == ArgumentKind::tensors) {
        for (const c10::IValue& element : value.toListRef()) add(element);
      }
      if (parameter.kind == ArgumentKind::number && !parameter.keyword_only) {
        state = at::native::update_result_type_state(value.toScalar(), state);
        any = true;
      }
      if (parameter.kind == ArgumentKind::numbers) {
        for (const c10::IValue& element : value.toListRef())
          state = at::native::update_result_type_state(element.toScalar(), state);
      }
    }
    if (!any) return DType::f32;
    return dtype_of(at::native::result_type(state));
  }

  // One graph parameter per device tensor; equal views that the key knows to be equal share one.
  void add_parameters() {
    const auto& tensors = operands.tensors;
    bool share = op.signature.writes ? tensors.size() <= 6 : tensors.size() <= 4;
    for (size_t i = 0; i < tensors.size(); ++i) {
      int shared = -1;
      for (size_t j = 0; share && j < i; ++j) {
        if (relation(*tensors[i], *tensors[j]) == Relation::identical) shared = parameter_of[j];
      }
      if (shared >= 0) {
        parameter_of.push_back(shared);
        value_of.push_back(value_of[static_cast<size_t>(tensor_of[shared])]);
        continue;
      }
      parameter_of.push_back(static_cast<int>(tensor_of.size()));
      tensor_of.push_back(static_cast<int>(i));
      value_of.push_back(builder.parameter(type_of(*tensors[i]), layout_of(tensors[i]->strides())));
    }
  }

  // The graph value of a tensor on the stack: a parameter, or a launch scalar for a 0-dim CPU tensor.
  ValueId tensor_value(const c10::IValue& value, int& tensor, int& number) {
    if (value.isNone()) return -1;
    const c10::TensorImpl* impl = value.unsafeToTensorImpl();
    if (impl == c10::UndefinedTensorImpl::singleton()) return -1;
    if (impl->device().type() == kNeuron) return value_of[tensor++];
    ValueId& known = number_value[number];
    if (known < 0) {
      c10::ScalarType type = c10::typeMetaToScalarType(impl->dtype());
      known = builder.scalar(scalar_dtype(type, call.compute));
      prepared.scalars.push_back({Prepared::Scalar::From::number, number});
      if (type == c10::kBool && call.compute == DType::boolean) known = builder.convert(known, DType::boolean);
    }
    ++number;
    return known;
  }

  void add_arguments() {
    for (size_t k = 0; k < op.functional_arguments.size(); ++k) {
      call.names.push_back(op.functional_names[k]);
      aten::Argument out;
      int i = op.functional_arguments[k];
      if (i >= 0 && !argument(i).isNone()) fill(static_cast<size_t>(i), out);
      call.args.push_back(std::move(out));
    }
  }

  void fill_number(const c10::IValue& value, aten::Argument& out) const {
    if (value.isDouble()) {
      out.real = value.toDouble();
      out.is_real = true;
    } else {
      c10::Scalar scalar = value.toScalar();
      out.is_real = scalar.isFloatingPoint();
      out.real = scalar.toDouble();
      out.integer = out.is_real ? 0 : scalar.toLong();
    }
  }

  void fill(size_t i, aten::Argument& out) {
    using Kind = aten::Argument::Kind;
    const Parameter& parameter = op.signature.parameters[i];
    const c10::IValue& value = argument(i);
    int tensor = first_tensor[i], number = first_number[i];
    switch (parameter.kind) {
      case ArgumentKind::tensor:
        out.value = tensor_value(value, tensor, number);
        if (out.value >= 0) out.kind = Kind::tensor;
        break;
      case ArgumentKind::tensors:
        out.kind = Kind::tensors;
        for (const c10::IValue& element : value.toListRef())
          out.values.push_back(tensor_value(element, tensor, number));
        break;
      case ArgumentKind::number:
        out.kind = Kind::number;
        fill_number(value, out);
        break;
      case ArgumentKind::numbers:
      case ArgumentKind::reals:
        out.kind = Kind::numbers;
        for (const c10::IValue& element : value.toListRef()) out.numbers.push_back(element.toScalar().toDouble());
        break;
      case ArgumentKind::integer:
        if (parameter.memory_format) break;
        out.kind = Kind::integer;
        out.integer = value.toInt();
        break;
      case ArgumentKind::boolean:
        out.kind = Kind::boolean;
        out.integer = value.toBool();
        break;
      case ArgumentKind::real:
        out.kind = Kind::real;
        out.real = value.toDouble();
        out.is_real = true;
        break;
      case ArgumentKind::integers:
        out.kind = Kind::integers;
        for (const c10::IValue& element : value.toListRef())
          out.integers.push_back(element.isBool() ? element.toBool() : element.toInt());
        break;
      case ArgumentKind::text:
        out.kind = Kind::text;
        out.text = value.toStringRef();
        break;
      case ArgumentKind::dtype:
        out.kind = Kind::dtype;
        out.dtype = dtype_of(value.toScalarType());
        break;
      case ArgumentKind::device:
      case ArgumentKind::generator:
      case ArgumentKind::ignored: break;
    }
  }

  // ---- results ---------------------------------------------------------------------------------
  // Fresh results first (from the Meta kernel), then the written tensors, which is the order in which functional
  // operators return them.
  struct Target {
    int written = -1;   // device tensor that receives the result, -1: a fresh output
  };
  std::vector<Target> targets;

  void add_fresh(const at::Tensor& meta) {
    Prepared::Output output;
    if (meta.defined()) {
      output.sizes = meta.sizes().vec();
      output.strides = meta.strides().vec();
      output.dtype = meta.scalar_type();
      output.contiguous = meta.is_contiguous();
      call.results.push_back({dtype_of(output.dtype), output.sizes});
    } else {
      output.defined = false;
      call.results.push_back({DType::f32, {0}});
    }
    call.wanted.push_back(meta.defined());
    prepared.outputs.push_back(std::move(output));
    targets.push_back({});
  }

  void add_results(const torch::jit::Stack& meta_arguments, const torch::jit::Stack& meta_results) {
    // Trailing returns of a mutating overload are the written arguments themselves.
    int written_arguments = 0;
    for (const Parameter& parameter : op.signature.parameters) written_arguments += parameter.written;
    int fresh = static_cast<int>(meta_results.size());
    if (written_arguments) fresh = std::max(0, fresh - written_arguments);
    for (int r = 0; r < fresh; ++r) {
      const c10::IValue& value = meta_results[r];
      if (value.isTensor()) {
        prepared.returned.push_back(-1);
        add_fresh(value.toTensor());
      } else if (value.isTensorList()) {
        std::vector<at::Tensor> list = value.toTensorVector();
        prepared.returned.push_back(static_cast<int32_t>(list.size()));
        for (const at::Tensor& meta : list) add_fresh(meta);
      } else {
        throw Unsupported(op.name + " returns something that is no tensor");
      }
    }
    for (size_t i = 0; i < op.signature.parameters.size(); ++i) {
      const Parameter& parameter = op.signature.parameters[i];
      if (!parameter.written || argument(i).isNone()) continue;
      int tensor = first_tensor[i];
      auto add_written = [&](const at::Tensor& meta) {
        if (!meta.defined()) return;
        const c10::TensorImpl& now = *operands.tensors[tensor];
        // out= tensors that have another shape are resized first.
        if (parameter.keyword_only && now.sizes() != meta.sizes())
          prepared.resizes.push_back({tensor, meta.sizes().vec(), meta.strides().vec()});
        call.results.push_back({dtype_of(c10::typeMetaToScalarType(now.dtype())), shape_of(meta.sizes())});
        call.wanted.push_back(true);
        targets.push_back({tensor});
        ++tensor;
      };
      const c10::IValue& meta = meta_arguments[i];
      if (parameter.kind == ArgumentKind::tensor) {
        add_written(meta.toTensor());
      } else {
        for (const c10::IValue& element : meta.toListRef()) add_written(element.toTensor());
      }
    }
  }

  bool is_read(int tensor) const {
    for (size_t i = 0; i < op.signature.parameters.size(); ++i) {
      if (!(op.signature.parameters[i].written && op.signature.parameters[i].keyword_only)) continue;
      if (first_tensor[i] == tensor) return false;   // an out= tensor
    }
    return true;
  }

  // Where a written tensor's result may go: straight into it, or to a fresh tensor that is copied afterwards.
  bool needs_copy(int written) const {
    const c10::TensorImpl& target = *operands.tensors[written];
    for (const Prepared::Resize& resize : prepared.resizes) {
      if (resize.tensor == written) {
        // Its memory may move; inputs that share its storage keep the old one.
        for (size_t j = 0; j < operands.tensors.size(); ++j) {
          if (static_cast<int>(j) != written &&
              operands.tensors[j]->unsafe_storage().is_alias_of(target.unsafe_storage()))
            return true;
        }
        return false;
      }
    }
    for (size_t j = 0; j < operands.tensors.size(); ++j) {
      if (static_cast<int>(j) == written) continue;
      Relation r = relation(target, *operands.tensors[j]);
      if (r == Relation::overlapping) return true;
      if (r == Relation::identical && parameter_of[j] != parameter_of[written]) return true;
    }
    return false;
  }

  void lower() {
    std::vector<ValueId> values = op.entry->lower(call);
    if (values.size() != call.results.size()) {
      throw InternalError(fmt::format("lowering of {} returned {} values for {} results", op.entry->op, values.size(),
                                      call.results.size()));
    }
    add_scalars();
    size_t next_output = 0;
    for (size_t r = 0; r < values.size(); ++r) {
      int output = targets[r].written < 0 ? static_cast<int>(next_output++) : -1;
      if (!call.wanted[r]) continue;
      ValueId value = values[r];
      if (value < 0) {
        if (targets[r].written >= 0) continue;   // this call does not change it
        throw InternalError(fmt::format("lowering of {} left out result {}", op.entry->op, r));
      }
      if (builder.shape(value) != call.results[r].shape) {
        throw InternalError(fmt::format("lowering of {} made result {} of shape [{}] instead of [{}]", op.entry->op, r,
                                        fmt::join(builder.shape(value), ","), fmt::join(call.results[r].shape, ",")));
      }
      value = builder.convert(value, call.results[r].dtype);
      if (graph::elements(call.results[r].shape) == 0) continue;
      add_result(value, targets[r].written, output);
    }
  }

  bool any_result = false;

  void add_result(ValueId value, int written, int output) {
    if (written < 0) {
      any_result = true;
      builder.result(value, layout_of(prepared.outputs[output].strides));
      results.push_back({true, output});
      return;
    }
    if (value == value_of[written]) return;   // unchanged
    any_result = true;
    if (needs_copy(written)) {
      const graph::Type& type = builder.type(value);
      Prepared::Output temporary;
      temporary.sizes = type.shape;
      temporary.strides = graph::row_major(type.shape);
      temporary.dtype = c10::typeMetaToScalarType(operands.tensors[written]->dtype());
      builder.result(value, {temporary.strides, 0});
      results.push_back({true, static_cast<int32_t>(prepared.outputs.size())});
      prepared.write_backs.push_back({static_cast<int32_t>(prepared.outputs.size()), written});
      prepared.outputs.push_back(std::move(temporary));
      return;
    }
    Layout layout = layout_of(operands.tensors[written]->strides());
    bool resized = false;
    for (const Prepared::Resize& resize : prepared.resizes) {
      if (resize.tensor != written) continue;
      layout = layout_of(resize.strides);
      resized = true;
    }
    int alias = is_read(written) && !resized ? parameter_of[written] : -1;
    if (alias < 0) {
      // An out= tensor that is also an input.
      for (size_t j = 0; j < operands.tensors.size() && !resized; ++j) {
        if (static_cast<int>(j) != written && parameter_of[j] == parameter_of[written]) alias = parameter_of[written];
      }
    }
    builder.result(value, layout, alias);
    results.push_back({false, written});
  }
  std::vector<Prepared::Buffer> results;   // of the graph, in order

  // Numbers that the lowering asked for follow the 0-dim CPU tensors' scalars, in the order in which it asked.
  void add_scalars() {
    using From = Prepared::Scalar::From;
    for (const aten::Call::NumberUse& use : call.number_uses()) {
      if (use.argument == aten::Call::NumberUse::kSeed) {
        prepared.scalars.push_back({From::seed, 0});
      } else if (use.argument == aten::Call::NumberUse::kOffset) {
        // A later draw of the same call starts where the one before ended.
        prepared.scalars.push_back({From::offset, 0, std::max(use.element, 0)});
      } else {
        int position = op.functional_arguments[use.argument];
        if (position < 0) throw InternalError(fmt::format("{}: number of an argument that is absent", op.name));
        ArgumentKind kind = op.signature.parameters[position].kind;
        if (kind == ArgumentKind::integer || kind == ArgumentKind::boolean) {
          // Its value is part of the key.
          prepared.scalars.push_back({From::constant, 0, call.args[use.argument].integer});
        } else {
          prepared.scalars.push_back({From::number, first_number[position] + std::max(use.element, 0)});
        }
      }
    }
    prepared.philox_elements = call.philox_elements();
  }
};

uint64_t specialised_arguments(const Preparation& p) {
  uint64_t mask = p.op.rules.keyed_numbers;
  for (const std::string& name : p.call.specialised()) {
    for (size_t k = 0; k < p.op.functional_names.size(); ++k) {
      if (p.op.functional_names[k] == name && p.op.functional_arguments[k] >= 0)
        mask |= 1ull << p.op.functional_arguments[k];
    }
  }
  return mask;
}

}  // namespace

std::shared_ptr<const Prepared> prepare(const Operator& op, const c10::OperatorHandle& handle,
                                        const torch::jit::Stack& stack, const Operands& operands,
                                        uint64_t& specialised) {
  specialised = op.rules.keyed_numbers;
  Preparation p(op, stack, operands);
  try {
    p.index_operands();
    MetaCall meta = call_on_meta(handle, stack, operands);
    for (size_t i = 0; i < op.signature.parameters.size(); ++i) {
      const c10::IValue& value = p.argument(i);
      if (op.signature.parameters[i].written && value.isTensor()) at::assert_no_internal_overlap(value.toTensor());
    }
    p.add_results(meta.arguments, meta.results);
    bool empty = true;
    for (size_t r = 0; r < p.call.results.size(); ++r)
      empty &= !p.call.wanted[r] || graph::elements(p.call.results[r].shape) == 0;
    if (empty) return std::make_shared<Prepared>(std::move(p.prepared));
    p.call.compute = p.compute_dtype();
    p.add_parameters();
    p.add_arguments();
    p.lower();
    specialised = specialised_arguments(p);
    if (p.any_result) {
      graph::Graph graph = p.builder.take();
      for (int tensor : p.tensor_of) p.prepared.buffers.push_back({false, tensor});
      p.prepared.buffers.insert(p.prepared.buffers.end(), p.results.begin(), p.results.end());
      p.prepared.kernel = runtime::kernel_for(graph);
    }
  } catch (const Unsupported& reason) {
    auto none = std::make_shared<Prepared>();
    none->unsupported = reason.what();
    return none;
  }
  return std::make_shared<Prepared>(std::move(p.prepared));
}

}  // namespace opentrn::bridge
