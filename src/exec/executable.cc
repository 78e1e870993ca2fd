#include "exec/executable.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace opentrn::exec {
namespace {

using isa::Instruction;
using isa::Opcode;

Maker maker_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::nc_matmul: return make_matmul;
    case Opcode::nc_transpose:
    case Opcode::dma_transpose: return make_transpose;
    case Opcode::activation:
    case Opcode::tensor_tensor:
    case Opcode::tensor_scalar:
    case Opcode::scalar_tensor_tensor:
    case Opcode::reciprocal: return make_elementwise;
    case Opcode::tensor_copy:
    case Opcode::dma_copy: return make_copy;
    case Opcode::tensor_copy_predicated:
    case Opcode::select: return make_select;
    case Opcode::tensor_reduce: return make_reduce;
    case Opcode::tensor_tensor_scan: return make_scan;
    case Opcode::bn_stats: return make_bn_stats;
    case Opcode::bn_aggr: return make_bn_aggr;
    case Opcode::max8: return make_max8;
    case Opcode::nc_find_index8: return make_find_index8;
    case Opcode::nc_match_replace8: return make_match_replace8;
    case Opcode::memset: return make_memset;
    case Opcode::iota: return make_iota;
    case Opcode::affine_select: return make_affine_select;
    case Opcode::tensor_partition_reduce: return make_partition_reduce;
    case Opcode::gpsimd_kernel: return make_register_program;
    case Opcode::dma_gather: return make_gather;
    case Opcode::dma_scatter: return make_scatter;
    default: return nullptr;  // the sequencer's
  }
}

}  // namespace

void decode(const isa::Program& program, const isa::CoreProgram& core, const Context& context, Executable::Code& code) {
  code.pools = static_cast<int>(core.pools.size());
  code.loop_registers = core.loop_registers;
  code.slot_registers = core.slot_registers;
  std::vector<std::pair<int32_t, const Instruction*>> open;  // first step of each open loop's body
  for (size_t index = 0; index < core.code.size(); ++index) {
    const Instruction& i = core.code[index];
    Step step;
    step.instruction = static_cast<int32_t>(index);
    switch (i.opcode) {
      case Opcode::event_semaphore: continue;  // executing in program order satisfies every wait
      case Opcode::rotate:
        step.kind = Step::Kind::rotate;
        step.reg = i.reg;
        step.pool = i.pool;
        step.depth = core.pools.at(static_cast<size_t>(i.pool)).depth;
        code.slot_registers = std::max(code.slot_registers, i.reg + 1);
        break;
      case Opcode::loop_begin:
        step.kind = Step::Kind::loop_begin;
        step.reg = i.reg;
        code.loop_registers = std::max(code.loop_registers, i.reg + 1);
        open.emplace_back(static_cast<int32_t>(code.steps.size()) + 1, &i);
        break;
      case Opcode::loop_end:
        if (open.empty()) throw UserError("program '" + program.name + "': loop_end without loop_begin, instruction " + std::to_string(index));
        step.kind = Step::Kind::loop_end;
        step.reg = open.back().second->reg;
        step.count = open.back().second->count;
        step.target = open.back().first;
        open.pop_back();
        break;
      case Opcode::barrier:
        step.kind = Step::Kind::barrier;
        ++code.barriers;
        break;
      default: {
        const Maker make = maker_of(i.opcode);
        code.operations.push_back(make(i, context));
        step.operation = code.operations.back().get();
      }
    }
    code.steps.push_back(step);
  }
  if (!open.empty()) throw UserError("program '" + program.name + "': loop_begin without loop_end");
}

Executable::Executable(std::shared_ptr<const isa::Program> program, const spec::Chip& chip) : program_(std::move(program)) {
  code_ = std::make_unique<Code[]>(program_->cores.size());
  for (size_t c = 0; c < program_->cores.size(); ++c) {
    const isa::CoreProgram& core = program_->cores[c];
    const Context context{*program_, core, padded_pitch(chip.sbuf_bytes_per_partition),
                          padded_pitch(chip.psum_bytes_per_partition)};
    decode(*program_, core, context, code_[c]);
  }
}

Executable::~Executable() = default;

int Executable::cores() const { return static_cast<int>(program_->cores.size()); }

bool Executable::cores_communicate() const {
  if (cores() < 2) return false;
  for (int c = 0; c < cores(); ++c)
    if (code_[c].barriers > 0) return true;
  return false;
}

const Executable::Code& Executable::code(int core) const { return code_[core]; }

}  // namespace opentrn::exec
