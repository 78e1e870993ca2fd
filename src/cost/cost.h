// What one instruction costs on a chip, in isolation and back to back.
//
// Compute instructions follow laws of the chip file, `completion = startup + slope * N / clock` with N the elements per
// partition (of the larger side of a reduction) and `issue = max(min_issue_cycles, slope * N) / clock`. The keys are
// `<engine>.<opcode>[.<variant>]`; the variant says where the operands are and how wide:
//
//   .32, .16         SBUF operands; .16 when every operand is bf16 or fp16 (fp8 too where fp8_perf_modes is set), else .32
//   .16_strided      16-bit SBUF operands, one of them with an innermost stride other than 1
//   .16_to_32, .32_to_16   conversions between SBUF operands
//   .psum, .psum_16  an operand in PSUM (tensor_copy, tensor_scalar: .psum_16 when all are 16 bits wide and contiguous)
//   .split, .sbuf    tensor_copy_predicated with source and predicate in different memories, or both in SBUF
//   scalar.activation.{function,function_16,function_32_to_16,function_psum,silu_psum,copy,copy_psum}
//   scalar.activation.tile_operand      added per scale or bias tile (beyond the first for functions, whose probes had one)
//   scalar.activation.accumulator_read  added when the row result is kept
//   gpsimd.kernel.*  cycles of a register operation on the lanes of one core, by class of operation and type
//   tensor.nc_matmul.f32, tensor.nc_transpose[.f32]  startup after the last column (bf16: tensor.matmul_latency_ns)
//
// GpSimd overlaps nothing: its instructions occupy the engine to their completion.
#pragma once

#include <cstdint>

#include "isa/program.h"
#include "spec/chip.h"

namespace opentrn::cost {

// Times in integer picoseconds, so that modelled time is the same on every host.
struct Cost {
  int64_t issue_ps = 0;       // the engine is occupied; the next instruction may start after it
  int64_t completion_ps = 0;  // from start to the result being visible (posts, dependent instructions); for
                              // nc_matmul from the first moving column, at the full rate
  int64_t columns_ps = 0;     // nc_matmul: the moving columns at full rate (the part the power ramp slows)
  int64_t load_ps = 0;        // nc_matmul: loading the stationary operand, hidden behind the previous matmul
};

// Compute and sequencer instructions. For a DMA instruction: issue of its trigger, completion when nothing else runs.
// An activation's table load is not included. Throws UserError naming the law when the chip file lacks one.
Cost cost(const isa::Instruction& instruction, const isa::Program& program, const spec::Chip& chip);

// DMA: how the transfer spreads over the DMA engines.
struct Transfer {
  int engines = 0;             // DMA engines used
  int64_t engine_ps = 0;       // each one's occupancy
  int64_t start_ps = 0;        // trigger to first byte
  int64_t issue_ps = 0;        // the triggering engine's occupancy
  int64_t complete_ps = 0;     // last byte to the waiting engine
  int64_t bytes = 0;           // payload (the larger side)
  int64_t descriptors = 0;
  int64_t hbm_read_bytes = 0, hbm_write_bytes = 0;
  int64_t hbm_ps = 0;          // the core's HBM bandwidth is taken
};
Transfer transfer(const isa::Instruction& instruction, const isa::Program& program, const spec::Chip& chip);

// Completion of an instruction run alone on an idle core, in ns, as probes of single instructions report it:
// tensor engine cold and stationary operand loaded, table loaded; for DMA the occupancy of the queue (the documented
// bandwidth curve).
double isolated_ns(const isa::Instruction& instruction, const isa::Program& program, const spec::Chip& chip);

// True when the vector engine runs this instruction in a performance mode (and then owns the port it shares with GpSimd).
bool in_perf_mode(const isa::Instruction& instruction, const spec::Chip& chip);

}  // namespace opentrn::cost
