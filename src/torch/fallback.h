// The CPU fallback: operators without a program run on the CPU, counted, named and reported.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

namespace opentrn::bridge {

// warn: once per operator and line. quiet: count only. error: raise.
enum class FallbackPolicy : uint8_t { warn, quiet, error };
// OPENTRN_FALLBACK=warn|quiet|error; NEURON_FALLBACK_ENABLED=0 means error.
FallbackPolicy fallback_policy();
void set_fallback_policy(FallbackPolicy policy);

// Runs the operator on the CPU. `reason` is empty for an operator that the lowering table does not have, else it says
// why this call of a known operator has no program.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason);
// Records a fallback done by other means (a copy through the host, say) under the same policy.
void report_fallback(const std::string& op, const std::string& reason);

struct Fallback {
  std::string op, reason;
  int64_t count = 0;
  std::vector<std::pair<int32_t, int64_t>> origins;  // calling lines and their counts
};
std::vector<Fallback> fallbacks();
void clear_fallbacks();

}  // namespace opentrn::bridge
