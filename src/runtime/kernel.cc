#include "runtime/kernel.h"

#include <algorithm>
#include <chrono>

#include "runtime/settings.h"
#include "spec/chip.h"

#include "isa/access.h"

namespace opentrn::runtime {
namespace {

// Whether an instruction names the buffer: a parameter of the graph may be there for its address only (`out=`).
std::vector<bool> buffers_touched(const isa::Program& program) {
  std::vector<bool> touched(program.buffers.size(), false);
  for (const isa::CoreProgram& core : program.cores)
    for (const isa::Instruction& instruction : core.code)
      for (const isa::OperandUse& use : isa::operand_uses(instruction, program))
        if (use.pattern->memory == isa::Memory::hbm) touched[static_cast<size_t>(use.pattern->buffer)] = true;
  return touched;
}

void add_regions(Kernel& kernel, const isa::Program& program) {
  const std::vector<bool> touched = buffers_touched(program);
  std::vector<int32_t> region_of;  // by argument
  size_t argument = 0;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const isa::Buffer& buffer = program.buffers[b];
    if (buffer.kind != isa::Buffer::Kind::input && buffer.kind != isa::Buffer::Kind::output) continue;
    const Kernel::ArgumentBuffer& a = kernel.arguments[argument];
    if (a.alias >= 0) {
      region_of.push_back(region_of[static_cast<size_t>(a.alias)]);
    } else {
      region_of.push_back(static_cast<int32_t>(kernel.regions.size()));
      kernel.regions.push_back({static_cast<int32_t>(argument), 0, false});
    }
    Kernel::Region& region = kernel.regions[static_cast<size_t>(region_of.back())];
    if (touched[b]) region.bytes = std::max(region.bytes, a.bytes);
    region.written |= buffer.kind == isa::Buffer::Kind::output;
    ++argument;
  }
  std::erase_if(kernel.regions, [](const Kernel::Region& region) { return region.bytes == 0; });
}

}  // namespace

std::shared_ptr<Kernel> make_kernel(std::shared_ptr<const isa::Program> program, const cost::ProgramTime* time) {
  const Settings& s = settings();
  const spec::Chip& chip = spec::chip(s.chip);
  auto kernel = std::make_shared<Kernel>();
  Kernel& k = *kernel;
  k.name = program->name;
  k.time = time ? *time : cost::time_program(*program, chip);
  if (s.mode == Mode::simulate && s.host_plan != HostPlan::off) {
    const auto start = std::chrono::steady_clock::now();
    k.plan = std::make_shared<const exec::Plan>(program, chip);
    k.plan_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

  k.scalars = static_cast<int32_t>(program->scalars.size());
  std::vector<int32_t> argument_of(program->buffers.size(), -1);  // position among the arguments
  for (size_t i = 0; i < program->buffers.size(); ++i) {
    const isa::Buffer& buffer = program->buffers[i];
    k.scratch_offsets.push_back(k.scratch_bytes);
    if (buffer.kind == isa::Buffer::Kind::scratch) k.scratch_bytes += (buffer.bytes + 511) / 512 * 512;
    if (buffer.kind != isa::Buffer::Kind::input && buffer.kind != isa::Buffer::Kind::output) continue;
    argument_of[i] = static_cast<int32_t>(k.arguments.size());
    const bool aliased = buffer.alias >= 0 && buffer.alias < static_cast<int32_t>(i);
    k.arguments.push_back({buffer.bytes, aliased ? argument_of[static_cast<size_t>(buffer.alias)] : -1});
  }

  add_regions(k, *program);
  for (const cost::CoreTime& core : k.time.cores) {
    for (size_t engine = 0; engine < core.engines.size(); ++engine) k.busy_ps[engine] += core.engines[engine].busy_ps;
    k.dma_busy_ps += core.dma_active_ps;
    k.hbm_bytes += core.hbm_read_bytes + core.hbm_write_bytes;
    k.hardware_flops += core.matmul_flops;
  }
  k.model_flops = program->model_flops;
  k.program = std::move(program);
  return kernel;
}

const exec::Executable& Kernel::executable() const {
  std::call_once(executable_made, [this] {
    interpreted = std::make_unique<const exec::Executable>(program, spec::chip(program->chip));
  });
  return *interpreted;
}

}  // namespace opentrn::runtime
