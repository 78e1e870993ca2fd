#include "exec/simd.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "exec/simd_targets.h"
// Highway after the choice of targets.
#include "base/error.h"
#include "exec/interpreter.h"
#include "hwy/highway.h"

namespace opentrn::exec {
namespace {

struct NamedTarget {
  const char* name;
  int64_t bit;
};

// Better targets have lower bits within an architecture.
constexpr NamedTarget kTargets[] = {
    {"AVX3", HWY_AVX3}, {"AVX2", HWY_AVX2}, {"NEON", HWY_NEON}, {"SSE2", HWY_STATIC_TARGET},
    {"SCALAR", HWY_STATIC_TARGET}, {"EMU128", HWY_STATIC_TARGET}, {"baseline", HWY_STATIC_TARGET},
};

Simd make_table(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);  // 0: those of the host
  Simd table;
  fill_elementwise(table);
  fill_activation(table);
  fill_reduce(table);
  fill_transpose(table);
  fill_registers(table);
  fill_stream(table);
  fill_matmul(table);
  fill_matmul_bf16(table);
  hwy::SetSupportedTargetsForTest(0);
  return table;
}

const Simd* table_for(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Simd>> tables;
  const std::lock_guard lock(mutex);
  auto& table = tables[name];
  if (table) return table.get();
  int64_t targets = 0;
  if (!name.empty()) {
    const int64_t supported = hwy::SupportedTargets() & (HWY_TARGETS);
    bool known = false;
    for (const NamedTarget& target : kTargets) {
      if (name != target.name) continue;
      known = true;
      targets = supported & ~(target.bit - 1);  // the target and everything below it
      if (targets == 0 || target.bit == HWY_STATIC_TARGET) targets = HWY_STATIC_TARGET;
    }
    if (!known) throw UserError("OPENTRN_SIMD=" + name + ": unknown target; use AVX3, AVX2, NEON or baseline");
  }
  table = std::make_unique<Simd>(make_table(targets));
  return table.get();
}

std::atomic<const Simd*>& active() {
  static std::atomic<const Simd*> table = [] {
    const char* limit = std::getenv("OPENTRN_SIMD");
    return table_for(limit ? limit : "");
  }();
  return table;
}

}  // namespace

const Simd& simd() { return *active().load(std::memory_order_acquire); }

void use_simd_target(std::string_view name) { active().store(table_for(std::string(name)), std::memory_order_release); }

bool exact_numerics() {
  static const bool exact = [] {
    const char* value = std::getenv("OPENTRN_NUMERICS");
    const std::string_view name = value ? value : "";
    if (!name.empty() && name != "exact" && name != "fast")
      throw UserError("OPENTRN_NUMERICS=" + std::string(name) + ": use exact or fast");
    return name == "exact";
  }();
  return exact;
}

std::string simd_target() { return simd().target; }

}  // namespace opentrn::exec
