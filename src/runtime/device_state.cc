#include "runtime/device_state.h"

#include <fmt/format.h>

#include "base/error.h"
#include "runtime/origin.h"

namespace opentrn::runtime {

Device::State::State(int index, const Settings& settings, int threads)
    : index(index),
      chip(spec::chip(settings.chip)),
      lnc(settings.lnc),
      blocking(settings.launch_blocking),
      memory(index, chip.hbm_bytes_per_core * lnc, settings.mode == Mode::simulate),
      clock(chip, lnc),
      events(index) {
  if (settings.mode == Mode::simulate)
    engine = std::make_unique<Engine>(index, chip, threads, settings.host_plan, memory);
  memory.set_drain([this] { wait_for(submitted()); });
}

void Device::State::raise_failure(uint64_t ticket) {
  if (!engine) return;
  std::optional<Failure> failure = engine->take_failure(ticket);
  if (!failure) return;
  std::string text = fmt::format("{} in {} on neuron:{}", failure->message, failure->kernel, index);
  if (std::string where = describe_origin(failure->origin); !where.empty()) text += ", " + where;
  if (failure->further > 0) text += fmt::format(" ({} more launches failed after it)", failure->further);
  throw AsyncError(text);
}

std::byte* Device::State::view(const void* address, int64_t bytes, const char* what) const {
  const auto offset = static_cast<const std::byte*>(address) - memory.base();
  if (offset < 0 || bytes < 0 || offset > memory.capacity() - bytes)
    throw UserError(fmt::format("{}: {} bytes at {} are not in the memory of neuron:{}{}", what, bytes, address, index,
                                elsewhere(address)));
  return memory.host(address);
}

std::string Device::State::elsewhere(const void* address) const {
  const int other = device_of(address);
  if (other < 0) return "; it is host memory: move the tensor to the device first";
  return other == index ? "; it reaches beyond the end" : fmt::format("; it belongs to neuron:{}", other);
}

void Device::State::check(const Kernel& kernel, const LaunchArguments& a) const {
  if (a.buffers.size() != kernel.arguments.size() || a.scalars.size() != static_cast<size_t>(kernel.scalars))
    throw UserError(fmt::format("{}: {} buffers and {} scalars given, the program takes {} and {}", kernel.name,
                                a.buffers.size(), a.scalars.size(), kernel.arguments.size(), kernel.scalars));
  const std::byte* const base = memory.base();
  const int64_t capacity = memory.capacity();
  for (size_t i = 0; i < a.buffers.size(); ++i) {
    const Kernel::ArgumentBuffer& argument = kernel.arguments[i];
    const auto offset = static_cast<const std::byte*>(a.buffers[i]) - base;
    if (argument.bytes > 0 && (offset < 0 || offset > capacity - argument.bytes))
      throw UserError(fmt::format("{}: argument {} ({} bytes at {}) is not in the memory of neuron:{}{}", kernel.name,
                                  i, argument.bytes, a.buffers[i], index, elsewhere(a.buffers[i])));
    if (argument.alias >= 0 && a.buffers[i] != a.buffers[static_cast<size_t>(argument.alias)])
      throw UserError(fmt::format("{}: argument {} is written in place of argument {} and must have its address",
                                  kernel.name, i, argument.alias));
  }
  if (kernel.program->cores.size() > static_cast<size_t>(lnc))
    throw UserError(fmt::format("{}: the program uses {} cores, neuron:{} has {}", kernel.name,
                                kernel.program->cores.size(), index, lnc));
}

}  // namespace opentrn::runtime
