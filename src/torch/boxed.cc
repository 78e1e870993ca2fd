#include "torch/boxed.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <set>

#include "torch/copy.h"
#include "torch/device.h"
#include "torch/dynamic.h"
#include "torch/fallback.h"
#include "torch/normalize.h"
#include "torch/origin.h"

namespace opentrn::bridge {
namespace {

struct OperatorState {
  Operator op;
  PreparedTable table;
  std::atomic<int64_t> calls{0};
};

std::vector<OperatorState*>& states() {
  static auto* all = new std::vector<OperatorState*>;
  return *all;
}
std::vector<std::string>& problems() {
  static auto* all = new std::vector<std::string>;
  return *all;
}

// Puts the results where the caller expects them: written arguments are returned as they are, the rest is fresh.
void return_results(const Prepared& prepared, const Signature& signature, torch::jit::Stack* stack,
                    c10::SmallVectorImpl<at::Tensor>& results) {
  size_t count = signature.parameters.size(), base = stack->size() - count;
  c10::SmallVector<c10::IValue, 4> returned;
  size_t next = 0;
  for (int32_t length : prepared.returned) {
    if (length < 0) {
      returned.emplace_back(std::move(results[next++]));
    } else {
      c10::List<at::Tensor> list;
      list.reserve(length);
      for (int32_t i = 0; i < length; ++i) list.push_back(std::move(results[next++]));
      returned.emplace_back(std::move(list));
    }
  }
  for (size_t i = 0; i < count && returned.size() < static_cast<size_t>(signature.returns); ++i) {
    if (signature.parameters[i].written) returned.push_back(std::move((*stack)[base + i]));
  }
  stack->erase(stack->begin() + static_cast<std::ptrdiff_t>(base), stack->end());
  for (c10::IValue& value : returned) stack->push_back(std::move(value));
}

class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(OperatorState* state) : state_(*state) {
    const auto& parameters = state_.op.signature.parameters;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].name == "indices" && parameters[i].kind == ArgumentKind::tensors) indices_ = static_cast<int>(i);
      if (parameters[i].name == "values") values_ = static_cast<int>(i);
      if (parameters[i].name == "accumulate") accumulate_ = static_cast<int>(i);
    }
  }

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, torch::jit::Stack* stack) {
    if (indices_ >= 0 && index(stack)) return;
    Operands operands;
    read_operands(state_.op.signature, state_.op.rules, *stack, operands);
    state_.calls.fetch_add(1, std::memory_order_relaxed);
    std::shared_ptr<const Prepared> prepared = state_.table.find(operands);
    if (!prepared) prepared = prepare_and_keep(handle, *stack, operands);
    if (!prepared->unsupported.empty()) return run_on_cpu(handle, stack, prepared->unsupported);
    c10::SmallVector<at::Tensor, 4> results;
    launch(*prepared, operands, capture_origin_for_autograd(), results);
    return_results(*prepared, state_.op.signature, stack, results);
  }

 private:
  std::shared_ptr<const Prepared> prepare_and_keep(const c10::OperatorHandle& handle, const torch::jit::Stack& stack,
                                                   Operands& operands) {
    if (operands.complex_number) {
      auto none = std::make_shared<Prepared>();
      none->unsupported = "complex numbers";
      return none;
    }
    uint64_t specialised = 0;
    std::shared_ptr<const Prepared> prepared = prepare(state_.op, handle, stack, operands, specialised);
    state_.table.insert(operands, specialised, prepared);
    return prepared;
  }

  // Index lists may hold masks and CPU tensors. True when that was the whole work.
  bool index(torch::jit::Stack* stack) {
    size_t count = state_.op.signature.parameters.size(), base = stack->size() - count;
    if (values_ >= 0 && accumulate_ >= 0) {
      at::Tensor result;
      bool in_place = state_.op.signature.parameters[0].written;
      if (fill_by_mask(*stack, base, base + indices_, base + values_, (*stack)[base + accumulate_].toBool(), in_place,
                       result)) {
        stack->erase(stack->begin() + static_cast<std::ptrdiff_t>(base), stack->end());
        stack->push_back(std::move(result));
        return true;
      }
    }
    expand_indices(*stack, base, base + indices_);
    return false;
  }

  OperatorState& state_;
  int indices_ = -1, values_ = -1, accumulate_ = -1;   // arguments of indexing operators
};

// ---- registration --------------------------------------------------------------------------------

// Operators that the bridge answers itself, because they concern more than values.
bool is_own(std::string_view name) {
  static const std::set<std::string_view> own = {"aten::_to_copy", "aten::copy", "aten::clone", "aten::contiguous",
                                                 "aten::view", "aten::as_strided", "aten::_reshape_alias",
                                                 "aten::unfold", "aten::empty", "aten::_local_scalar_dense"};
  return own.contains(name);
}

// Operators that take no 0-dim CPU tensor in place of a device tensor on CUDA either.
bool takes_cpu_scalars(const std::string& base) {
  static const std::set<std::string> no = {
      "mm", "bmm", "addmm", "baddbmm", "addmv", "addbmm", "mv", "dot", "vdot", "linear", "linear_backward",
      "convolution_overrideable", "convolution_backward_overrideable", "convolution", "convolution_backward",
      "embedding", "embedding_dense_backward", "gather", "scatter", "scatter_add", "scatter_reduce", "index_select",
      "index_add", "index_copy", "index", "index_put", "cat", "stack", "nll_loss_forward", "nll_loss_backward",
      "native_layer_norm", "native_layer_norm_backward", "native_group_norm", "_softmax", "_log_softmax",
      "_softmax_backward_data", "_log_softmax_backward_data", "topk", "sort", "cumsum", "take", "roll", "flip"};
  return !no.contains(base);
}

// The functional overload's arguments, by position in `other`; empty optional when they do not correspond.
std::optional<std::vector<int>> correspond(const c10::FunctionSchema& functional, const c10::FunctionSchema& other) {
  auto factory = [](const std::string& name) {
    return name == "dtype" || name == "layout" || name == "device" || name == "pin_memory";
  };
  std::vector<int> positions;
  std::vector<bool> used(other.arguments().size(), false);
  for (const c10::Argument& argument : functional.arguments()) {
    int found = -1;
    for (size_t i = 0; i < other.arguments().size(); ++i) {
      const c10::Argument& candidate = other.arguments()[i];
      if (!used[i] && candidate.name() == argument.name() && *candidate.type() == *argument.type()) {
        found = static_cast<int>(i);
        break;
      }
    }
    if (found < 0 && !factory(argument.name())) return std::nullopt;
    if (found >= 0) used[found] = true;
    positions.push_back(found);
  }
  for (size_t i = 0; i < used.size(); ++i) {
    const c10::Argument& rest = other.arguments()[i];
    bool out = rest.kwarg_only() && rest.alias_info() && rest.alias_info()->isWrite();
    if (!used[i] && !out) return std::nullopt;
  }
  return positions;
}

torch::Library& library() {
  static auto* lib = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  return *lib;
}

bool add(const aten::Entry& entry, const c10::OperatorHandle& handle, const c10::FunctionSchema& functional) {
  const c10::FunctionSchema& schema = handle.schema();
  auto positions = correspond(functional, schema);
  if (!positions) return false;
  auto state = std::make_unique<OperatorState>();
  state->op.entry = &entry;
  state->op.name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  std::string problem;
  if (!Signature::read(schema, state->op.signature, problem)) {
    problems().push_back(state->op.name + ": " + problem);
    return false;
  }
  for (const c10::Argument& argument : functional.arguments()) state->op.functional_names.push_back(argument.name());
  state->op.functional_arguments = *positions;
  std::string base = schema.name().substr(6);
  if (base.size() > 1 && base.back() == '_' && functional.name() != schema.name()) base.pop_back();
  state->op.rules.cpu_scalars = takes_cpu_scalars(base);
  // The result's size follows from numbers: they are part of the key.
  if (base == "arange" || base == "range") state->op.rules.keyed_numbers = ~0ull;
  OperatorState* kept = state.release();
  kept->op.rules.name = kept->op.name.c_str();
  states().push_back(kept);
  std::string local = kept->op.name.substr(6);
  library().impl(local.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(kept)));
  return true;
}

}  // namespace

void register_operators() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::map<std::string, std::vector<c10::OperatorName>> overloads;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) overloads[name.name].push_back(name);
  // Functional operators whose in-place form has another base name.
  const std::map<std::string, std::string> renamed = {
      {"aten::normal_functional", "aten::normal_"},
      {"aten::_native_batch_norm_legit_functional", "aten::_native_batch_norm_legit"},
      {"aten::_index_put_impl", "aten::_index_put_impl_"},
  };
  std::set<std::string> done;
  for (const aten::Entry& entry : aten::table()) {
    std::string full(entry.op);
    size_t dot = full.find('.');
    std::string base = full.substr(0, dot), overload = dot == std::string::npos ? "" : full.substr(dot + 1);
    if (is_own(base)) continue;
    auto functional = dispatcher.findSchema({base, overload});
    if (!functional) {
      problems().push_back(full + ": no such operator");
      continue;
    }
    // A kernel for a composite operator would hide its decomposition from autograd: eager code reaches its parts.
    auto composite = [](const c10::OperatorHandle& op) {
      return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    };
    if (composite(*functional)) continue;
    std::vector<std::string> names = {base, base + "_"};
    if (auto other = renamed.find(base); other != renamed.end()) names.push_back(other->second);
    for (const std::string& name : names) {
      auto found = overloads.find(name);
      if (found == overloads.end()) continue;
      for (const c10::OperatorName& candidate : found->second) {
        auto handle = dispatcher.findSchema(candidate);
        if (!handle || composite(*handle)) continue;
        bool self = candidate == functional->operator_name();
        bool writes = handle->schema().is_mutable();
        if (!self && !writes) continue;
        std::string key = candidate.name + "." + candidate.overload_name;
        if (done.contains(key)) continue;
        if (add(entry, *handle, functional->schema())) done.insert(key);
      }
    }
  }
}

std::vector<OperatorUse> operator_uses() {
  std::vector<OperatorUse> uses;
  for (const OperatorState* state : states()) {
    if (int64_t calls = state->calls.load(std::memory_order_relaxed))
      uses.push_back({state->op.name, calls, static_cast<int64_t>(state->table.size())});
  }
  return uses;
}

void clear_operator_uses() {
  for (OperatorState* state : states()) state->calls.store(0, std::memory_order_relaxed);
}

std::vector<std::string> registered_operators() {
  std::vector<std::string> names;
  for (const OperatorState* state : states()) names.push_back(state->op.name);
  return names;
}

std::vector<std::string> registration_problems() { return problems(); }

void clear_prepared() {
  for (OperatorState* state : states()) state->table.clear();
  clear_prepared_copies();
}

}  // namespace opentrn::bridge
