#include "runtime/kernel.h"

#include "runtime/settings.h"
#include "spec/chip.h"

namespace opentrn::runtime {

std::shared_ptr<Kernel> make_kernel(std::shared_ptr<const isa::Program> program, const cost::ProgramTime* time) {
  const Settings& s = settings();
  const spec::Chip& chip = spec::chip(s.chip);
  auto kernel = std::make_shared<Kernel>();
  Kernel& k = *kernel;
  k.name = program->name;
  k.time = time ? *time : cost::time_program(*program, chip);
  if (s.mode == Mode::simulate) k.executable = std::make_shared<const exec::Executable>(program, chip);

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

}  // namespace opentrn::runtime
