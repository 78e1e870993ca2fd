#include "torch/fallback.h"

#include <ATen/Context.h>
#include <ATen/core/enum_tag.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/native/CPUFallback.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "torch/device.h"
#include "torch/generator.h"
#include "torch/origin.h"

namespace opentrn::bridge {
namespace {

FallbackPolicy policy_from_environment() {
  auto is = [](const char* name, std::string_view value) {
    const char* set = std::getenv(name);
    return set && set == value;
  };
  if (const char* set = std::getenv("OPENTRN_FALLBACK"); set && *set) {
    std::string_view value(set);
    if (value == "error") return FallbackPolicy::error;
    if (value == "quiet") return FallbackPolicy::quiet;
    TORCH_CHECK(value == "warn", "OPENTRN_FALLBACK=", set, ": allowed are warn, quiet and error");
    return FallbackPolicy::warn;
  }
  if (is("NEURON_FALLBACK_ENABLED", "0")) return FallbackPolicy::error;
  return FallbackPolicy::warn;
}

std::atomic<FallbackPolicy>& policy() {
  static std::atomic<FallbackPolicy> value{policy_from_environment()};
  return value;
}

struct Record {
  std::string reason;
  int64_t count = 0;
  std::map<int32_t, int64_t> origins;
};
std::mutex g_mutex;
std::map<std::string, Record>& records() {
  static auto* all = new std::map<std::string, Record>;
  return *all;
}

// Operators whose CPU arguments belong on the CPU, as on CUDA.
bool mixes_devices(const std::string& name) {
  static const std::set<std::string> names = {
      "aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_pack_padded_sequence",
      "aten::_ctc_loss", "aten::copy_", "aten::tensor_split", "aten::_unsafe_index", "aten::_unsafe_index_put",
      "aten::_embedding_bag", "aten::segment_reduce", "aten::_fused_adam_", "aten::_fused_adamw_",
      "aten::_fused_sgd_", "aten::_fused_adagrad_"};
  return names.contains(name);
}

void check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (mixes_devices(schema.name())) return;
  std::optional<c10::Device> neuron, other;
  auto look = [&](const at::Tensor& t) {
    if (!t.defined()) return;
    if (t.device().type() == kNeuron) {
      if (neuron && *neuron != t.device()) other = t.device();
      if (!neuron) neuron = t.device();
    } else if (t.dim() != 0) {
      other = t.device();
    }
  };
  size_t count = schema.arguments().size();
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    const c10::IValue& v = stack[i];
    if (v.isTensor()) look(v.toTensor());
    if (v.isTensorList()) {
      for (const at::Tensor& t : v.toTensorVector()) look(t);
    }
  }
  TORCH_CHECK(!neuron || !other, "Expected all tensors to be on the same device, but found at least two devices, ",
              *neuron, " and ", *other, "! (in ", schema.name(), ")");
}

// Random operators draw from the device's generator also when they run on the CPU.
class CpuRandomness {
 public:
  CpuRandomness(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    bool random = op.hasTag(at::Tag::nondeterministic_seeded);
    size_t count = op.schema().arguments().size(), base = stack->size() - count;
    int generator_at = -1, device = -1;
    for (size_t i = 0; i < count; ++i) {
      if (op.schema().arguments()[i].name() == "generator") generator_at = static_cast<int>(i);
      const c10::IValue& v = (*stack)[base + i];
      if (v.isTensor() && v.toTensor().defined() && v.toTensor().device().type() == kNeuron && device < 0)
        device = v.toTensor().device().index();
    }
    if (!random && generator_at < 0) return;
    std::optional<at::Generator> given;
    if (generator_at >= 0 && (*stack)[base + generator_at].isGenerator())
      given = (*stack)[base + generator_at].toGenerator();
    if (device < 0) device = current_device();
    PhiloxGenerator::Draw draw = generator_of(given, static_cast<c10::DeviceIndex>(device)).draw(4);
    uint64_t seed = (draw.seed ^ (draw.offset + 0x9E3779B97F4A7C15ull)) * 0xBF58476D1CE4E5B9ull;
    if (generator_at >= 0) {
      (*stack)[base + generator_at] = at::detail::createCPUGenerator(seed);
      return;
    }
    cpu_ = at::detail::getDefaultCPUGenerator();
    saved_ = cpu_.get_state();
    cpu_.set_current_seed(seed);
  }
  ~CpuRandomness() {
    if (saved_.defined()) cpu_.set_state(saved_);
  }

 private:
  at::Generator cpu_;
  at::Tensor saved_;
};

std::string label(const c10::OperatorHandle& op) { return op.schema().name(); }

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) { run_on_cpu(op, stack, ""); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>()); }

}  // namespace

FallbackPolicy fallback_policy() { return policy().load(); }
void set_fallback_policy(FallbackPolicy value) { policy().store(value); }

void report_fallback(const std::string& op, const std::string& reason) {
  int32_t place = capture_origin();
  bool first;
  {
    std::lock_guard lock(g_mutex);
    Record& record = records()[op];
    first = record.count++ == 0;
    record.reason = reason;
    ++record.origins[place];
  }
  std::string why = reason.empty() ? "it has no lowering" : reason;
  static const bool only_unimplemented = [] {
    const char* set = std::getenv("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS");
    return set && std::string_view(set) == "1";
  }();
  TORCH_CHECK(reason.empty() || !only_unimplemented,
              "CPU fallback disabled because TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS=1. Operation ", op,
              " failed to execute on Neuron. Details: ", reason, " (at ", describe_origin(place), ")");
  switch (fallback_policy()) {
    case FallbackPolicy::error:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "Operation ", op, " is not implemented for Neuron: ", why, " (at ",
                                  describe_origin(place), "). OPENTRN_FALLBACK=error forbids running it on the CPU.");
      break;
    case FallbackPolicy::warn:
      if (first) {
        TORCH_WARN("Operator '", op, "' fell back to CPU: ", why, " (at ", describe_origin(place),
                   "). Reported once; torch_neuronx.get_fallback_ops() lists all, OPENTRN_FALLBACK=error forbids it.");
      }
      break;
    case FallbackPolicy::quiet: break;
  }
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason) {
  check_devices(op, *stack);
  report_fallback(label(op), reason);
  CpuRandomness randomness(op, stack);
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

std::vector<Fallback> fallbacks() {
  std::lock_guard lock(g_mutex);
  std::vector<Fallback> all;
  for (const auto& [op, record] : records())
    all.push_back({op, record.reason, record.count, {record.origins.begin(), record.origins.end()}});
  return all;
}

void clear_fallbacks() {
  std::lock_guard lock(g_mutex);
  records().clear();
}

}  // namespace opentrn::bridge
