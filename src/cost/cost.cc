#include "cost/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cost/kernel_cost.h"
#include "cost/laws.h"

namespace opentrn::cost {

using isa::AccessPattern;
using isa::Engine;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;

namespace {

int64_t ps(double ns) { return std::llround(ns * 1000.0); }

bool is_narrow(DType dtype, const spec::Chip& chip) {
  if (dtype == DType::bf16 || dtype == DType::f16) return true;
  return chip.fp8_perf_modes && is_float(dtype) && size_of(dtype) == 1;
}

// Stride of the innermost dimension that has more than one element; 1 when there is none.
int64_t inner_stride(const AccessPattern& ap) {
  for (size_t i = ap.dims.size(); i-- > 0;)
    if (ap.dims[i].count > 1) return ap.dims[i].stride;
  return 1;
}

// What the operands of an instruction have in common, as far as its rate depends on it.
struct Operands {
  bool any_psum = false, all_narrow = true, sources_narrow = true, contiguous = true, slow_stride = false;
  int psum_sources = 0;
};

Operands look_at(const Instruction& instruction, const spec::Chip& chip) {
  Operands o;
  auto see = [&](const AccessPattern& ap) {
    if (ap.memory == Memory::psum) o.any_psum = true;
    if (!is_narrow(ap.dtype, chip)) o.all_narrow = false;
    int64_t stride = inner_stride(ap);
    if (stride != 1) o.contiguous = false;
    if (chip.strided_access_bytes > 0 && ap.memory == Memory::sbuf &&
        static_cast<double>(std::abs(stride) * size_of(ap.dtype)) > chip.strided_access_bytes)
      o.slow_stride = true;
  };
  for (const AccessPattern& ap : instruction.src) {
    see(ap);
    if (!is_narrow(ap.dtype, chip)) o.sources_narrow = false;
    if (ap.memory == Memory::psum) ++o.psum_sources;
  }
  see(instruction.dst);
  if (instruction.src.empty()) o.sources_narrow = o.all_narrow;
  return o;
}

// tensor_copy and tensor_scalar have the same seven variants, in the order of LawKey.
LawKey copy_variant(LawKey first, const Operands& o, bool dst_narrow) {
  auto at = [first](int i) { return static_cast<LawKey>(static_cast<int>(first) + i); };
  if (o.any_psum) return at(o.all_narrow && o.contiguous ? 6 : 5);
  if (o.all_narrow) return at(o.contiguous ? 1 : 2);
  if (o.sources_narrow && !dst_narrow) return at(3);
  if (!o.sources_narrow && dst_narrow) return at(4);
  return at(0);
}

LawKey vector_law(const Instruction& in, const Operands& o, const spec::Chip& chip) {
  bool dst_narrow = is_narrow(in.dst.dtype, chip);
  switch (in.opcode) {
    case Opcode::tensor_copy: return copy_variant(LawKey::copy_32, o, dst_narrow);
    case Opcode::tensor_scalar: return copy_variant(LawKey::scalar_32, o, dst_narrow);
    case Opcode::tensor_tensor:
      return o.any_psum ? LawKey::tensor_psum : o.all_narrow ? LawKey::tensor_16 : LawKey::tensor_32;
    case Opcode::scalar_tensor_tensor:
      return o.any_psum ? LawKey::scalar_tensor_psum : o.all_narrow ? LawKey::scalar_tensor_16 : LawKey::scalar_tensor_32;
    case Opcode::tensor_copy_predicated:
      return o.psum_sources == 1 ? LawKey::predicated_split : LawKey::predicated_sbuf;
    case Opcode::select: return LawKey::select;
    case Opcode::tensor_reduce:
      if (o.any_psum) return LawKey::reduce_psum;
      if (o.all_narrow && (in.op0 == isa::AluOp::add || in.op0 == isa::AluOp::max)) return LawKey::reduce_16;
      return o.sources_narrow && !dst_narrow ? LawKey::reduce_16_to_32 : LawKey::reduce_32;
    case Opcode::tensor_tensor_scan: return LawKey::scan;
    case Opcode::reciprocal: return LawKey::reciprocal;
    case Opcode::bn_stats: return LawKey::bn_stats;
    case Opcode::bn_aggr: return LawKey::bn_aggr;
    case Opcode::max8: return LawKey::max8;
    case Opcode::nc_find_index8: return LawKey::find_index8;
    case Opcode::nc_match_replace8: return LawKey::match_replace8;
    case Opcode::memset: return LawKey::memset;
    case Opcode::nc_transpose: return LawKey::vector_transpose;
    default:
      throw InternalError(fmt::format("cost: {} has no law on the vector engine", isa::name_of(in.opcode)));
  }
}

LawKey scalar_law(const Instruction& in, const Operands& o, const spec::Chip& chip) {
  bool dst_narrow = is_narrow(in.dst.dtype, chip);
  bool from_psum = o.psum_sources > 0;
  switch (in.opcode) {
    case Opcode::activation:
      if (in.act == isa::ActFn::copy) return from_psum ? LawKey::act_copy_psum : LawKey::act_copy;
      if (from_psum) return in.act == isa::ActFn::silu ? LawKey::act_silu_psum : LawKey::act_function_psum;
      if (o.all_narrow) return LawKey::act_function_16;
      return dst_narrow && !o.sources_narrow ? LawKey::act_function_32_to_16 : LawKey::act_function;
    case Opcode::tensor_copy:
    case Opcode::tensor_scalar:
    case Opcode::memset:
      return o.any_psum ? LawKey::act_tensor_copy_psum : o.all_narrow ? LawKey::act_tensor_copy_16 : LawKey::act_tensor_copy_32;
    default: return LawKey::act_function;
  }
}

LawKey gpsimd_law(const Instruction& in) {
  switch (in.opcode) {
    case Opcode::iota: return LawKey::gpsimd_iota;
    case Opcode::affine_select: return LawKey::gpsimd_affine_select;
    case Opcode::tensor_copy: return LawKey::gpsimd_copy;
    case Opcode::tensor_scalar: return LawKey::gpsimd_scalar;
    case Opcode::tensor_tensor: return LawKey::gpsimd_tensor;
    case Opcode::memset: return LawKey::gpsimd_memset;
    case Opcode::tensor_partition_reduce: return LawKey::gpsimd_partition_reduce;
    default: return LawKey::gpsimd_other;
  }
}

// Elements per partition that an instruction streams.
int64_t streamed_elements(const Instruction& in) {
  int64_t n = in.dst.free_elements();
  for (const AccessPattern& ap : in.src) n = std::max(n, ap.free_elements());
  return n;
}

Cost from_law(const spec::Law& law, int64_t n, double factor, const spec::EngineSpec& engine) {
  double busy_ns = law.cycles_per_element * factor * static_cast<double>(n) / engine.ghz;
  Cost c;
  c.issue_ps = ps(std::max(engine.min_issue_cycles / engine.ghz, busy_ns));
  c.completion_ps = ps(law.startup_ns + busy_ns);
  return c;
}

struct MatmulShape {
  int64_t moving = 0, stationary = 0;  // columns
  double passes = 1, startup_ns = 0;
};

MatmulShape matmul_shape(const Instruction& in, const spec::Chip& chip) {
  const LawTable& laws = laws_of(chip);
  MatmulShape m;
  bool f32 = !in.src.empty() && size_of(in.src[0].dtype) >= 4;
  if (in.opcode == Opcode::nc_matmul) {
    m.moving = in.src[1].free_elements();
    m.stationary = in.src[0].free_elements();
    m.passes = f32 ? chip.fp32_passes : 1;
    m.startup_ns = f32 ? laws[static_cast<size_t>(LawKey::matmul_f32)].startup_ns : chip.matmul_latency_ns;
  } else {  // a transpose: the data is the stationary operand, the moving one an identity of its partitions
    const spec::Law& law = laws[static_cast<size_t>(f32 ? LawKey::transpose_f32 : LawKey::transpose)];
    m.moving = in.src[0].partitions;
    m.stationary = in.src[0].free_elements();
    m.passes = law.cycles_per_element;
    m.startup_ns = law.startup_ns;
  }
  return m;
}

Cost tensor_cost(const Instruction& in, const spec::Chip& chip) {
  MatmulShape m = matmul_shape(in, chip);
  const spec::EngineSpec& engine = chip.engines[static_cast<size_t>(Engine::tensor)];
  Cost c;
  if (m.moving == 0) return c;
  double least = std::min(engine.min_issue_cycles, static_cast<double>(m.stationary));
  c.columns_ps = ps(m.passes * std::max(least, static_cast<double>(m.moving)) / engine.ghz);
  c.load_ps = ps(chip.load_stationary_startup_ns +
                 static_cast<double>(m.stationary) / chip.load_stationary_columns_per_cycle / engine.ghz);
  c.issue_ps = std::max(c.columns_ps, c.load_ps);
  c.completion_ps = ps(m.startup_ns + m.passes * static_cast<double>(m.moving) / engine.ghz);
  return c;
}

bool is_sequencer(Opcode opcode) {
  return opcode == Opcode::rotate || opcode == Opcode::loop_begin || opcode == Opcode::loop_end;
}

}  // namespace

Cost cost(const Instruction& in, const isa::Program& program, const spec::Chip& chip) {
  if (is_sequencer(in.opcode)) return {};
  if (in.opcode == Opcode::event_semaphore) return {ps(chip.event_semaphore_ns), ps(chip.event_semaphore_ns)};
  if (in.opcode == Opcode::barrier) {
    int64_t t = ps(program.cores.size() > 1 ? chip.core_barrier_ns : chip.barrier_ns);
    return {t, t};
  }
  if (isa::is_dma(in.opcode)) {
    Transfer t = transfer(in, program, chip);
    return {t.issue_ps, t.issue_ps + t.start_ps + std::max(t.engine_ps, t.hbm_ps) + t.complete_ps};
  }
  if (in.engine == Engine::tensor) {
    if (in.opcode != Opcode::nc_matmul && in.opcode != Opcode::nc_transpose)
      throw InternalError(fmt::format("cost: {} on the tensor engine", isa::name_of(in.opcode)));
    return tensor_cost(in, chip);
  }

  const LawTable& laws = laws_of(chip);
  const spec::EngineSpec& engine = chip.engines[static_cast<size_t>(in.engine)];
  if (in.opcode == Opcode::gpsimd_kernel) {
    double ns = laws[static_cast<size_t>(LawKey::kernel_start)].startup_ns + kernel_cycles(in, program, chip) / engine.ghz;
    return {ps(ns), ps(ns)};
  }
  Operands o = look_at(in, chip);
  double factor = o.slow_stride ? chip.strided_access_factor : 1;
  int64_t n = streamed_elements(in);
  if (in.engine == Engine::gpsimd) {
    Cost c = from_law(laws[static_cast<size_t>(gpsimd_law(in))], n, factor, engine);
    c.issue_ps = c.completion_ps = std::max(c.issue_ps, c.completion_ps);
    return c;
  }
  if (in.engine == Engine::scalar) {
    Cost c = from_law(laws[static_cast<size_t>(scalar_law(in, o, chip))], n, factor, engine);
    if (in.opcode == Opcode::activation) {
      int tiles = (in.s0.kind == isa::Scalar::Kind::tile) + (in.s1.kind == isa::Scalar::Kind::tile);
      if (in.act != isa::ActFn::copy) tiles = std::max(0, tiles - 1);
      c.completion_ps += tiles * ps(laws[static_cast<size_t>(LawKey::act_tile_operand)].startup_ns);
      if (in.dst1) {  // the accumulator is read by a second instruction behind the first
        Cost read = from_law(laws[static_cast<size_t>(LawKey::act_accumulator_read)], 1, 1, engine);
        c.completion_ps = std::max(c.completion_ps, c.issue_ps + read.completion_ps);
        c.issue_ps += read.issue_ps;
      }
    }
    return c;
  }
  if (in.engine == Engine::vector) {
    Cost c = from_law(laws[static_cast<size_t>(vector_law(in, o, chip))], n, factor, engine);
    if (in.opcode == Opcode::tensor_tensor_scan && in.s0.kind == isa::Scalar::Kind::tile)
      c.completion_ps += ps(laws[static_cast<size_t>(LawKey::scan_seed)].startup_ns);
    return c;
  }
  throw InternalError(fmt::format("cost: {} on the {} engine", isa::name_of(in.opcode), isa::name_of(in.engine)));
}

bool in_perf_mode(const Instruction& in, const spec::Chip& chip) {
  if (!chip.vector_perf_modes || in.engine != Engine::vector) return false;
  if (in.opcode != Opcode::tensor_copy && in.opcode != Opcode::tensor_scalar && in.opcode != Opcode::tensor_tensor) return false;
  // A performance mode moves more than one element per cycle.
  Operands o = look_at(in, chip);
  return laws_of(chip)[static_cast<size_t>(vector_law(in, o, chip))].cycles_per_element < 0.9;
}

double isolated_ns(const Instruction& in, const isa::Program& program, const spec::Chip& chip) {
  if (isa::is_dma(in.opcode)) {
    Transfer t = transfer(in, program, chip);
    return static_cast<double>(std::max(t.engine_ps, t.hbm_ps)) / 1000.0;
  }
  if (in.engine == Engine::tensor && (in.opcode == Opcode::nc_matmul || in.opcode == Opcode::nc_transpose)) {
    MatmulShape m = matmul_shape(in, chip);
    double rate = chip.throttle_ramp_ns > 0 ? chip.throttle_rate : 1;
    return m.startup_ns + m.passes * static_cast<double>(m.moving) / chip.engines[0].ghz / rate;
  }
  return static_cast<double>(cost(in, program, chip).completion_ps) / 1000.0;
}

}  // namespace opentrn::cost
