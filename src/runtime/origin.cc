#include "runtime/origin.h"

#include <atomic>

namespace opentrn::runtime {
namespace {

std::atomic<std::string (*)(int32_t)> describer{nullptr};

}  // namespace

void set_origin_describer(std::string (*describe_origin)(int32_t)) { describer.store(describe_origin); }

std::string describe_origin(int32_t origin) {
  auto* describe = describer.load();
  return describe && origin >= 0 ? describe(origin) : std::string();
}

}  // namespace opentrn::runtime
